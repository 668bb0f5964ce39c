"""Steps of a play that decide on the machine that runs Ansible, and have the host do the rest."""

from typing import Any

from gpuprov.play import drain, elsewhere, engines, fetch, give_up, prebuilt
from gpuprov.play.host import Host, StepFailed

STEPS = {
    "drain": drain,
    "elsewhere": elsewhere,
    "engines": engines,
    "fetch": fetch,
    "give_up": give_up,
    "prebuilt": prebuilt,
}
"""By the name that a task gives to gpuprov_step: a module with `run`, and the ARGUMENTS that it takes."""


def run_step(name: str, host: Host, arguments: dict[str, Any]) -> dict[str, Any]:
    """Do a step, and return the task's result. Raises StepFailed and GpuprovError."""
    step = STEPS[name]
    if unknown := sorted(set(arguments) - step.ARGUMENTS):
        raise StepFailed(
            f"step {name}: {', '.join(unknown)}. Supported parameters include: {', '.join(sorted(step.ARGUMENTS))}."
        )
    result: dict[str, Any] = step.run(host, arguments)
    return result


__all__ = ("STEPS", "Host", "StepFailed", "run_step")
