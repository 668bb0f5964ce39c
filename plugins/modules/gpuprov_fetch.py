#!/usr/bin/python
"""Have a file that a spec names by its checksum on the host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_fetch
short_description: Have a file with a known SHA-256 on the host, fetched from an address or brought along from beside the inventory
description:
  - Nothing else is done with the file. It is written aside and put in its place only when all of it has come and has the checksum.
  - A file that is there already with this checksum stays, and nothing is fetched.
  - In check mode it is said that it would come.
author: gpuprov
options:
  of:
    description: The field that names it, for messages.
    type: str
    required: true
  url:
    description: Its address, which the host fetches by its own proxy settings. Either this or O(file).
    type: str
    default: ""
  file:
    description: Or a file of the machine that runs Ansible. Its checksum is compared there, before it is brought to the host.
    type: str
    default: ""
  came:
    description: Where the file of that machine lies on the host; set by the action of this name.
    type: path
  path:
    description: Where it should be on the host.
    type: path
    required: true
  sha256:
    description: Its checksum.
    type: str
    required: true
  most:
    description: Bytes that it may have at most.
    type: int
    default: 4294967296
  public:
    description: Whether others than root may read it.
    type: bool
    default: false
  hint:
    description: What to do where another file comes.
    type: str
    default: the right file, or the sha256 that sha256sum says of it, compared with what its publisher says
  unreachable:
    description: What to do where nothing comes.
    type: str
    default: correct the url, the network, or the proxy of the host
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
"""

EXAMPLES = r"""
- name: Have the installer on the host
  gpuprov_fetch:
    of: rdma.efa
    url: https://efa-installer.amazonaws.com/aws-efa-installer-1.47.0.tar.gz
    path: /var/cache/gpuprov/efa/installer.tar.gz
    sha256: "{{ sha256 }}"
"""

RETURN = r"""
missing:
  description: Whether the file of the machine that runs Ansible has to be brought along first.
  type: bool
  returned: always
"""

import errno
import os

from ansible.module_utils.gpuprov_onhost import fetched, files
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule
from ansible.module_utils.urls import open_url

SPEC = {
    "of": {"type": "str", "required": True},
    "url": {"type": "str", "default": ""},
    "file": {"type": "str", "default": ""},
    "came": {"type": "path"},
    "path": {"type": "path", "required": True},
    "sha256": {"type": "str", "required": True},
    "most": {"type": "int", "default": 1 << 32},
    "public": {"type": "bool", "default": False},
    "hint": {
        "type": "str",
        "default": "the right file, or the sha256 that sha256sum says of it, compared with what its publisher says",
    },
    "unreachable": {"type": "str", "default": "correct the url, the network, or the proxy of the host"},
}
SECONDS = 60


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    asked = module.params
    named = asked["url"] or asked["file"]
    if bool(asked["url"]) == bool(asked["file"]):
        module.fail_json(msg=f"{asked['of']}: one of url and file names it")
    wanted = fetched.Wanted(asked["path"], asked["sha256"].lower(), asked["most"], 0o644 if asked["public"] else 0o600)
    try:
        if files.digest(wanted.path) == wanted.sha256:
            module.exit_json(changed=False, missing=False)
        if module.check_mode:
            told = f"would fetch {named}, and compare its checksum, before anything else is changed"
            module.exit_json(changed=True, missing=False, msg=told)
        if asked["file"] and not asked["came"]:
            module.exit_json(changed=False, missing=True)
        here = asked["came"] or fetched.of_bundle(wanted.sha256)
        if here and not asked["came"] and not os.path.exists(here):
            raise fetched.Refused("it is not in the bundle, and nothing else may be asked for it")
        if here:
            fetched.put_file(wanted, here)
        else:
            fetched.put_answer(wanted, lambda: open_url(asked["url"], timeout=SECONDS))
    except fetched.OtherDigest as error:
        module.fail_json(msg=f"{asked['of']}: {named}: {error}; nothing was changed. Fix: {asked['hint']}")
    except (fetched.Refused, OSError, ValueError) as error:
        hint = f"room on the host for {wanted.path}; or " if getattr(error, "errno", 0) == errno.ENOSPC else ""
        said = f"{asked['of']}: {named} did not come: {error}; nothing was changed. Fix: {hint}{asked['unreachable']}"
        module.fail_json(msg=said)
    module.exit_json(changed=True, missing=False)


if __name__ == "__main__":
    main()
