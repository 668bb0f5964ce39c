"""Partition the GPUs with the installed MIG program, and keep the layout for each boot.

The program checks everything again before it destroys anything, and leaves alone what is in use.
A layout that was refused or failed half-way is not kept for the next boot; a mode that needs a reboot is.
Check mode reports the steps that gpuprov computed from the current state of the GPUs.

wanted: Mode and layout, in the program's format.
steps: The steps to do; if empty, nothing is done and the layout is kept.
services: Units (or patterns) that may be stopped for the change and do not count as users.
stop: Those of `services` that are stopped first. They are recorded, and the step `clients` starts them again.
watching: Processes that have a GPU open without computing on it and will not see its new devices; a warning names
    them.
may_reset: True if nvidia-smi may reset a GPU that NVML could not.
later: The reason why the state of the GPUs is not known; empty if NVML answered.
problem: The reason why the layout is impossible; if set, the step fails and nothing is done.
waits: True if the driver comes with a boot, so that the boot sets up MIG.

Returns:
later: The reason why nothing was set up yet; empty if it was.
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
    params, steps, later = module.params, module.params["steps"], module.params["later"]
    if params["problem"]:
        module.fail_json(msg=params["problem"])
    if later and (params["waits"] or module.check_mode):
        by = (
            "gpuprov-mig.service, when it is started with the driver"
            if params["waits"]
            else "the apply that brings the driver"
        )
        keep_and_exit(module, not params["waits"], [f"{later}. MIG is set up by {by}"], later)
    if steps and params["watching"]:
        module.warn(f"restart afterwards what has a GPU open whose MIG devices change: {', '.join(params['watching'])}")
    if module.check_mode or not (steps or later):
        keep_and_exit(module, bool(steps), steps)
    units = [unit for unit in clients.list_active(params["stop"]) if unit in params["stop"]] if params["stop"] else []
    problem = clients.stop(units, clients.list_dependents(units))
    if problem:
        module.fail_json(msg=f"{problem}. Fix: see why on the host, then apply again")
    answer = mig_program.carry_out(params["wanted"], params["services"], may_reset=params["may_reset"])
    if answer["problem"]:
        if answer.get("reboot"):
            mig_program.keep(params["wanted"], check=False)
        module.fail_json(msg=answer["problem"], changed=bool(answer["changed"]), steps=answer["steps"])
    keep_and_exit(module, bool(answer["changed"]), answer["steps"])


def keep_and_exit(module: AnsibleModule, changed: bool, lines: list[str], later: str = "") -> None:
    """Keep the desired layout for each boot, and exit."""
    kept = mig_program.keep(module.params["wanted"], check=module.check_mode)
    shown = [change.shown() for change in kept] + ([{"prepared": "\n".join([*lines, ""])}] if lines else [])
    module.exit_json(changed=changed or bool(kept), msg="; ".join(lines), later=later, diff=shown)
