"""Types of an acceptance: its options, the facts of its hosts, and its findings."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from gpuprov.capabilities.acceptance.fragment import Acceptance
from gpuprov.capabilities.acceptance.judge import Verdict
from gpuprov.core import errors
from gpuprov.core.errors import Code, UnreachableError, choose_code, find_worst
from gpuprov.facts.probes.acceptance import Measurement, Network, Tools
from gpuprov.facts.probes.rdma import RdmaDevice
from gpuprov.spec.model import HostSpec, RawHost

KINDS = ("rdma", "nccl", "nvbandwidth", "dcgm", "stream")
# Largest number of hosts of which every pair is tested: 28 pairs, in 7 rounds. Above it, a ring: each host with its
# two neighbours.
GROUP = 8

Pairing = Literal["auto", "all", "ring"]
Status = Literal["pass", "fail", "skip", "error", "unreachable"]
# The worst first.
ORDER: tuple[Status, ...] = ("unreachable", "fail", "error", "skip", "pass")
# Outcomes of findings; a test that was skipped proves nothing, and takes nothing from what others prove.
OUTCOMES: dict[Status, errors.Outcome] = {
    "unreachable": "unreachable",
    "fail": "differs",
    "error": "differs",
    "skip": "nothing asked",
    "pass": "ok",
}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The command's options."""

    only: tuple[str, ...] = KINDS
    pairs: Pairing = "auto"
    # Seconds that a test may take beyond the time it is to measure.
    timeout: float = 60.0
    in_use: bool = False
    # Hosts that are connected to at a time; 0: the user sets no limit.
    forks: int = 0
    # Ids of locks that are taken over.
    break_lock: tuple[str, ...] = ()
    yes: bool = False
    verbose: bool = False
    as_json: bool = False
    junit: Path | None = None
    html: Path | None = None
    svg: Path | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A script to run on a host, and the seconds it may take."""

    host: str
    script: str
    limit: float = 30.0


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a step: its output and exit status; or, in `lost`, why the host could not be reached."""

    text: str = ""
    status: int = 0
    lost: UnreachableError | None = None


# Runs steps of different hosts at a time; one step for each host. Every access of an acceptance to its hosts goes
# through it.
Runner = Callable[[Sequence[Step]], dict[str, Ran]]
Say = Callable[[str], None]


class Host(msgspec.Struct, kw_only=True):
    """A host of the acceptance."""

    raw: RawHost
    spec: HostSpec
    block: Acceptance
    # Its RDMA devices that the spec selects.
    devices: tuple[RdmaDevice, ...] = ()
    tools: Tools = Tools()
    network: Network = Network()
    gpus: tuple[str, ...] = ()
    # A key of the catalogue, or empty.
    model: str = ""
    measurements: list[Measurement] = []
    lost: str = ""

    @property
    def name(self) -> str:
        return self.raw.name


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the report: a judged measurement, or why a host was left out (then `measurement` is None)."""

    host: str
    check: str
    status: Status
    found: str
    expected: str = ""
    fix: str = ""
    evidence: str = ""
    measurement: Measurement | None = None
    verdict: Verdict | None = None

    @property
    def figure(self) -> float | None:
        """Return the measured figure; None if there is none."""
        measured = self.measurement
        return measured.value if measured and measured.unit and not measured.problem else None

    @property
    def unit(self) -> str:
        return self.measurement.unit if self.measurement else ""

    @property
    def peer(self) -> str:
        """Return the other host of a test between two; empty for any other."""
        return self.measurement.peer if self.measurement else ""


class Outcome(msgspec.Struct, kw_only=True):
    """Results of an acceptance, in the order in which they came."""

    run: str
    hosts: tuple[str, ...]
    findings: list[Finding] = []
    # For the reader.
    notes: list[str] = []
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def counted(self) -> dict[Status, int]:
        """Number of findings of each status, the worst first."""
        return {status: sum(finding.status == status for finding in self.findings) for status in ORDER}

    @property
    def outcomes(self) -> dict[str, errors.Outcome]:
        """Outcome of each host, from its findings; without a figure it is not proven."""
        grouped: dict[str, list[errors.Outcome]] = {name: [] for name in self.hosts}
        for finding in self.findings:
            grouped.setdefault(finding.host, []).append(OUTCOMES[finding.status])
        return {name: find_worst(outcomes) for name, outcomes in grouped.items()}

    @property
    def outcome(self) -> errors.Outcome:
        """Outcome of the whole run."""
        return "interrupted" if self.interrupted else find_worst(self.outcomes.values())

    @property
    def exit_code(self) -> Code:
        """Exit code of accept."""
        return choose_code([self.outcome])
