#!/usr/bin/python
"""Install a package source and its key, or remove gpuprov's own."""

from __future__ import annotations

DOCUMENTATION = """
module: gpuprov_repository
short_description: Put a package source and the key that it is trusted by in place, or take gpuprov's own away
description:
  - The key is read or fetched (over https) by the machine that runs Ansible, and refused before anything is written if
    its fingerprint is not the expected one. The source is then tried on the host with that key alone, in check mode
    too, before it is written.
  - Without O(repository.url) the source and the key of this name are removed. A source in somebody else's file is
    refused with the file's name.
author: gpuprov
options:
  repository:
    description: A repository block as in a spec, with a name and what asked for it; needed without O(capability).
    type: dict
    suboptions:
      name:
        description: What its files are called, behind gpuprov-.
        type: str
        required: true
      of:
        description: What asked for it, for messages.
        type: str
        required: true
      url:
        description: Where it is, http, https or file; empty to take it away.
        type: str
        default: ""
      suite:
        description: The suite of an apt repository; / for a flat one.
        type: str
        default: /
      components:
        description: The components of an apt repository with suites.
        type: list
        elements: str
        default: []
      key:
        description: The public key's text, armoured, or binary in base64; without it the controller reads key_file or
          key_url.
        type: str
        default: ""
      key_file:
        description: The file of the public key on the machine that runs Ansible.
        type: str
        default: ""
      key_url:
        description: Where that machine fetches it from, over https; needs a fingerprint.
        type: str
        default: ""
      fingerprint:
        description: The fingerprints that it may have, separated by commas; empty for whichever one key key_file has.
        type: str
        default: ""
      signed:
        description: What carries signatures that dnf and zypper check; apt always checks the index.
        type: str
        choices: [packages, index, both]
        default: packages
  capability:
    description: The capability whose desired state has the repository; the task is skipped if it has none.
    type: str
    default: ""
  lock_timeout:
    description: How long to wait for another package manager to finish, in seconds.
    type: int
    default: 300
"""
EXAMPLES = """
- name: Put the site's mirror among the package sources
  gpuprov_repository:
    repository: {name: nvidia, of: the site, url: "https://mirror.example/cuda", key_file: /etc/site/cuda.asc}
"""
RETURN = """
comes:
  description: Whether check mode leaves out a source that would be added.
  type: bool
  returned: always
"""

from ansible.module_utils.gpuprov_host_code import family, repository
from ansible.module_utils.gpuprov_host_code.module import AnsibleModule
from ansible.module_utils.gpuprov_host_code.packages import choice, model

TEXT = {"type": "str", "default": ""}
BLOCK = {
    "name": {"type": "str", "required": True},
    "of": {"type": "str", "required": True},
    **dict.fromkeys(("url", "key", "key_file", "key_url", "fingerprint"), TEXT),
    "suite": {"type": "str", "default": "/"},
    "components": {"type": "list", "elements": "str", "default": []},
    "signed": {"type": "str", "choices": ["packages", "index", "both"], "default": "packages"},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "repository": {"type": "dict", "options": BLOCK},
            "capability": {"type": "str", "default": ""},
            "lock_timeout": {"type": "int", "default": 300},
        },
        required_one_of=[("repository", "capability")],
        supports_check_mode=True,
    )
    if module.params["capability"]:
        module.fail_json(
            msg="gpuprov_repository: capability needs action_plugins of this project where Ansible looks for them"
        )
    try:
        manager = choice.choose_manager(model.Settings(module.params["lock_timeout"]))
        answer = repository.settle(manager, module.params["repository"], family.read_family(), module.check_mode)
    except model.Refused as refused:
        module.fail_json(msg=str(refused))
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
