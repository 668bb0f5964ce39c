"""`cuda_toolkit`: exact CUDA toolkits beside each other, with cuDNN and NCCL, and never a driver with them."""

from collections.abc import Iterable

from gpuprov.capabilities.base import Capability
from gpuprov.capabilities.cuda_toolkit import now, preflight
from gpuprov.capabilities.cuda_toolkit.desired import DESIRED, RESOURCES
from gpuprov.capabilities.cuda_toolkit.fragment import CudaToolkit
from gpuprov.capabilities.cuda_toolkit.host import BASE, find_installed, find_lowest_driver, suggest_driver
from gpuprov.capabilities.cuda_toolkit.tasks import TASKS
from gpuprov.capabilities.driver import find_requested_version
from gpuprov.catalog import cuda, gpus
from gpuprov.catalog.cuda import packages as catalogue
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.driver.cuda_toolkit import PACKAGES, TOOLKITS
from gpuprov.rules import resolve
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.spec.problem import Problem, report_under

HERE = "cuda_toolkit"
problem = report_under(HERE)


def rules(host: HostSpec, block: CudaToolkit) -> Iterable[Problem]:
    minors = [catalogue.take_minor(version) for version in block.versions]
    for place, version in enumerate(minors):
        if version in minors[:place]:
            message = (
                f"cuda_toolkit.versions has {version} twice: one toolkit has one release, in {catalogue.LINK}-{version}"
            )
            yield Problem(path=(HERE, "versions", place), message=message, fix="take one out")
    if block.default and minors and block.default not in minors:
        yield problem("default", f'is "{block.default}", which is not in versions', f"one of: {', '.join(minors)}")
    if block.default and not minors:
        yield problem("default", f'is "{block.default}", and versions is empty', f'versions: ["{block.default}"]')
    for library in ("cudnn", "nccl"):
        requested = getattr(block, library)
        known = dict.fromkeys(row.major for row in catalogue.read_toolkits_file().libraries if row.library == library)
        if requested and catalogue.take_major(requested) not in known:
            message = f'is "{requested}", whose packages are not known'
            yield problem((library,), message, f"majors that are known: {', '.join(known)}")
    yield from hardware_problems(host, block)
    yield from driver_problems(host, block)


def hardware_problems(host: HostSpec, block: CudaToolkit) -> Iterable[Problem]:
    """Yield toolkits that do not yet, or no longer, compile for the host's GPU."""
    gpu = gpus.find_gpu(host.gpu.model) if host.gpu else None
    if gpu is None:
        return
    first = catalogue.find_first_toolkit(gpu.compute_capability)
    for place, version in enumerate(block.versions):
        if first and resolve.order(catalogue.take_minor(version)) < resolve.order(first):
            message = (
                f"cuda_toolkit.versions: CUDA {version} compiles no code for {gpu.key} (compute capability "
                f"{gpu.compute_capability}): its libraries, and programs built with it, run there from PTX or not "
                "at all"
            )
            fix = f"a toolkit of {first} or newer"
            yield Problem(path=(HERE, "versions", place), message=message, fix=fix, severity="warning")
    useless = [version for version in block.versions if catalogue.is_dropped(version, gpu.arch)]
    for place, version in enumerate(block.versions):
        if version in useless:
            message = f"cuda_toolkit.versions: CUDA {version} compiles no more for {gpu.key} ({gpu.arch})"
            severity = "error" if len(useless) == len(block.versions) else "warning"
            yield Problem(path=(HERE, "versions", place), message=message, fix="a toolkit of 12.x", severity=severity)  # type: ignore[arg-type]


def driver_problems(host: HostSpec, block: CudaToolkit) -> Iterable[Problem]:
    """Yield toolkits that do not exist, and those that the driver of the spec does not run, or not with certainty."""
    driver, majors = find_lowest_driver(host), {family.family for family in cuda.list_families()}
    known = [floor for floor in cuda.list_floors() if floor.count(".") == 1 and catalogue.take_major(floor) in majors]
    for place, version in enumerate(block.versions):
        path = (HERE, "versions", place)
        if catalogue.take_minor(version) not in known:
            requested = resolve.order(catalogue.take_minor(version))
            near = min(
                known,
                key=lambda candidate: [abs(a - b) for a, b in zip(resolve.order(candidate), requested, strict=True)],
            )
            message = (
                f'cuda_toolkit.versions has "{version}": CUDA {catalogue.take_minor(version)} is not in the catalogue'
            )
            yield Problem(path=path, message=message, fix=f'the nearest is "{near}"; all: gpuprov catalog cuda')
            continue
        support = cuda.check_support(driver, version) if driver else None
        if support is None or support.runs:
            continue
        way = suggest_driver(host, version, support.floor)
        if not find_requested_version(host):
            message = (
                f"cuda_toolkit.versions: drivers that nvidia_driver.cuda allows, from {driver} on, may not "
                f"run CUDA {version}"
            )
            yield Problem(path=path, message=message, fix=f"{way}: {support.reason}", severity="warning")
        elif support.runs is False:
            message = f"cuda_toolkit.versions: driver {driver} does not run CUDA {version}: {support.reason}"
            yield Problem(path=path, message=message, fix=f"{way}, or an older toolkit; gpuprov catalog cuda")
        else:
            message = (
                f"cuda_toolkit.versions: whether a driver of branch {driver} runs CUDA {version} depends on its release"
            )
            yield Problem(path=path, message=message, fix=f"{way} takes {support.floor} or newer", severity="warning")


def export(facts: Facts) -> Fragment | None:
    """Return the installed toolkits in their releases, the default if it is set by hand, and cuDNN and NCCL of the
    default's major."""
    versions = {name: package.version for name, package in facts.get(PACKAGES).items()}
    for part in catalogue.read_toolkits_file().parts:
        stem = part.package.removesuffix("{minor}")
        kits = [
            resolve.upstream(version)
            for name, version in versions.items()
            if catalogue.find_toolkit(name) and name == stem + catalogue.format_dashed(catalogue.find_toolkit(name))
        ]
        if kits:
            break
    else:
        return None
    kits = sorted(kits, key=resolve.order)
    state = facts.get(TOOLKITS)
    default = state.link.removeprefix(f"{catalogue.LINK}-")
    default = default if state.mode == "manual" and default in [catalogue.take_minor(kit) for kit in kits] else ""
    major = catalogue.take_major(default or kits[-1])
    block = CudaToolkit(
        versions=tuple(kits),
        default=default,
        parts=part.part,
        cudnn=_describe_library(versions, "cudnn", major),
        nccl=_describe_library(versions, "nccl", major),
        path=bool(state.profile),
    )
    packages = find_installed(block, facts).values()
    return CudaToolkit(
        **{**{f: getattr(block, f) for f in block.__struct_fields__}, "hold": all(p.held for p in packages)}
    )


def _describe_library(versions: dict[str, str], library: str, cuda_major: str) -> str:
    for row in catalogue.read_toolkits_file().libraries:
        name = row.run[0].replace("{cuda}", cuda_major)
        if (
            row.library == library
            and name in versions
            and catalogue.take_major(catalogue.find_built_for(versions[name])) in ("", cuda_major)
        ):
            return resolve.upstream(versions[name])
    return ""


CAPABILITY = Capability(
    name=HERE,
    summary="exact CUDA toolkits beside each other, with cuDNN and NCCL, checked against the driver, and never a "
    "driver with them",
    fragment=CudaToolkit,
    checks=now.CHECKS + preflight.CHECKS,
    rules=rules,
    export=export,
    export_probes=(*BASE, TOOLKITS),
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    packages=True,
    presupposes={**dict.fromkeys(("runs", "default", "held"), ("cuda_toolkit.packages",))},
)
