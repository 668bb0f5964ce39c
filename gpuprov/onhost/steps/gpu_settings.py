"""Set ECC mode, power limit, clocks and compute mode of GPUs.

Through NVML, as gpuprov-gpu-settings.service does it again at each boot. What is set is read back; locked
clocks cannot be read, and are noted in /run/gpuprov/gpu_settings.json.
All GPUs are judged first. If one does not take what is asked of it, nothing is changed, and the module fails
with what it takes.
No GPU is reset. A new ECC mode waits for a reboot, which step reason reads of then. Limits and clocks change
under a running program; a compute mode that shuts others out is refused while anything computes on the GPU.
In check mode nothing is changed; the difference is what would be.

all: What is asked of every GPU. `ecc` is enabled or disabled; `power_limit` watts or default;
    `application_clocks` `{memory, graphics}` in MHz or default; `locked_clocks` `{graphics, memory}`, each a
    list of the least and the most MHz, or default; `compute_mode` default, exclusive_process or prohibited.
    What is absent is left alone.
per_gpu: What some GPUs have otherwise, in order. `gpus` is all, or a list of numbers in the order of PCI
    addresses, PCI addresses and UUIDs; `settings` are as in `all`.
without_driver: Whether a host without a driver is no failure; R`later` then says so.

Returns:
steps: What was, or would be, changed.
reboot: Why a reboot is needed; empty if none is.
later: Why nothing could be set yet, and what sets it; empty if NVML answered.
"""

from __future__ import annotations

from .. import reasons
from ..gpu_settings import act
from ..module import AnsibleModule

OPTIONS = {
    "all": {"type": "dict", "default": {}},
    "per_gpu": {"type": "list", "elements": "dict", "default": []},
    "without_driver": {"type": "bool", "default": False},
}


def run(module: AnsibleModule) -> None:
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
