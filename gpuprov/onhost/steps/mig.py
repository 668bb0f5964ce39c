"""Have the GPUs cut up as wanted, by the program that is installed, and keep it for each boot.

The program judges everything again before it destroys anything, and leaves alone what is in use.
What was refused, or failed half-way, is not kept for the next boot; a mode that only a reboot brings is.
Check mode says the steps that gpuprov worked out from the GPUs as they are.

wanted: Mode and layout, as the program takes them.
steps: What would be done; with none nothing is done, and what is wanted is kept.
services: Units that may be stopped for it, and do not count as users; patterns, too.
stop: Those of them that are stopped first. They are noted, for step clients to start them again.
watching: Processes that have a GPU open without computing on it, and will not see its new devices; they are
    warned of.
may_reset: Whether a GPU may be reset by nvidia-smi where NVML could not.
later: Why nobody can say what the GPUs are; empty if NVML answered.
problem: Why it cannot be; then nothing is done.
waits: Whether the driver comes with a boot, so that the boot sets up MIG.

Returns:
later: Why nothing was set up yet; empty if it was.
"""

from __future__ import annotations

from .. import clients, mig_program
from ..module import AnsibleModule

OPTIONS = {
    "wanted": {"type": "dict", "required": True},
    "steps": {"type": "list", "elements": "str", "default": []},
    "services": {"type": "list", "elements": "str", "default": []},
    "stop": {"type": "list", "elements": "str", "default": []},
    "watching": {"type": "list", "elements": "str", "default": []},
    "may_reset": {"type": "bool", "default": False},
    "later": {"type": "str", "default": ""},
    "problem": {"type": "str", "default": ""},
    "waits": {"type": "bool", "default": False},
}


def run(module: AnsibleModule) -> None:
    asked, steps, later = module.params, module.params["steps"], module.params["later"]
    if asked["problem"]:
        module.fail_json(msg=asked["problem"])
    if later and (asked["waits"] or module.check_mode):
        by = (
            "gpuprov-mig.service, when it is started with the driver"
            if asked["waits"]
            else "the apply that brings the driver"
        )
        _done(module, not asked["waits"], [f"{later}. MIG is set up by {by}"], later)
    if steps and asked["watching"]:
        module.warn(f"restart afterwards what has a GPU open whose MIG devices change: {', '.join(asked['watching'])}")
    if module.check_mode or not (steps or later):
        _done(module, bool(steps), steps)
    units = [unit for unit in clients.active(asked["stop"]) if unit in asked["stop"]] if asked["stop"] else []
    problem = clients.stop(units, clients.dependents(units))
    if problem:
        module.fail_json(msg=f"{problem}. Fix: see why on the host, then apply again")
    answer = mig_program.carry_out(asked["wanted"], asked["services"], may_reset=asked["may_reset"])
    if answer["problem"]:
        if answer.get("reboot"):
            mig_program.keep(asked["wanted"], check=False)
        module.fail_json(msg=answer["problem"], changed=bool(answer["changed"]), steps=answer["steps"])
    _done(module, bool(answer["changed"]), answer["steps"])


def _done(module: AnsibleModule, changed: bool, told: list[str], later: str = "") -> None:
    """Keep what is wanted for each boot, and end."""
    kept = mig_program.keep(module.params["wanted"], check=module.check_mode)
    shown = [one.shown() for one in kept] + ([{"prepared": "\n".join([*told, ""])}] if told else [])
    module.exit_json(changed=changed or bool(kept), msg="; ".join(told), later=later, diff=shown)
