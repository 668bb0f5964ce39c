"""Options and results of a rehearsal."""

from pathlib import Path
from typing import Literal

import msgspec

from gpuprov.core.errors import Code, Outcome, choose_code, find_worst
from gpuprov.simulate.description import Description, Kind
from gpuprov.simulate.waivers import Judged
from gpuprov.verify.evaluate import Result

ACTS = ("bring up", "apply", "verify", "reboot", "verify again", "second apply")
# waiting: correct except for a reboot that the spec does not permit.
Verdict = Literal["ok", "waiting", "differs", "failed", "unreachable", "not done"]
# Outcomes of acts after which there is no other.
OUTCOMES: dict[Verdict, Outcome] = {"failed": "failed", "unreachable": "unreachable"}
# Seconds that a second apply may take: it reads the hosts, finds nothing to do and does not start Ansible.
FAST = 60.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a rehearsal. kind, distribution: "" leaves them to the inventory's `simulated_host`. forks: hosts at a
    time."""

    kind: Kind | Literal[""] = ""
    distribution: str = ""
    all_hosts: bool = False
    keep: bool = False
    forks: int = 4
    verbose: bool = False
    log_dir: Path | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One act on one simulated host. `told` is its outcome in words, `details` what went wrong, line by line."""

    name: str
    verdict: Verdict
    seconds: float = 0.0
    told: str = ""
    details: tuple[str, ...] = ()


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that production would see from the apply. packages, services: `name: before -> after`. clients: processes
    that would be stopped."""

    packages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    reboot: str = ""
    clients: tuple[str, ...] = ()


class Rehearsal(msgspec.Struct, kw_only=True):
    """One simulated host, and the real hosts it stands for. left_out: of their spec, with reasons. problem: why there
    was no rehearsal. login: with --keep."""

    name: str
    hosts: tuple[str, ...]
    description: Description | None = None
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    problem: str = ""
    fix: str = ""
    steps: list[Step] = []
    seen: Seen | None = None
    judged: Judged | None = None
    results: list[Result] = []
    login: str = ""

    def step(self, name: str) -> Step | None:
        """Return the act of this name, if it was reached."""
        return next((step for step in self.steps if step.name == name), None)

    @property
    def going(self) -> bool:
        """True if the next act can be done."""
        return bool(self.steps) and self.steps[-1].verdict not in ("failed", "unreachable", "not done")

    @property
    def outcome(self) -> Outcome:
        """Outcome: whether it could be simulated, apply succeeded, the host came up, and what was proved."""
        if self.problem:
            return "unusable"
        done = {step.name for step in self.steps if step.verdict in ("ok", "waiting")}
        green = done == set(ACTS) and self.judged is not None and self.judged.green
        return find_worst([OUTCOMES.get(step.verdict, "ok") for step in self.steps] + ["ok" if green else "differs"])

    @property
    def exit_code(self) -> Code:
        """Exit code of this rehearsal alone."""
        return choose_code([self.outcome])


class Rehearsed(msgspec.Struct, kw_only=True):
    """A whole run. logs: Ansible's output. leftovers: hosts that could not be removed."""

    run: str
    rehearsals: list[Rehearsal]
    interrupted: bool = False
    kept: bool = False
    leftovers: tuple[str, ...] = ()
    logs: list[str] = []
    seconds: float = 0.0

    @property
    def descriptions(self) -> list[Description]:
        """The simulated hosts that existed."""
        return [rehearsal.description for rehearsal in self.rehearsals if rehearsal.description is not None]

    @property
    def outcome(self) -> Outcome:
        """Outcome of the whole run."""
        return "interrupted" if self.interrupted else find_worst((host.outcome for host in self.rehearsals), "ok")

    @property
    def exit_code(self) -> Code:
        """Exit code of rehearse."""
        return choose_code([self.outcome])
