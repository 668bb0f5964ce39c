"""Steps of a play that decide on the machine that runs Ansible, and have the host do the rest."""

from gpuprov.core.safe_parse import TreeView
from gpuprov.play import drain, elsewhere, engines, fetch, give_up, leftovers, prebuilt
from gpuprov.play.host import Host, Result, StepFailed

# Steps by the name that a task gives to gpuprov_step: a module with `run`, and the Arguments that it takes.
STEPS = {
    "drain": drain,
    "elsewhere": elsewhere,
    "engines": engines,
    "fetch": fetch,
    "give_up": give_up,
    "leftovers": leftovers,
    "prebuilt": prebuilt,
}


def run_step(name: str, host: Host, arguments: TreeView) -> Result:
    """Do a step, and return the task's result. Raises StepFailed and GpuprovError."""
    step = STEPS[name]
    known = step.Arguments.__annotations__
    if unknown := sorted(set(arguments) - {*known}):
        raise StepFailed(
            f"step {name}: {', '.join(unknown)}. Supported parameters include: {', '.join(sorted(known))}."
        )
    result: Result = step.run(host, arguments)
    return result


__all__ = ("STEPS", "Host", "StepFailed", "run_step")
