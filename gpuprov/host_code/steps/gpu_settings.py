"""Set ECC mode, power limit, clocks and compute mode of GPUs.

Uses NVML, as gpuprov-gpu-settings.service does again at each boot. Settings are read back after they are set; locked
clocks cannot be read and are recorded in /run/gpuprov/gpu_settings.json.
All GPUs are checked first. If one does not accept a setting, nothing is changed and the step fails with the values it
accepts.
No GPU is reset. A new ECC mode waits for a reboot, for which the step `reason` then reports a reason. Limits and
clocks change under running programs; a compute mode that excludes other programs is refused while anything computes on
the GPU.
Check mode changes nothing and reports the difference.

all: Settings of every GPU. `ecc` is enabled or disabled; `power_limit` watts or default;
    `application_clocks` `{memory, graphics}` in MHz or default; `locked_clocks` `{graphics, memory}`, each a
    list of the lowest and highest MHz, or default; `compute_mode` default, exclusive_process or prohibited.
    Settings that are absent are left alone.
per_gpu: Settings of some GPUs, which override `all`, in order. `gpus` is all, or a list of numbers in the order of PCI
    addresses, PCI addresses and UUIDs; `settings` are as in `all`.
without_driver: True if a host without a driver is not a failure; `later` then gives the reason.

Returns:
steps: The changes made, or in check mode pending.
reboot: The reason why a reboot is needed; empty if none is.
later: The reason why nothing could be set yet, and what will set it; empty if NVML answered.
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
    params = module.params
    answer = act.run({"all": params["all"], "per_gpu": params["per_gpu"]}, change=not module.check_mode)
    if not answer.driver and params["without_driver"]:
        reasons.keep("gpu_settings", "", check=module.check_mode)
        later = (
            f"{'; '.join(answer.problems)}. gpuprov-gpu-settings.service sets the GPUs when it is started with "
            "the driver"
        )
        message = {"msg": later} if params["all"] or params["per_gpu"] else {}
        module.exit_json(changed=False, steps=[], reboot="", later=later, **message)
    result = {"steps": list(answer.steps), "diff": {"before": answer.before, "after": answer.after}}
    if answer.problems:
        module.fail_json(msg="; ".join(answer.problems), changed=answer.changed, **result)
    waiting = ", ".join(answer.waiting)
    reboot = f"the ECC mode of {waiting} changes at a boot" if waiting else ""
    reasons.keep("gpu_settings", reboot, check=module.check_mode)
    module.exit_json(changed=bool(answer.steps), reboot=reboot, later="", **result)
