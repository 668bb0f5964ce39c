"""From nothing to a first inventory: data about hosts from elsewhere, written in gpuprov's form."""

import os
from tempfile import TemporaryDirectory

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.specs import Fleet, load_fleet
from gpuprov.init.draft import Draft, Group
from gpuprov.init.written import written
from gpuprov.report.files import write_atomic
from gpuprov.spec.problem import Problem, SpecError

__all__ = ["Draft", "Group", "judged"]
# Number of blocks removed one after another, before the draft counts as hopeless.
MOST = 50


def judged(draft: Draft) -> tuple[str, Fleet]:
    """Return the inventory's text, and the fleet that `check` makes of it. A block that check refuses is not written,
    and a note says why.

    Raises GpuprovError if nothing is left to remove.
    """
    with TemporaryDirectory(prefix="gpuprov-init-") as folder:
        path = os.path.join(folder, "inventory.yaml")
        for _ in range(MOST):
            text = written(draft)
            write_atomic(path, text)
            try:
                return text, load_fleet([path], cache=False)
            except SpecError as error:
                if not [problem for problem in error.problems if _taken_back(draft, problem)]:
                    raise GpuprovError(
                        f"no inventory can be made of {draft.source}: {error.problems[0].message}",
                        error.problems[0].fix,
                    ) from error
    raise GpuprovError(
        f"no inventory can be made of {draft.source}: gpuprov check refuses {MOST} of its blocks one after another"
    )


def _taken_back(draft: Draft, problem: Problem) -> bool:
    """Remove a block that the problem is about from the draft, for the hosts concerned; True if there was one."""
    block = str(problem.path[0]) if problem.path else ""
    concerned = [group for group in draft.groups if set(problem.hosts) & set(group.members)]
    if block in draft.common and concerned:
        value = draft.common.pop(block)
        for group in draft.groups:
            group.spec.setdefault(block, value)
    having = [candidate for candidate in concerned if block in candidate.spec]
    note = f"{block}: {problem.message}" + (f" ({problem.fix})" if problem.fix else "")
    for group in having:
        del group.spec[block]
        group.notes.append(f"{note}; gpuprov check refuses it, and it is left out")
    return bool(having)
