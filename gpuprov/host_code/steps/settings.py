"""Put settings back to their values before gpuprov set them.

Sysctls, hugepages, CPU governors, registers of PCIe, settings of RoCE ports and of GPUs, as the receipt has them. A
setting that has another value than the one that was applied was changed by others and stays. After that the receipt
lists only those that could not be read or set.
Check mode changes nothing and reports the difference.

settings: The lines of the receipt.

Returns:
restored: The names of those that were put back.
reboot: The reason why a reboot is needed; empty if none is.
"""

from __future__ import annotations

from .. import reasons, receipt
from ..lasting import parse_settings
from ..module import AnsibleModule
from ..restore import act, kinds

OPTIONS = {"settings": {"type": "list", "elements": "str", "required": True}}


def run(module: AnsibleModule) -> None:
    settings, check = list(parse_settings(module.params["settings"])), module.check_mode
    answer = act.restore(settings, change=not check)
    for line in act.describe_left(answer):
        module.warn(f"not put back: {line}")
    if not check:
        receipt.drop_settings([*answer.restored, *answer.left], [*answer.failed])
    reboot = "; ".join(filter(None, dict.fromkeys(map(kinds.explain_reboot, answer.restored))))
    reasons.keep("settings", reboot, check=check)
    before = "".join(f"{setting.name} = {setting.value}\n" for setting in answer.restored)
    after = "".join(f"{setting.name} = {setting.before}\n" for setting in answer.restored)
    module.exit_json(
        changed=bool(answer.restored),
        restored=list(dict.fromkeys(setting.name for setting in answer.restored)),
        reboot=reboot,
        diff={"before": before, "after": after},
    )
