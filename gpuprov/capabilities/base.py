"""The parts of a capability: a typed fragment, rules, probes and checks."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import Any, Generic, Literal, TypeVar

import msgspec

from gpuprov.capabilities.tasks import Stages
from gpuprov.facts.probes.base import Facts, Probe
from gpuprov.facts.probes.gpus.fabric import NvlinkError
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.hardware import Firmware
from gpuprov.host_code.json_members import Json
from gpuprov.host_code.unit_files import Loaded
from gpuprov.resources import Packages, Resource, packages_of
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.spec.overrides import Room
from gpuprov.spec.problem import Problem

F = TypeVar("F", bound=Fragment)
# skip: in the spec, but this host cannot show it, so that it is not proven. n/a: the spec asks for nothing here.
Status = Literal["pass", "fail", "skip", "error", "n/a"]
# preflight: must hold before anything is changed. now: holds at present. next-boot: will still hold after a reboot.
Moment = Literal["preflight", "now", "next-boot"]

LOADED = ("nvidia_driver.loaded",)
# Checks that others presuppose.
DRIVER_PACKAGES = ("nvidia_driver.packages", "nvidia_driver.runfile")
_SURROUNDINGS = (system.OS_RELEASE.evidence, system.CONTAINER.evidence, system.PLATFORM.evidence)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change that apply would make on a host, as `plan` prints it."""

    kind: Literal["package", "file", "service", "module", "initramfs", "client", "setting", "hold", "mig"]
    name: str
    before: str = ""
    after: str = ""
    diff: str = ""


class Counter(msgspec.Struct, frozen=True, kw_only=True):
    """A device's counter, for monitoring; port 0: of the device itself."""

    device: str
    port: int
    name: str
    value: int


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check function. `changes` and `reboot` describe what apply would do about a failure.

    `version`: what the host has after apply, given by a capability's preflight before any change; `installed`: what it
    has now. `action`: what makes an unhealthy host fit for work again. `devices`: PCI addresses of what that is about;
    empty: not known, or the whole host. `counters`: for monitoring. `firmware`, each `machine` once, and
    `nvlink_errors`: compared with other hosts.
    """

    status: Status
    expected: str = ""
    found: str = ""
    fix: str = ""
    evidence: str = ""
    changes: tuple[Change, ...] = ()
    reboot: str = ""
    version: str = ""
    installed: str = ""
    action: str = ""
    counters: tuple[Counter, ...] = ()
    firmware: tuple[Firmware, ...] = ()
    machine: str = ""
    devices: tuple[str, ...] = ()
    nvlink_errors: tuple[NvlinkError, ...] = ()


def ok(actual: object, expected: object = "", *, evidence: str = "", action: str = "") -> Outcome:
    """Return the outcome of a host that matches its spec."""
    return Outcome(status="pass", found=str(actual), expected=str(expected or actual), evidence=evidence, action=action)


def fail(
    expected: object,
    actual: object,
    fix: str,
    *,
    changes: Iterable[Change] = (),
    reboot: str = "",
    evidence: str = "",
    action: str = "",
) -> Outcome:
    """Return the outcome of a host that differs from its spec. `reboot` is the reason, if only a reboot can fix it."""
    return Outcome(
        status="fail",
        expected=str(expected),
        found=str(actual),
        fix=fix,
        changes=tuple(changes),
        reboot=reboot,
        evidence=evidence,
        action=action,
    )


def skip(reason: str, fix: str = "") -> Outcome:
    """Return the outcome of a check that cannot be made on this host; the reason is printed, and nothing is proven."""
    return Outcome(status="skip", found=reason, fix=fix)


def not_asked(why: str = "not in the spec") -> Outcome:
    """Return the outcome if the spec asks for nothing here, or the hardware has no such thing; it counts nowhere."""
    return Outcome(status="n/a", found=why)


@dataclass(frozen=True)
class Context(Generic[F]):
    """Everything a check may use: the host's spec, the capability's fragment, the facts. Never the host itself. `run`:
    the capabilities that are applied in the current run; None: the whole spec is to be applied."""

    host: HostSpec
    fragment: F
    facts: Facts
    run: frozenset[str] | None = None

    def applies(self, name: str) -> bool:
        """Return whether a capability is applied in this run."""
        return name in (self.host.capabilities if self.run is None else self.run)


@dataclass(frozen=True)
class Check:
    """A check of a host. Its docstring (in `description`) is printed by `explain`."""

    id: str
    fields: tuple[str, ...]
    probes: tuple[Probe[Any], ...]
    run: Callable[[Context[Any]], Outcome]
    moment: Moment = "now"
    description: str = ""
    evidence: str = ""
    # While it fails, apply does not touch the host, as with every preflight check; but it also runs at its own moment.
    gate: bool = False

    @property
    def capability(self) -> str:
        return intern(self.id.partition(".")[0])

    @property
    def stops(self) -> bool:
        """Return whether apply leaves a host alone while this check fails."""
        return self.gate or self.moment == "preflight"


def check(
    identifier: str,
    *probes: Probe[Any],
    fields: tuple[str, ...] = (),
    moment: Moment = "now",
    evidence: str = "",
    gate: bool = False,
) -> Callable[[Callable[[Context[Any]], Outcome]], Check]:
    """Turn a function into a Check: its id, the probes it reads, the fields it proves. `evidence`: the command that
    shows a person the same; else the probes' own commands are listed, but for those that identify a host."""
    shown = dict.fromkeys(probe.evidence for probe in probes if probe.evidence)
    commands = [command for command in shown if command not in _SURROUNDINGS] or [*shown]

    def made(function: Callable[[Context[Any]], Outcome]) -> Check:
        return Check(
            identifier,
            fields,
            probes,
            function,
            moment,
            " ".join((function.__doc__ or "").split()),
            evidence or "; ".join(commands),
            gate,
        )

    return made


@dataclass(frozen=True)
class Desired(Generic[F]):
    """The desired state of a capability's role on a host, computed with all other decisions: `make` turns the fragment
    and the facts of `probes` into plain values, which the tasks of the role (`Capability.tasks`) get. It may raise
    ProbeFailed. `packages`: the transactions among the values. `tasks` among them: by key of a task its arguments; a
    task without an entry is not needed.

    `later` among the values: decisions that must wait until another role has added a package source: `told`, the
    message in check mode, and `problem`, the refusal if it was added in vain. The role then runs the preflight again:
    `gpuprov_judge`, `sources`.
    """

    probes: tuple[Probe[Any], ...]
    make: Callable[[Context[F]], Mapping[str, object]]
    packages: Callable[[Mapping[str, Any]], Iterable[Packages]] = lambda values: (packages_of(values),)


def contributes_nothing(_host: HostSpec, _fragment: Any) -> Kernel | None:
    """Contribute nothing to the kernel, for a capability without needs there."""
    return None


@dataclass(frozen=True)
class Resources(Generic[F]):
    """The desired state of a capability's role on a host, each resource once: `desired`. It may raise ProbeFailed.

    Checks are generated from it: `NAME.files` compares all files by content; if it has `units`, `NAME.enabled` compares
    what starts at a boot, and `NAME.active` what runs. `paths`: every path that it may write on a host with this spec,
    `lines`: every foreign file in which it may set keys, by the spec where that decides, `units`: every unit that it
    may set, `reads`: what those that run may have read, by unit, or as NAME@*.service by template; `states`: systemd's
    state of other units, whose names depend on the host, by a probe of its own. `coming`: the desired resources once
    the packages of this run are installed, by the probes of the role; None: the same. `files_check`: the name of the
    check of its files. `proves`: by such a check, the fields of the spec that it proves.
    """

    desired: Callable[[Context[F]], Iterable[Resource]]
    paths: Callable[[HostSpec, F], Iterable[str]]
    probes: tuple[Probe[Any], ...] = ()
    lines: tuple[str, ...] | Callable[[HostSpec, F], Iterable[str]] = ()
    units: Callable[[HostSpec, F], Iterable[str]] | None = None
    reads: Callable[[HostSpec, F], Mapping[str, Iterable[str]]] | None = None
    coming: Callable[[Context[F]], Iterable[Resource]] | None = None
    states: Callable[[Context[F]], Mapping[str, Loaded]] | None = None
    files_check: str = "files"
    proves: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def _no_rules(*_given: object, **_more: object) -> tuple[()]:
    return ()


@dataclass(frozen=True)
class Capability:
    """A feature that the spec can request for a GPU host. `name` is its spec key, module, role, scenario and doc page.

    `rules` judge the fragment offline (without any facts of the host). `contribute` returns its needs of the kernel.
    `fleet_rules` judge all hosts together: (hosts, names of unmanaged ones, whole=whether there are no others) -> pairs
    of a host's name and a problem. `export` reads a fragment off a host's facts (None: the host does not have it); it
    needs `export_probes`; `doubts` lists what on the host looks like a defect, which export reports beside the spec.
    `unproved` excuses fields that no check proves, each with its reason. `follows`: capabilities after whose change it
    must be applied, even if its own part of the spec did not change.

    Of its role: `tasks` by stage; `tables` are the tables it decides by, the same for every host, each by its name in
    `gpuprov_catalog`; `desired` is its desired state on a host, and `resources` the part of it that is a state.
    `carried`: modules that it copies to hosts as files, by their Python names. `packages`: it installs some. `room`:
    free space that it needs, unless a site says otherwise.
    `presupposes`: by own check (`held`), others of the same host without which it cannot pass (`dcgm.version`). A
    failure follows from another if it could not be otherwise while that other failure lasts: without a loaded driver no
    GPU is in MIG mode. If the common cause is only likely, it stays a finding of its own. `at_boot`: by own check of
    now, the check of the next boot which proves that a unit then sets up what fails now. `taken_away`: the block that
    removes what it set up, for a host that goes back to where it had none; None: that stays. `stays`: by path, what
    --prune leaves, and why. `until_boot`: what of it nevertheless stays until the next boot, for a person. `pruned`: if
    --prune removes it, the values that the role gets beside its files, units and holds (roles/host/tasks/prune.yml); it
    may raise ProbeFailed. `sets_up`: it sets up something that could stay. `prunes`: a run that applies it also takes
    away what the spec no longer has, as --prune does. `ends_with_reset`: a reset takes its state from the GPUs, and its
    units bring it back. `serves_jobs`: programs of users depend on its units while they run. `from_site`: some of what
    it needs comes from no package source, so that no bundle can hold it. `driverless`: it makes sense on a host without
    a GPU's driver. `needs_gpu`: a simulated host of it has a GPU, although the spec names none. `shown_by`: the tests
    that show it, if no host of a Molecule scenario has it. `not_rehearsed`: why rehearsals leave it out.
    """

    name: str
    summary: str
    fragment: type[Fragment]
    checks: tuple[Check, ...]
    rules: Callable[[HostSpec, Any], Iterable[Problem]] = _no_rules
    fleet_rules: Callable[..., Iterable[tuple[str, Problem]]] = _no_rules
    contribute: Callable[[HostSpec, Any], Kernel | None] = contributes_nothing
    export: Callable[[Facts], Fragment | None] = lambda _facts: None
    export_probes: tuple[Probe[Any], ...] = ()
    doubts: Callable[[Facts], Iterable[str]] = lambda _facts: ()
    unproved: Mapping[str, str] = field(default_factory=dict)
    follows: tuple[str, ...] = ()
    tables: Callable[[], Mapping[str, object]] = dict
    carried: tuple[str, ...] = ()
    packages: bool = False
    room: Room | None = None
    presupposes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    at_boot: Mapping[str, str] = field(default_factory=dict)
    taken_away: Mapping[str, Json] | None = None
    stays: Mapping[str, str] = field(default_factory=dict)
    until_boot: str = ""
    pruned: Callable[[HostSpec, Facts], Mapping[str, Any]] | None = None
    sets_up: bool = True
    ends_with_reset: bool = False
    serves_jobs: bool = False
    from_site: bool = False
    prunes: bool = False
    driverless: bool = False
    needs_gpu: bool = False
    shown_by: str = ""
    not_rehearsed: str = ""
    tasks: Stages = field(default_factory=dict)
    desired: Desired[Any] | None = None
    resources: Resources[Any] | None = None
