#!/usr/bin/python
"""Text files made by Python, written or removed; units that read them, enabled or disabled; and why the host needs a
reboot for them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_files
short_description: Text files as they should be, and units at each boot
description:
  - Writes files of root's whole, each beside its place and renamed into it, and removes those that should not be there.
  - Missing folders are made. A path that holds a link or a folder is refused.
  - Of a file with lines KEY=VALUE that something else brings, single lines can be set.
  - Where a file of systemd's changes, systemd reads its files anew; its own settings too, where one of these goes.
author: gpuprov
options:
  capability:
    description: >-
      The capability whose desired files, and units at each boot, stand for the options of these; others may be given
      beside it. Where nothing is desired, and O(reboot) is not given, the host is not asked.
    type: str
    default: ""
  files:
    description: The text of each file, by its absolute path.
    type: dict
    default: {}
  absent:
    description: Files that should not be there, by absolute path.
    type: list
    elements: path
    default: []
  absent_if:
    description: >-
      Files that should not be there, each by its absolute path with the SHA-256 that it must have to be removed. One
      that others have changed is left, with a warning.
    type: dict
    default: {}
  programs:
    description: Like C(files), and executable.
    type: dict
    default: {}
  role_files:
    description: >-
      By the absolute path on the host, the name of a file of the role that is brought there as it is; the action of
      this name reads it. No difference is shown of these: they are programs, not settings.
    type: dict
    default: {}
  lines:
    description: >-
      Files that something else brings, in which single lines KEY=VALUE are set, or in a C(.json) file members by dotted
      path; the rest of each stays as it is.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Its absolute path.
        type: str
        required: true
      keys:
        description: Values by key; in a C(.json) file each in JSON.
        type: dict
        required: true
      made:
        description: The file is made where there is none.
        type: bool
        default: false
  units:
    description: Like C(files), where C(@PYTHON@) stands for the Python that runs this module on the host.
    type: dict
    default: {}
  disabled:
    description: Units that should neither run nor start at a boot; they are switched off before the files are written.
    type: list
    elements: str
    default: []
  enabled:
    description: Units that should start at each boot, with the files as they are now; they are not started.
    type: list
    elements: str
    default: []
  reboot:
    description: >-
      By capability why the host has to be rebooted for its settings, which M(gpuprov_reason) reads; empty takes an
      earlier reason back. That alone is no change.
    type: dict
    default: {}
  problem:
    description: >-
      Why nothing of this may be done, as gpuprov has found on the host; empty if it may. The task fails with it before
      anything is changed. Check mode only warns of it: what is wrong now is put right before an apply comes here.
    type: str
    default: ""
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
written:
  description: Those of them that got another content, or are gone.
  type: list
  elements: str
  returned: always
units:
  description: The units that were switched on or off.
  type: list
  elements: str
  returned: always
"""

import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible.module_utils.gpuprov_host_code import reads, reasons, receipt, systemd, unit_files, wanted_units
from ansible.module_utils.gpuprov_host_code.files import (
    PYTHON,
    Difference,
    Refused,
    Wanted,
    bring_about,
    explain,
    list_differences,
    list_foreign_files,
    merge_lines,
)
from ansible.module_utils.gpuprov_host_code.module import AnsibleModule
from ansible.module_utils.gpuprov_host_code.wanted_units import Wanted as Unit

LINES = {
    "path": {"type": "str", "required": True},
    "keys": {"type": "dict", "required": True},
    "made": {"type": "bool", "default": False},
}


OPTIONS = {
    "capability": {"type": "str", "default": ""},
    "files": {"type": "dict", "default": {}},
    "absent": {"type": "list", "elements": "path", "default": []},
    "absent_if": {"type": "dict", "default": {}},
    "programs": {"type": "dict", "default": {}},
    "role_files": {"type": "dict", "default": {}},
    "lines": {"type": "list", "elements": "dict", "default": [], "options": LINES},
    "units": {"type": "dict", "default": {}},
    "disabled": {"type": "list", "elements": "str", "default": []},
    "enabled": {"type": "list", "elements": "str", "default": []},
    "reboot": {"type": "dict", "default": {}},
    "problem": {"type": "str", "default": ""},
}


class Done(NamedTuple):
    """Files that differed; units that were switched; drop-ins that systemd no longer reads (`aside`), and files that it
    had not read yet (`late`)."""

    changed: list[Difference]
    turned: list[str]
    aside: list[str]
    late: list[str]

    @property
    def moved(self) -> list[str]:
        return [change.path for change in self.changed] + self.aside


def main() -> None:
    module = AnsibleModule(OPTIONS, supports_check_mode=True)
    if module.params["capability"]:
        module.fail_json(
            msg="gpuprov_files: capability needs action_plugins of this project where Ansible looks for them"
        )
    if problem := module.params["problem"]:
        if not module.check_mode:
            module.fail_json(msg=problem)
        module.warn(problem)
    desired = _list_desired(module)
    paths = [entry.path for entry in desired] + [entry["path"] for entry in module.params["lines"]]
    if wrong := [path for path in paths if not path.startswith("/")]:
        module.fail_json(msg=f"{wrong[0]} is not an absolute path")
    try:
        done = _bring_about(module.params, desired, check=module.check_mode)
    except Refused as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=str(error) if "Fix:" in str(error) else explain(error))
    module.exit_json(
        changed=bool(done.moved or done.late or done.turned),
        paths=[change.path for change in done.changed],
        written=_list_written(done.changed),
        units=done.turned,
        diff=_show(module, done),
    )


def _list_desired(module: AnsibleModule) -> list[Wanted]:
    """Return the whole files to have, and those to be without; others' changes to the latter are left to them."""
    texts = [("role_files", 0o644), ("files", 0o644), ("programs", 0o755)]
    desired = [Wanted(path, text, mode) for option, mode in texts for path, text in module.params[option].items()]
    own = module.params["units"].items()
    desired += [Wanted(path, content.replace(PYTHON, sys.executable)) for path, content in own]
    desired += [Wanted(path, None) for path in module.params["absent"]]
    for path, digest in module.params["absent_if"].items():
        if receipt.digest_of(path) == digest:
            desired.append(Wanted(path, None))
        elif os.path.lexists(path):
            module.warn(f"{path} was changed by others since gpuprov wrote it: it is left to them")
    return desired


def _bring_about(params: Mapping[str, Any], desired: list[Wanted], *, check: bool) -> Done:
    """Switch units off, write files and lines, and switch units on."""
    off = [Unit(name, enabled=False, active=False) for name in params["disabled"]]
    turned = [unit.name for unit in wanted_units.ensure(off, check=check)]
    desired += [
        merge_lines(line["path"], {key: str(value) for key, value in line["keys"].items()}, made=line["made"] or check)
        for line in params["lines"]
    ]
    desired += list_foreign_files(desired)
    texts_of = {entry.path: entry.content for entry in desired if entry.content is not None and entry.whole}
    late = unit_files.list_late(texts_of) + wanted_units.list_unread(params["enabled"], texts_of)
    aside = unit_files.set_aside(texts_of, check=check)
    changed = list_differences(desired) if check else _write(desired)
    moved = [change.path for change in changed] + aside
    if not check and any(path.startswith(systemd.SETTINGS) and not os.path.lexists(path) for path in moved):
        systemd.systemctl("daemon-reexec")  # daemon-reload keeps default limits that no file sets any more
    elif not check and (late or aside or any(map(unit_files.derive_unit, moved))):
        systemd.systemctl("daemon-reload")
    on = [Unit(name, enabled=True) for name in params["enabled"]]
    turned = [*dict.fromkeys(turned), *(unit.name for unit in wanted_units.ensure(on, check=check))]
    for capability, reason in params["reboot"].items():
        reasons.keep(capability, reason or "", check=check)
    return Done(changed, turned, aside, [path for path in late if path not in moved])


def _show(module: AnsibleModule, done: Done) -> list[dict[str, str]]:
    """Return what changed in Ansible's format of a difference; `diff: false` of a task: a program, not a setting."""
    own = module.params["role_files"]
    shown = [change.shown() for change in done.changed if change.path not in own] if module._diff else []
    shown += _turned(done.turned, module.params["enabled"]) if done.turned else []
    ends = [(path, "read by systemd\n", "set aside\n") for path in done.aside]
    ends += [(path, "", "read by systemd\n") for path in done.late]
    return shown + [
        {"before_header": path, "after_header": path, "before": before, "after": after} for path, before, after in ends
    ]


def _write(desired: list[Wanted]) -> list[Difference]:
    """Write what differs; units that have read what was there before are known by that."""
    changed: list[Difference] = bring_about(desired)
    reads.note_written(_list_written(changed))
    return changed


def _list_written(changed: list[Difference]) -> list[str]:
    return [change.path for change in changed if not change.mode]


def _turned(names: list[str], on: list[str]) -> list[dict[str, str]]:
    """Return the units that start at boot, in Ansible's format of a difference."""
    before = "".join(f"{name} {'off' if name in on else 'on'}\n" for name in names)
    after = "".join(f"{name} {'on' if name in on else 'off'}\n" for name in names)
    return [{"before_header": "units", "after_header": "units", "before": before, "after": after}]


if __name__ == "__main__":
    main()
