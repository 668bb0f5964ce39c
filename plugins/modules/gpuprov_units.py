#!/usr/bin/python
"""Have units of systemd as they should be: at each boot, and now."""

from __future__ import annotations

DOCUMENTATION = """
module: gpuprov_units
short_description: Have units of systemd start at a boot, or not, and run, or not
description:
  - What differs is compared as C(gpuprov verify) compares it, and only that is changed.
  - Units that should be off are switched off before others are started.
  - Check mode says what would be done.
author: gpuprov
options:
  units:
    description: The units.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Its name.
        type: str
        required: true
      enabled:
        description: Whether it starts at a boot; nothing, where either is right.
        type: bool
      active:
        description: Whether it runs; nothing, where either is right.
        type: bool
      outdated:
        description: Why it is started anew though it runs; empty where it is not.
        type: str
        default: ""
      hint:
        description: What to do where it does not start.
        type: str
        default: ""
"""
EXAMPLES = """
- name: Have the daemon run, and not the unit that competes with it
  gpuprov_units:
    units:
      - {name: nvidia-persistenced.service, enabled: true, active: true}
      - {name: gpuprov-persistence.service, enabled: false, active: false}
"""
RETURN = """
units:
  description: What differed, by unit.
  type: list
  elements: dict
  returned: always
"""

from ansible.module_utils.gpuprov_onhost import wanted_units
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule

UNIT = {
    "name": {"type": "str", "required": True},
    "enabled": {"type": "bool"},
    "active": {"type": "bool"},
    "outdated": {"type": "str", "default": ""},
    "hint": {"type": "str", "default": ""},
}
SPEC = {"units": {"type": "list", "elements": "dict", "required": True, "options": UNIT}}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    given = module.params["units"]
    wanted = [wanted_units.Wanted(one["name"], one["enabled"], one["active"], one["outdated"] or "") for one in given]
    try:
        found = wanted_units.ensure(wanted, check=module.check_mode)
    except wanted_units.DoesNotStart as error:
        hints = {one["name"]: one["hint"] for one in given}
        module.fail_json(msg=f"{error}. Fix: {hints[error.unit] or f'journalctl -u {error.unit}, on the host'}")
    except OSError as error:
        module.fail_json(msg=f"{error}. Fix: systemctl status of the unit, on the host")
    shown = [
        {"before_header": one.name, "after_header": one.name, "before": f"{one.before}\n", "after": f"{one.after}\n"}
        for one in found
    ]
    told = [{"name": one.name, "before": one.before, "after": one.after} for one in found]
    module.exit_json(changed=bool(found), units=told, diff=shown)


if __name__ == "__main__":
    main()
