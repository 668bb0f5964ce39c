#!/usr/bin/python
"""Read, try, install, remove and hold packages of a host."""

from __future__ import annotations

DOCUMENTATION = """
module: gpuprov_packages
short_description: Read, try, install, remove and hold packages with the host's own package manager, apt, dnf or zypper
description:
  - V(settle) brings packages into one state in one transaction, then holds and releases packages. It is refused, before
    anything is changed, if the package manager cannot do it, if it would remove what is not in O(remove) or
    O(may_remove), if it touches what O(refuse) names, or if it would bring packages of another driver than the host's
    (O(driver)). Versions may go down, and held packages may change. In check mode it says what it would do.
  - V(try) judges the same, and downloads the packages (not in check mode); it changes nothing. V(judge) refuses
    packages of another driver alone, and downloads nothing.
  - V(read) returns what is installed, on offer, and held. V(files) returns the files of the packages in O(install),
    downloaded.
  - V(prepare) completes what a run that was cut off left half-way, refuses a broken package database, and fetches lists
    that are missing or older than O(max_age). V(fetch) writes O(sources) and fetches the lists of O(source) alone;
    where that fails, what it wrote is taken away again.
  - A version is Debian's, or epoch:version-release of an rpm, without an epoch of 0.
author: gpuprov
options:
  action:
    description: What to do.
    type: str
    choices: [settle, install, hold, try, judge, read, files, prepare, fetch]
    default: settle
  capability:
    description: >-
      The capability, or a part of it such as C(rdma.ofed), whose desired packages stand for all other options. Then
      V(install) does the transaction alone, and V(hold) only holds and releases. Where nothing is desired, the host is
      not asked.
    type: str
    default: ""
  task:
    description: The name under which a capability's desired state has packages of a single task in place of its own.
    type: str
    default: ""
  of:
    description: What the packages are, for messages.
    type: str
    default: ""
  install:
    description: Packages to install, as NAME, NAME=VERSION, or NAME:ARCHITECTURE=VERSION; one that is there in this
      version stays.
    type: list
    elements: str
    default: []
  remove:
    description: Packages to remove.
    type: list
    elements: str
    default: []
  may_remove:
    description: Further packages that the transaction may remove.
    type: list
    elements: str
    default: []
  pin:
    description: Packages that match a pattern and have a driver's version may come in this version only.
    type: dict
    default: {}
    suboptions:
      version: {description: "A driver's version, without revision.", type: str, default: ""}
      patterns: {description: Globs of names., type: list, elements: str, default: []}
  stream:
    description: A module's stream to be enabled first, such as nvidia-driver:580-open; dnf only.
    type: str
    default: ""
  refuse:
    description: Packages that the transaction may not install, move or remove, but for those in O(remove).
    type: dict
    default: {}
    suboptions:
      patterns: {description: Regular expressions of whole names., type: list, elements: str, default: []}
      why: {description: Why not., type: str, default: ""}
      fix: {description: The way out., type: str, default: ""}
  driver:
    description: How packages of a driver are recognized, and the driver that this run brings, as M(gpuprov_judge)
      returns it. Empty for the driver's own packages.
    type: dict
    default: {}
  instead:
    description: What does without the packages, where they would bring another driver than the host's.
    type: str
    default: ""
  fix:
    description: The way out where the transaction cannot be done.
    type: str
    default: correct what it reports
  hold:
    description: Packages to hold. What dnf locks packages with is installed along, where it is missing.
    type: list
    elements: str
    default: []
  release:
    description: Packages to release, but for those to hold. Holds of other packages stay.
    type: list
    elements: str
    default: []
  names:
    description: Names that the index is asked for (V(read)).
    type: list
    elements: str
    default: []
  related:
    description: The index is asked for installed packages too whose source package matches this regular expression
      (V(read)).
    type: str
    default: ""
  source:
    description: NAME of gpuprov-NAME.sources or gpuprov-NAME.repo (V(fetch)).
    type: str
    default: ""
  sources:
    description: The text of files that O(source) is in, by path (V(fetch)).
    type: dict
    default: {}
  without:
    description: Names of gpuprov's own package sources that are to leave, and are not seen (apt).
    type: list
    elements: str
    default: []
  max_age:
    description: Age in seconds from which lists are fetched anew (V(prepare)).
    type: int
    default: 86400
  lock_timeout:
    description: How long to wait for another package manager to finish, in seconds.
    type: int
    default: 300
"""
EXAMPLES = """
- name: Try the transaction, and download what it needs
  gpuprov_packages: {action: try, of: the toolkit, install: [nvidia-container-toolkit=1.17.8-1]}
- name: Try what is desired of a capability, and download it
  gpuprov_packages: {action: try, capability: dcgm}
- name: Install and hold it
  gpuprov_packages: {of: the toolkit, install: [nvidia-container-toolkit=1.17.8-1], hold: [nvidia-container-toolkit]}
- name: Read what is installed, and which versions there are
  gpuprov_packages: {action: read, names: [nvidia-container-toolkit]}
  register: packages
"""
RETURN = """
changes:
  description: What was changed, or would be, as "Inst NAME VERSION", "Remv NAME", "hold NAME", "release NAME", or in
    words.
  type: list
  returned: always
trial:
  description: What the transaction would do, in the same words.
  type: list
  returned: action is try or judge
installed:
  description: Version by name; of a package in several architectures the host's own.
  type: dict
  returned: action is read
rows:
  description: Each package as [state, name, version, source, architecture, vendor].
  type: list
  returned: action is read
index:
  description: Versions on offer by name, newest first.
  type: dict
  returned: action is read
held:
  description: Names of packages that are held.
  type: list
  returned: action is read
lock_problem:
  description: Why what is held would move all the same; empty if it would not.
  type: str
  returned: action is read
lock_needs:
  description: Packages without which nothing can be held.
  type: list
  returned: action is read
files:
  description: The file of each package in O(install), in the same order.
  type: list
  returned: action is files
"""

from ansible.module_utils.gpuprov_host_code.module import AnsibleModule
from ansible.module_utils.gpuprov_host_code.packages import actions, choice, model

NAMES = {"type": "list", "elements": "str", "default": []}
ARGUMENTS = {
    "action": {
        "type": "str",
        "choices": ["settle", "install", "hold", "try", "judge", "read", "files", "prepare", "fetch"],
        "default": "settle",
    },
    "capability": {"type": "str", "default": ""},
    "task": {"type": "str", "default": ""},
    "of": {"type": "str", "default": ""},
    **dict.fromkeys(("install", "remove", "may_remove", "hold", "release", "names", "without"), NAMES),
    "pin": {
        "type": "dict",
        "default": {},
        "options": {
            "version": {"type": "str", "default": ""},
            "patterns": NAMES,
        },
    },
    "stream": {"type": "str", "default": ""},
    "refuse": {
        "type": "dict",
        "default": {},
        "options": {
            "patterns": NAMES,
            "why": {"type": "str", "default": ""},
            "fix": {"type": "str", "default": ""},
        },
    },
    "driver": {"type": "dict", "default": {}},
    "instead": {"type": "str", "default": ""},
    "fix": {"type": "str", "default": "correct what it reports"},
    "related": {"type": "str", "default": ""},
    "source": {"type": "str", "default": ""},
    "sources": {"type": "dict", "default": {}},
    "max_age": {"type": "int", "default": model.LISTS_MAX_AGE},
    "lock_timeout": {"type": "int", "default": 300},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    params = module.params
    if params["capability"]:
        module.fail_json(
            msg="gpuprov_packages: capability needs action_plugins of this project where Ansible looks for them"
        )
    try:
        manager = choice.choose_manager(model.Settings(params["lock_timeout"], tuple(params["without"])))
        answer = actions.ACTIONS[params["action"]](manager, params, module.check_mode)
    except model.Refused as refused:
        module.fail_json(msg=str(refused))
    for warning in answer.pop("warnings"):
        module.warn(warning)
    if answer["changes"]:
        answer["diff"] = {"prepared": "\n".join(answer["changes"])}
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
