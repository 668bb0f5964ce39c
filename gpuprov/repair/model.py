"""A repair of hosts: its options, what is planned for each host, what was tried, and what came of it."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from gpuprov.core.errors import Code, Outcome, choose_code, find_worst
from gpuprov.core.time_limits import HOST_LIMIT
from gpuprov.fleet.drain import By
from gpuprov.host_page.identify import Gpu as Card
from gpuprov.verify.evaluate import Result

# What is done first. ticket: no software repairs it. refused: in use, and nothing drains it.
Step = Literal["nothing", "reset", "reboot", "ticket", "refused", "not proven", "unreachable"]
# differs: what was found is gone, and the host is not as its spec says. refused: in use, or not drained.
# interrupted: ended between two acts.
State = Literal[
    "fit",
    "planned",
    "repaired",
    "differs",
    "given up",
    "refused",
    "locked",
    "unreachable",
    "not proven",
    "not started",
    "interrupted",
]
OUTCOMES: Mapping[State, Outcome] = {
    "fit": "ok",
    "planned": "differs",
    "repaired": "ok",
    "differs": "differs",
    "given up": "failed",
    "refused": "failed",
    "locked": "locked",
    "unreachable": "unreachable",
    "not proven": "not proven",
    "not started": "differs",
    "interrupted": "interrupted",
}


Scheduler = By | Literal[""]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the command."""

    # Show the plan only.
    check: bool = False
    yes: bool = False
    # Permit one, whatever the specs say.
    reboot: bool = False
    drain: bool = True
    # `max_out`, `max_fail`: numbers of hosts, or shares of the inventory's `total`.
    max_out: str = "1"
    max_fail: str = "0"
    total: int = 0
    # Who schedules the hosts; empty: their specs say.
    by: Scheduler = ""
    command: str = ""
    context: str = ""
    # Seconds between two looks at a scheduler (None: its usual time).
    poll: float | None = None
    # Seconds for jobs to end.
    wait: float | None = None
    run: str = ""
    timeout: float = HOST_LIMIT
    forks: int = 0
    break_lock: tuple[str, ...] = ()


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, by nvidia-smi's index (-1: not shown), PCI address and UUID (empty: not reported)."""

    index: int
    address: str
    uuid: str = ""
    name: str = ""

    @property
    def id(self) -> str:
        """The id for nvidia-smi, which is the same after a boot."""
        return self.uuid or self.address

    def __str__(self) -> str:
        return " ".join(filter(None, (f"GPU {self.index}" if self.index >= 0 else "GPU", self.address, self.uuid)))


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs of a reset."""

    # Those with a finding.
    gpus: tuple[Gpu, ...] = ()
    # Others that NVIDIA resets only with them, and `why`.
    together: tuple[Gpu, ...] = ()
    why: str = ""
    # All GPUs and NVSwitches in one reset, with Fabric Manager stopped.
    whole: bool = False

    @property
    def all(self) -> tuple[Gpu, ...]:
        return (*self.gpus, *self.together)


class HostPlan(msgspec.Struct, kw_only=True):
    """What would be done on a host."""

    host: str
    step: Step
    sentence: str = ""
    # Causes, the most severe first.
    findings: tuple[Result, ...] = ()
    scope: Scope = Scope()
    # Stopped for a reset and started again.
    services: tuple[str, ...] = ()
    # Processes that hold GPUs.
    holders: tuple[str, ...] = ()
    # The scheduler, empty if none.
    drain: Scheduler = ""
    # Whether a reboot may follow.
    reboot: bool = False
    # MIG devices that no block of the spec brings back after a reset.
    loses: tuple[str, ...] = ()
    # Why nothing can be done, or is.
    message: str = ""
    fix: str = ""

    @property
    def checks(self) -> tuple[str, ...]:
        return tuple(finding.check for finding in self.findings)


# A host's fitness in words, by `Fitness.fit`.
AFTER = {"yes": "fit for work", "no": "not fit", "until": "not fit", "not proven": "not proven to be fit"}


class Try(msgspec.Struct, frozen=True, kw_only=True):
    """An act on a host. `at`: UTC, ISO 8601; `problem`: why it was not done, or failed; `after`: the host's fitness
    then."""

    act: Literal["drain", "reset", "reboot", "return"]
    at: str
    seconds: float
    problem: str = ""
    after: str = ""

    @property
    def result(self) -> str:
        return self.problem or (f"then {AFTER.get(self.after, self.after)}" if self.after else "done")


class HostRepair(msgspec.Struct, kw_only=True):
    """The outcome of a host. `left`: findings at the end; `out`: it stays out of its scheduler, and why; `ticket`: the
    files of its ticket, for which `machine`, `cards` and `kernel_log` were read: what it is, by label; its GPUs; judged
    lines."""

    plan: HostPlan
    state: State
    message: str = ""
    fix: str = ""
    tries: tuple[Try, ...] = ()
    left: tuple[Result, ...] = ()
    out: str = ""
    ticket: tuple[str, ...] = ()
    machine: dict[str, str] = {}
    cards: tuple[Card, ...] = ()
    kernel_log: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        return self.plan.host

    @property
    def is_begun(self) -> bool:
        """Return whether an act was begun on the host itself."""
        return any(tried.act in ("reset", "reboot") for tried in self.tries)


class Repaired(msgspec.Struct, kw_only=True):
    """A whole run."""

    run: str
    hosts: Sequence[HostRepair]
    # Why hosts were not started.
    stopped: str = ""
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def outcomes(self) -> dict[str, Outcome]:
        return {host.host: OUTCOMES[host.state] for host in self.hosts}

    @property
    def outcome(self) -> Outcome:
        """Return that of the whole run if it was interrupted, else the worst of its hosts."""
        return "interrupted" if self.interrupted else find_worst(self.outcomes.values())

    @property
    def exit_code(self) -> Code:
        return choose_code([self.outcome])
