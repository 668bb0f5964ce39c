"""Note why a host has to be rebooted, or that it no longer has to.

A reason is a file under /run/gpuprov/reboot-required.d, of the name of its capability. It is gone after a
reboot.
Without `capability` the reasons are only read.

capability: Whose reason it is.
reason: Why the host has to be rebooted; empty if it does not have to, which takes an earlier reason back.
permitted: Whether the host may be rebooted. Where it has to be and may not, the result says so.

Returns:
reasons: All reasons as they are now, as lines of the form "capability; colon; reason".
reboots: Whether the host is to be rebooted, since it has to be and may be.
msg: That the host has to be rebooted, and may not. (it has to be, and `permitted` is false)
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
        lines = [f"{of}: {why}" for of, why in reasons.known().items()]
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    diff = {"before": before, "after": after, "after_header": f"{reasons.FOLDER}/{name}"}
    told = {} if module.params["permitted"] or not lines else {"msg": reasons.forbidden(lines)}
    reboots = bool(lines) and module.params["permitted"]
    module.exit_json(
        changed=before != after, reasons=lines, reboots=reboots, diff=diff if before != after else {}, **told
    )
