"""Record the reason why a host must be rebooted, or that it no longer must be.

A reason is a file under /run/gpuprov/reboot-required.d named after its capability. A reboot deletes it.
Without `capability` the reasons are only read.

capability: The capability that needs the reboot.
reason: The reason for the reboot; empty if none is needed, which withdraws an earlier reason.
permitted: True if the host may be rebooted. If it must be and may not, the result says so.

Returns:
reasons: All current reasons, as lines of the form "capability: reason".
reboots: True if the host will be rebooted: it must be and may be.
msg: The message that the host must be rebooted and may not. (it must be, and `permitted` is false)
"""

from __future__ import annotations

from .. import reasons
from ..module import AnsibleModule

OPTIONS = {
    "capability": {"type": "str", "default": ""},
    "reason": {"type": "str", "default": ""},
    "permitted": {"type": "bool", "default": True},
}


def run(module: AnsibleModule) -> None:
    name, reason = module.params["capability"], module.params["reason"]
    before = after = ""
    try:
        if name:
            before, after = reasons.keep(name, reason, check=module.check_mode)
        lines = [f"{of}: {why}" for of, why in reasons.read_reasons().items()]
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    diff = {"before": before, "after": after, "after_header": f"{reasons.FOLDER}/{name}"}
    message = {} if module.params["permitted"] or not lines else {"msg": reasons.describe_forbidden(lines)}
    reboots = bool(lines) and module.params["permitted"]
    module.exit_json(
        changed=before != after, reasons=lines, reboots=reboots, diff=diff if before != after else {}, **message
    )
