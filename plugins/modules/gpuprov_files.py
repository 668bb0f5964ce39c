#!/usr/bin/python
"""Text files as Python made them: written, or removed."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_files
short_description: Text files as they should be
description:
  - Writes files of root's whole, each beside its place and renamed into it, and removes those that should not be there.
  - Missing folders are made. A path that holds a link or a folder is refused.
  - Of a file with lines KEY=VALUE that something else brings, single keys can be set.
author: gpuprov
options:
  files:
    description: The text of each file, by its absolute path.
    type: dict
    default: {}
  absent:
    description: Files that should not be there, by absolute path.
    type: list
    elements: path
    default: []
  programs:
    description: Like C(files), and executable.
    type: dict
    default: {}
  keys:
    description: By the absolute path of a file that is there, values by key; its other lines stay as they are.
    type: dict
    default: {}
  units:
    description: Like C(files), where C(@PYTHON@) stands for the Python that runs this module on the host.
    type: dict
    default: {}
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
"""

EXAMPLES = r"""
- name: Write what the node needs
  gpuprov_files:
    files: {/etc/gpuprov/kubernetes/device-plugin.yaml: "version: v1\n"}
    absent: [/etc/gpuprov/kubernetes/hami-values.yaml]
"""

RETURN = r"""
paths:
  description: The files that differed.
  type: list
  elements: str
  returned: always
"""

import sys

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpuprov_onhost.files import PYTHON, Refused, Wanted, bring_about, differences, with_keys


def main() -> None:
    options = {
        "files": {"type": "dict", "default": {}},
        "absent": {"type": "list", "elements": "path", "default": []},
        "programs": {"type": "dict", "default": {}},
        "keys": {"type": "dict", "default": {}},
        "units": {"type": "dict", "default": {}},
    }
    module = AnsibleModule(options, supports_check_mode=True)
    wanted = [Wanted(path, content) for path, content in module.params["files"].items()]
    wanted += [Wanted(path, content, 0o755) for path, content in module.params["programs"].items()]
    units = module.params["units"].items()
    wanted += [Wanted(path, content.replace(PYTHON, sys.executable)) for path, content in units]
    wanted += [Wanted(path, None) for path in module.params["absent"]]
    keys = module.params["keys"]
    if wrong := [path for path in (*(one.path for one in wanted), *keys) if not path.startswith("/")]:
        module.fail_json(msg=f"{wrong[0]} is no absolute path")
    try:
        wanted += [
            with_keys(path, {key: str(value) for key, value in values.items()}, missing=module.check_mode)
            for path, values in keys.items()
        ]
        changed = differences(wanted) if module.check_mode else bring_about(wanted)
    except Refused as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}. Fix: see the file system of the host")
    shown = (
        [one.shown() for one in changed] if module._diff else []
    )  # `diff: false` of a task: a program, not a setting
    module.exit_json(changed=bool(changed), paths=[one.path for one in changed], diff=shown)


if __name__ == "__main__":
    main()
