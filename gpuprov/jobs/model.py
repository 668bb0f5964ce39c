"""The files of a fleet: the specs of all hosts (a fleet) or of some (a job), and the outcome of one host (a result).

Each is JSON in UTF-8, and begins with its name and version. None holds a secret: values that an inventory stores under
a secret's name are left out, and named, so that a worker can take them from its own inventory or key.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

import msgspec

from gpuprov import __version__
from gpuprov.capabilities.base import Moment
from gpuprov.core.safe_parse import Tree
from gpuprov.facts.probes.gpus.fabric import NvlinkError
from gpuprov.facts.probes.host.hardware import Firmware
from gpuprov.fleet.policy.events import Repair
from gpuprov.spec.described import describe
from gpuprov.verify.evaluate import Result, ResultStatus
from gpuprov.verify.verify import Verdict

FLEET_FORMAT = JOB_FORMAT = RESULT_FORMAT = 1
Act = Literal["verify", "plan", "prepare", "apply"]
# Outcome of the act on a host: verified, planned and prepared are the good outcomes of these acts; the others are
# those of apply.
State = Literal[
    "verified",
    "planned",
    "prepared",
    "unchanged",
    "changed",
    "failed",
    "blocked",
    "locked",
    "unreachable",
    "not-started",
]
TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$"
SpecId = Annotated[str, describe("A key of `specs`")]


class Host(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A host from the inventory. `domains`: its values of `site`, `rack` and the variables named by --domain."""

    name: str
    groups: tuple[str, ...] = ()
    spec: SpecId
    connection: Annotated[Tree, describe("Variables that say how it is reached")] = {}
    secrets: Annotated[tuple[str, ...], describe("Variables that are not in the file: their values are secret")] = ()
    domains: dict[str, str] = {}


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """A resolved inventory. The same inventory gives the same file, except for `made_at`."""

    gpuprov_fleet: Annotated[int, describe("Version of this format")] = FLEET_FORMAT
    gpuprov_version: str = __version__
    made_at: Annotated[str, describe("When the inventory was read, in UTC")] = ""
    digest: Annotated[str, describe("Of all that follows")] = ""
    files: Annotated[
        dict[str, str], describe("Files that specs name, on the machine that works: path and SHA-256")
    ] = {}
    groups: Annotated[dict[str, tuple[str, ...]], describe("Groups with the groups in them")] = {}
    specs: Annotated[dict[str, Tree], describe("The variable gpuprov, merged; each once")]
    hosts: tuple[Host, ...]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of a fleet, with everything a worker needs. It never has two domains, if the fleet was sliced by
    domain."""

    gpuprov_job: Annotated[int, describe("Version of this format")] = JOB_FORMAT
    gpuprov_version: str = __version__
    made_at: Annotated[str, describe("When the inventory was read, in UTC")] = ""
    digest: Annotated[str, describe("Of all that follows")] = ""
    fleet: Annotated[str, describe("Digest of the fleet that it is a slice of")]
    number: Annotated[int, msgspec.Meta(ge=1)]
    of: Annotated[int, describe("How many jobs the fleet was sliced into", ge=1)]
    by: Annotated[str, describe("What it was sliced by: a group or a variable; empty: by number")] = ""
    domain: Annotated[str, describe("The value of it that all of these hosts have")] = ""
    files: dict[str, str] = {}
    specs: dict[str, Tree]
    hosts: tuple[Host, ...]


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A check that did not pass; as a row of `gpuprov verify --json`. `reboot`: why a reboot fixes it."""

    check: str
    status: ResultStatus
    fields: tuple[str, ...] = ()
    expected: str = ""
    found: str = ""
    evidence: str = ""
    fix: str = ""
    moment: Moment = "now"
    reboot: str = ""
    version: str = ""
    follows: str = ""

    @classmethod
    def of(cls, result: Result) -> Row:
        """Convert a result of verify."""
        return cls(**{name: getattr(result, name) for name in cls.__struct_fields__})

    def result(self, host: str = "") -> Result:
        """Convert to a result of verify."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return Result(host=host, capability=self.check.partition(".")[0], **values)


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A check that depends on other hosts: its row as this host alone decides it, and what is compared with them."""

    row: Row
    firmware: tuple[Firmware, ...]
    machine: str = ""


class Boot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Prediction of the host's next boot: whether it will match its spec, and why not, or why that is unknown."""

    verdict: Literal["right", "wrong", "unknown"]
    reasons: tuple[str, ...] = ()


class HostResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one host of a job in one act of a run. `verdict` is empty if nothing was verified.

    `counts`: results by status, with `follow` for failures caused by another. `failures` and `unproven` (skipped) are
    complete. `reboot`: why the host must still be rebooted.
    """

    gpuprov_result: Annotated[int, describe("Version of this format")] = RESULT_FORMAT
    gpuprov_version: str = __version__
    run: str
    job: Annotated[str, describe("Digest of the job")]
    fleet: Annotated[str, describe("Digest of the fleet")]
    host: str
    act: Act
    state: State
    verdict: Verdict | Literal[""] = ""
    counts: dict[str, Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]] = {}
    failures: tuple[Row, ...] = ()
    unproven: tuple[Row, ...] = ()
    compared: Annotated[Compared | None, describe("What gpuprov fleet fold compares with other hosts")] = None
    nvlink_errors: Annotated[tuple[NvlinkError, ...], describe("What it compares with the other hosts of a rack")] = ()
    next_boot: Boot | None = None
    reboot: tuple[str, ...] = ()
    message: str = ""
    fix: str = ""
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    repair: Annotated[
        Repair,
        describe(
            "done: the run has reset or rebooted it to repair it; none left: unfit and left alone, without a repair"
        ),
    ] = ""
    started: Annotated[str, describe("In UTC: 2026-11-23T18:00:00.000Z", pattern=TIME)]
    ended: Annotated[str, describe("In UTC; of two results of a host the one that ended later counts", pattern=TIME)]

    @property
    def green(self) -> bool:
        """True if nothing is left to do for this act: the same run skips such a host."""
        if self.state in ("planned", "prepared"):
            return True
        return self.state in ("verified", "unchanged", "changed") and self.verdict == "matches" and not self.reboot


class Beat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the standard output of `gpuprov fleet work`: a host's outcome, or a sign that the work continues."""

    at: str
    state: str
    done: Annotated[int, msgspec.Meta(ge=0)]
    of: Annotated[int, msgspec.Meta(ge=0)]
    host: str = ""
    verdict: str = ""
    message: str = ""


def digest_of(value: Fleet | Job) -> str:
    """Return the SHA-256 of a file's content, without the version of gpuprov, the date and the digest itself."""
    plain = msgspec.to_builtins(msgspec.structs.replace(value, digest="", gpuprov_version=""))
    plain.pop("made_at", None)
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()


def spec_id(values: Tree) -> str:
    """Return the name of a spec: equal specs have equal names."""
    return hashlib.sha256(msgspec.json.encode(values, order="sorted")).hexdigest()[:16]
