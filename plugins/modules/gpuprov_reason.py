#!/usr/bin/python
"""Keep the reason for which a host waits for a reboot."""

from __future__ import annotations

DOCUMENTATION = """
module: gpuprov_reason
short_description: Note why a host has to be rebooted, or that it no longer has to
description:
  - A reason is a file under /run/gpuprov/reboot-required.d, of the name of its capability. It is gone after a reboot.
  - Without O(capability) the reasons are only read.
author: gpuprov
options:
  capability:
    description: Whose reason it is.
    type: str
    default: ""
  reason:
    description: Why the host has to be rebooted; empty if it does not have to, which takes an earlier reason back.
    type: str
    default: ""
  permitted:
    description: Whether the host may be rebooted. Where it has to be and may not, the result says so.
    type: bool
    default: true
"""
EXAMPLES = """
- name: Say whether the command line needs a reboot
  gpuprov_reason:
    capability: kernel
    reason: "{{ 'the running kernel was started without iommu=pt' if missing else '' }}"
- name: Read why a reboot is required
  gpuprov_reason: {}
  register: waits
"""
RETURN = """
reasons:
  description: All reasons as they are now, as lines of the form "capability; colon; reason".
  type: list
  elements: str
  returned: always
reboots:
  description: Whether the host is to be rebooted, since it has to be and may be.
  type: bool
  returned: always
msg:
  description: That the host has to be rebooted, and may not.
  type: str
  returned: it has to be, and O(permitted) is false
"""

from ansible.module_utils.gpuprov_onhost import reasons
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule

SPEC = {
    "capability": {"type": "str", "default": ""},
    "reason": {"type": "str", "default": ""},
    "permitted": {"type": "bool", "default": True},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    name, reason = module.params["capability"], module.params["reason"]
    before = after = ""
    try:
        if name:
            before, after = reasons.keep(name, reason, check=module.check_mode)
        lines = [f"{of}: {why}" for of, why in reasons.known().items()]
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    diff = {"before": before, "after": after, "after_header": f"{reasons.FOLDER}/{name}"}
    told = {} if module.params["permitted"] or not lines else {"msg": reasons.forbidden(lines)}
    reboots = bool(lines) and module.params["permitted"]
    module.exit_json(
        changed=before != after, reasons=lines, reboots=reboots, diff=diff if before != after else {}, **told
    )


if __name__ == "__main__":
    main()
