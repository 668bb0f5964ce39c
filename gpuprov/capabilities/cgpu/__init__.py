"""`cgpu`: the settings of Alibaba's cGPU, which shares GPUs between containers, where its module is installed."""

from collections import Counter
from collections.abc import Iterable

from gpuprov.capabilities.at_boot import carried
from gpuprov.capabilities.base import Capability
from gpuprov.capabilities.cgpu.checks import CHECKS, asked_driver
from gpuprov.capabilities.cgpu.desired import DESIRED, MODULES, RESOURCES
from gpuprov.capabilities.cgpu.fragment import Cgpu
from gpuprov.capabilities.cgpu.tasks import TASKS
from gpuprov.catalog import cgpu as catalogue
from gpuprov.catalog.drivers import end_of_life
from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.gpus.cgpu import CGPU
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.spec.problem import Path, Problem, report_under

HERE = "cgpu"
problem = report_under(HERE)
NODES = tuple(node.key for node in catalogue.read_cgpu_file().nodes)


def rules(host: HostSpec, block: Cgpu) -> Iterable[Problem]:
    yield from _check_values(host, block)
    yield from _check_neighbours(host)
    yield from _check_driver(asked_driver(host.capabilities.get("nvidia_driver")))


def _check_driver(asked: str) -> Iterable[Problem]:
    """Yield that the newest cGPU does not work with the driver that is asked for, or with no supported one."""
    if not asked:
        return
    known = catalogue.find_newest()
    newer = f"ask Alibaba for a cGPU newer than {known.last}"
    why = catalogue.explain_unfit(known.last, asked)
    past = "" if any(not end_of_life(branch).ended for branch in known.branches) else ", all out of support"
    branches = f"{', '.join(known.branches)}{past}"
    if why:
        fix = f"a driver of {branches}; or {newer}"
        yield problem("", f": nvidia_driver.version is {asked}, and {why}", fix, warning=True)
    elif past:
        message = f": cGPU {known.last}, the newest known, works with drivers of {branches}"
        yield problem("", message, f"stay on {asked}, or {newer}", warning=True)


def _check_values(host: HostSpec, block: Cgpu) -> Iterable[Problem]:
    for key in ("max_inst", "prio_ratio"):
        if value := getattr(block, key):
            yield from _check_bounds((HERE, key), key, value, ", or 0, which leaves what the module has")
    count = host.gpu.count if host.gpu else None
    for index, values in block.gpus.items():
        place: Path = (HERE, "gpus", index)
        if count is not None and int(index) >= count:
            message = f'cgpu.gpus names GPU "{index}", and the host has {count}'
            yield Problem(path=place, message=message, fix=f"allowed: 0 to {count - 1}")
        if not values:
            message = f'cgpu.gpus: "{index}" says nothing'
            yield Problem(path=place, message=message, fix=f"allowed: {', '.join(NODES)}")
        for key, value in values.items():
            yield from _check_bounds((*place, key), key, value, "")


def _check_bounds(place: Path, key: str, value: int, more: str) -> Iterable[Problem]:
    least, most = catalogue.get_bounds(key)
    if not least <= value <= most:
        name = ".".join(str(part) for part in place)
        yield Problem(
            path=place, message=f"{name} is {value}", fix=f"allowed: a whole number from {least} to {most}{more}"
        )


def _check_neighbours(host: HostSpec) -> Iterable[Problem]:
    """Yield conflicts with other ways of sharing a GPU, of which only one is possible."""
    # https://www.alibabacloud.com/help/doc-detail/191140.html
    shared = {
        "mig": "MIG cuts the GPUs up" if getattr(host.capabilities.get("mig"), "mode", "") == "enabled" else "",
        "mps": "MPS shares the GPUs"
        if getattr(host.capabilities.get("mps"), "scope", "host" if "mps" in host.capabilities else "none") != "none"
        else "",
    }
    for name, why in shared.items():
        if why:
            yield problem("", f"contradicts {name}: {why}, too", f"cgpu: false, or {name}: false")


def export(facts: Facts) -> Fragment | None:
    """Return the settings that most GPUs have, and the different ones of single GPUs."""
    state = facts.get(CGPU)
    by_gpu = {
        gpu.index: {key: int(gpu.settings[key]) for key in NODES if is_whole(gpu.settings.get(key, ""))}
        for gpu in state.gpus
    }
    inside = {
        index: {
            key: value
            for key, value in values.items()
            if catalogue.get_bounds(key)[0] <= value <= catalogue.get_bounds(key)[1]
        }
        for index, values in by_gpu.items()
    }
    if not state.version or not any("policy" in values for values in inside.values()):
        return None
    usual: dict[str, int] = {}
    for key in NODES:
        counted = Counter(values[key] for values in inside.values() if key in values)
        if counted:
            usual[key] = counted.most_common(1)[0][0]
    single = {
        str(index): others
        for index, values in inside.items()
        if (others := {key: value for key, value in values.items() if usual.get(key) != value})
    }
    return Cgpu(**usual, gpus=single)  # type: ignore[arg-type]


CAPABILITY = Capability(
    name=HERE,
    summary="Alibaba's cGPU where it is installed: policy, instances and priority of each GPU, set again at each boot",
    fragment=Cgpu,
    checks=CHECKS,
    rules=rules,
    export=export,
    export_probes=(CGPU,),
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    serves_jobs=True,
    carried=carried(MODULES),
    needs_gpu=True,
    from_site=True,
)
