#!/usr/bin/python
"""Set ECC mode, power limit, clocks and compute mode of a host's GPUs."""

from __future__ import annotations

DOCUMENTATION = """
module: gpuprov_gpu_settings
short_description: Set ECC mode, power limit, clocks and compute mode of GPUs
description:
  - Through NVML, as gpuprov-gpu-settings.service does it again at each boot. What is set is read back; locked clocks cannot be read,
    and are noted in /run/gpuprov/gpu_settings.json.
  - All GPUs are judged first. If one does not take what is asked of it, nothing is changed, and the module fails with what it takes.
  - No GPU is reset. A new ECC mode waits for a reboot, which M(gpuprov_reason) reads of then. Limits and clocks change under a
    running program; a compute mode that shuts others out is refused while anything computes on the GPU.
  - In check mode nothing is changed; the difference is what would be.
author: gpuprov
options:
  all:
    description:
      - What is asked of every GPU.
      - C(ecc) is enabled or disabled; C(power_limit) watts or default; C(application_clocks) C({memory, graphics}) in MHz or default;
        C(locked_clocks) C({graphics, memory}), each a list of the least and the most MHz, or default; C(compute_mode) default,
        exclusive_process or prohibited. What is absent is left alone.
    type: dict
    default: {}
  per_gpu:
    description:
      - What some GPUs have otherwise, in order. C(gpus) is all, or a list of numbers in the order of PCI addresses, PCI addresses and
        UUIDs; C(settings) are as in O(all).
    type: list
    elements: dict
    default: []
  without_driver:
    description: Whether a host without a driver is no failure; RV(later) then says so.
    type: bool
    default: false
"""
EXAMPLES = """
- name: Cap all GPUs at 500 W, and lock the clocks of the first
  gpuprov_gpu_settings:
    all: {power_limit: 500}
    per_gpu:
      - gpus: [0]
        settings: {locked_clocks: {graphics: [1200, 1755]}}
"""
RETURN = """
steps:
  description: What was, or would be, changed.
  type: list
  elements: str
  returned: always
reboot:
  description: Why a reboot is needed; empty if none is.
  type: str
  returned: success
later:
  description: Why nothing could be set yet, and what sets it; empty if NVML answered.
  type: str
  returned: success
"""

from ansible.module_utils.gpuprov_onhost import reasons
from ansible.module_utils.gpuprov_onhost.gpu_settings import act
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "all": {"type": "dict", "default": {}},
            "per_gpu": {"type": "list", "elements": "dict", "default": []},
            "without_driver": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    asked = module.params
    answer = act.run({"all": asked["all"], "per_gpu": asked["per_gpu"]}, change=not module.check_mode)
    if not answer.driver and asked["without_driver"]:
        reasons.keep("gpu_settings", "", check=module.check_mode)
        later = f"{'; '.join(answer.problems)}. gpuprov-gpu-settings.service sets the GPUs when it is started with the driver"
        told = {"msg": later} if asked["all"] or asked["per_gpu"] else {}
        module.exit_json(changed=False, steps=[], reboot="", later=later, **told)
    result = {"steps": list(answer.steps), "diff": {"before": answer.before, "after": answer.after}}
    if answer.problems:
        module.fail_json(msg="; ".join(answer.problems), changed=answer.changed, **result)
    waiting = ", ".join(answer.waiting)
    reboot = f"the ECC mode of {waiting} changes at a boot" if waiting else ""
    reasons.keep("gpu_settings", reboot, check=module.check_mode)
    module.exit_json(changed=bool(answer.steps), reboot=reboot, later="", **result)


if __name__ == "__main__":
    main()
