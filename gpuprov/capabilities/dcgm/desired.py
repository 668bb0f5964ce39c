"""Desired state of the role: DCGM's packages, the settings of its units, and its daemons running with them."""

from collections.abc import Iterable, Iterator, Mapping

from gpuprov.capabilities.answers import HEADER, TRY_BY_HAND
from gpuprov.capabilities.base import Context, Desired, Resources
from gpuprov.capabilities.dcgm.decision import PROBES, Decision, decided
from gpuprov.capabilities.dcgm.fragment import BASE_PROBES, Dcgm, choose_builds, find_installed, list_versions
from gpuprov.capabilities.driver import find_target_branch
from gpuprov.catalog import dcgm as catalogue
from gpuprov.host_code.json_members import Json
from gpuprov.resources import Absent, File, Resource, Unit, role_values
from gpuprov.rules.followers import LIBRARY_FILES
from gpuprov.spec.model import HostSpec

ENGINE, EXPORTER = catalogue.drop_in(catalogue.UNIT), catalogue.drop_in(catalogue.EXPORTER_UNIT)
FIX = "journalctl -u {}, and /var/log/nvidia-dcgm and /var/log/dcgm-exporter.log, on the host"
ANSWER = "GPUs? found"
Ctx = Context[Dcgm]


def settings(block: Dcgm) -> dict[str, str]:
    """Return gpuprov's settings of the units, by path: where the host engine listens, and how the exporter is run."""
    files: dict[str, str] = {}
    if block.listen != catalogue.LISTEN:
        start = f"{catalogue.COMMAND} {catalogue.build_arguments(block.listen)}"
        files[ENGINE] = f"{HEADER}[Service]\nExecStart=\nExecStart={start}\n"
    if block.exporter:
        files[EXPORTER] = HEADER + _format_exporter(block)
    return files


def _format_exporter(block: Dcgm) -> str:
    start = f"ExecStart=\nExecStart={catalogue.EXPORTER_PROGRAM} -f {block.exporter_counters}\n"
    return f"""[Unit]
# Its connection ends with the host engine that it was made to.
PartOf={catalogue.UNIT}

[Service]
# One host engine per host: without its address the exporter would start another in itself (NVIDIA/DCGM#108).
Environment=DCGM_EXPORTER_LISTEN=:{block.exporter_port}
Environment=DCGM_REMOTE_HOSTENGINE_INFO={catalogue.derive_address(block.listen)}
{start if block.exporter_counters != catalogue.COUNTERS else ""}\
# The host engine may not listen yet when the exporter starts, which then ends with a failure.
Restart=on-failure
RestartSec=5
"""


def reads(_host: HostSpec, block: Dcgm) -> dict[str, tuple[str, ...]]:
    """Return what the daemons have read at their start, by unit."""
    engine = (catalogue.PROGRAM, *LIBRARY_FILES, _get_folder(ENGINE))
    exporter = (catalogue.EXPORTER_PROGRAM, _get_folder(EXPORTER), block.exporter_counters)
    return {catalogue.UNIT: engine, **({catalogue.EXPORTER_UNIT: exporter} if block.exporter else {})}


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield the units, the host engine first, and their settings. The deprecated unit of line 3, which conflicts with
    it, is off."""
    files = settings(ctx.fragment)
    yield from (File(path, text) for path, text in files.items())
    if ENGINE not in files:
        yield Absent(ENGINE)
    read = reads(ctx.host, ctx.fragment)
    yield from (Unit(name=name, enabled=True, active=True, reads=paths) for name, paths in read.items())
    cuda = choose_builds(ctx.fragment, find_target_branch(ctx.host, ctx.facts), ctx.facts)
    if catalogue.find_line(ctx.fragment.version, list_versions(ctx.facts), cuda) == "3":
        yield Unit(name=catalogue.OLD_UNIT, enabled=False, active=False)


def daemons(ctx: Ctx, run: Iterable[Mapping[str, Json]]) -> Iterator[dict[str, Json]]:
    """Yield these units as the module gpuprov_unit takes them."""
    ask = ["dcgmi", "discovery", "--host", catalogue.derive_address(ctx.fragment.listen), "-l"]
    for unit in run:
        questions = ask if unit["name"] == catalogue.UNIT else []
        more: dict[str, Json] = {"enabled": True, "ask": questions, "answer": ANSWER}
        yield {**unit, **more, "fix": FIX.format(unit["name"])}


def _get_folder(path: str) -> str:
    return path.rpartition("/")[0]


def packages(ctx: Ctx, decision: Decision) -> dict[str, Json]:
    """Return the transaction, and all packages of DCGM that are held or released after it."""
    present = list_versions(ctx.facts)
    moves = any(present.get(name) != version for name, version in decision.packages.items())
    every = [
        name
        for name in dict.fromkeys([*decision.packages, *find_installed(ctx.facts)])
        if name not in decision.replaced
    ]
    return {
        "of": "DCGM",
        "fix": TRY_BY_HAND,
        "install": [f"{name}={version}" for name, version in decision.packages.items()] if moves else [],
        "remove": list(decision.replaced),
        "hold": every if ctx.fragment.hold else [],
        "release": [] if ctx.fragment.hold else every,
    }


def waiting(ctx: Ctx, decision: Decision) -> dict[str, str]:
    """Return what cannot be resolved before nvidia_driver has decided, or has added a package source, as the preflight
    takes it."""
    message = f"DCGM {ctx.fragment.version} is {decision.later}"
    return {"told": message, "problem": f"{decision.problem}. Fix: {decision.fix}"} if decision.later else {}


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the role's values. `install`, `remove`, `hold`, `release`: packages. The values of its resources; its
    units run, in this order. `later`: what the packages wait for; none are named until then."""
    decision, values = decided(ctx), role_values(desired(ctx), "files", "absent", "on", "off", "run")
    del values["on"]  # each is switched on as it is started
    return {
        "later": waiting(ctx, decision),
        **packages(ctx, Decision() if decision.problem else decision),
        "tasks": {"unit": list(daemons(ctx, values.pop("run")))},
        **values,
    }


RESOURCES = Resources(
    desired,
    lambda _host, _block: (ENGINE, EXPORTER),
    BASE_PROBES,
    reads=reads,
    units=lambda _host, _block: (catalogue.UNIT, catalogue.EXPORTER_UNIT, catalogue.OLD_UNIT),
    proves={
        "files": ("listen", "exporter_port", "exporter_counters"),
        **dict.fromkeys(("enabled", "active"), ("exporter",)),
    },
)
DESIRED = Desired(PROBES, make)
