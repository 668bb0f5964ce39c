#!/usr/bin/python
"""An archive that a spec names by its SHA-256."""

from __future__ import annotations

DOCUMENTATION = """
module: gpuprov_archive
short_description: Have an archive on the host, and no other in its place
description:
  - Fetches it, unless it is there; one with another SHA-256 is refused, and not left there.
  - In check mode nothing is fetched, and nothing refused.
author: gpuprov
options:
  path:
    description: Where it should be; its folder must be there.
    type: path
    required: true
  sha256:
    description: Its SHA-256.
    type: str
    required: true
  url:
    description: Where it is fetched from; empty where something else brings it to its place.
    type: str
    default: ""
  field:
    description: The field of the spec that names it.
    type: str
    required: true
  origin:
    description: Where it comes from, where that is no URL.
    type: str
    default: ""
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
"""

EXAMPLES = """
- name: Fetch the source of nccl-tests
  gpuprov_archive:
    path: /opt/gpuprov/acceptance/nccl-0123456789ab.archive
    url: https://mirror.example/nccl-tests.tar.gz
    sha256: "{{ sha256 }}"
    field: acceptance.nccl.source
"""

RETURN = """
fetched:
  description: Whether it had to be fetched.
  type: bool
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpuprov_onhost import archive
from ansible.module_utils.urls import open_url

LIMIT = 60
"""Seconds in which a server has to say something."""


def main() -> None:
    options = {
        "path": {"type": "path", "required": True},
        "sha256": {"type": "str", "required": True},
        "url": {"type": "str", "default": ""},
        "field": {"type": "str", "required": True},
        "origin": {"type": "str", "default": ""},
    }
    module = AnsibleModule(options, supports_check_mode=True)
    asked = module.params
    there = archive.sha256(asked["path"])
    if module.check_mode or there == asked["sha256"]:
        module.exit_json(changed=False, fetched=False)
    try:
        if asked["url"]:
            why = archive.fetch(asked["path"], asked["sha256"], lambda: open_url(asked["url"], timeout=LIMIT))
        else:
            why = f"it has {there}" if there else "no such file"
    except Exception as error:  # of the network, TLS, HTTP, or the host's disk
        why = str(error)
    if why:
        told = f"{asked['field']}: {asked['url'] or asked['origin']} has not the sha256 {asked['sha256']}, or cannot be fetched"
        module.fail_json(msg=f"{told}: {why}. Fix: look at what is there, and correct source")
    module.exit_json(changed=False, fetched=True)


if __name__ == "__main__":
    main()
