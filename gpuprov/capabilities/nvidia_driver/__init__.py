"""`nvidia_driver`: one version, resolved first, installed as a set, built for every kernel, held and verified."""

from collections.abc import Iterable

from gpuprov.capabilities.base import DRIVER_PACKAGES, LOADED, Capability
from gpuprov.capabilities.nvidia_driver import (
    built_once,
    enrolment,
    gsp,
    kernels,
    loading,
    machine,
    now,
    origin,
    precompiled,
    preflight,
    runfile,
    signed,
)
from gpuprov.capabilities.nvidia_driver.desired import DESIRED
from gpuprov.capabilities.nvidia_driver.fragment import BASE_PROBES, NvidiaDriver, package_names, versions
from gpuprov.capabilities.nvidia_driver.tasks import TASKS
from gpuprov.catalog import cuda, drivers, gpus
from gpuprov.catalog.drivers import data
from gpuprov.catalog.drivers.sets import BUILDS, MODULE_NAMES, SOURCES, find_packages
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.driver.runfile import RUNFILE
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.kernel import modules
from gpuprov.facts.probes.software.packages import PACKAGES
from gpuprov.rules import resolve
from gpuprov.spec import repository, signing
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.spec.problem import Problem, report_under

HERE = "nvidia_driver"
problem = report_under(HERE)
# The branch by which a flavour is judged if the spec names none: 580 has both flavours and supports every GPU of the
# catalogue.
NEUTRAL_BRANCH = "580"


def rules(host: HostSpec, driver: NvidiaDriver) -> Iterable[Problem]:
    branch = "" if driver.version == "any" else drivers.derive_branch(driver.version)
    known = [b.branch for b in drivers.list_branches()]
    if branch and branch not in known:
        near = min(known, key=lambda b: abs(int(b) - int(branch)))
        message = f'is "{driver.version}": there is no branch {branch}'
        yield problem("version", message, f'the nearest is "{near}"; all: gpuprov catalog drivers')
    elif whole := cuda.find_whole(driver.version):
        message = f'is "{driver.version}", and the release is {" or ".join(whole)}'
        yield problem("version", message, f'version: "{whole[-1]}", or the branch: "{branch}"')
    elif branch and (life := drivers.end_of_life(branch)).ended:
        fix = "gpuprov catalog drivers lists the branches that are supported"
        yield Problem(path=(HERE, "version"), message=life.text, fix=fix, severity="warning")
    gpu = gpus.find_gpu(host.gpu.model) if host.gpu else None
    if gpu is None and branch in known and (lacking := without_flavour(branch, driver.kernel_modules)):
        yield problem("kernel_modules", f": {lacking}", "gpuprov catalog drivers")
    if gpu and (not branch or branch in known):
        chosen_branch = branch or NEUTRAL_BRANCH
        modules_wanted = driver.kernel_modules
        flavour = drivers.choose_kernel_modules(gpu, chosen_branch) if modules_wanted == "auto" else modules_wanted
        refusal = drivers.explain_refusal(gpu, chosen_branch, flavour)
        if refusal:
            field = "version" if modules_wanted == "auto" or "is not" in refusal.partition(";")[0] else "kernel_modules"
            yield problem((field,), f": {refusal}", f"gpuprov catalog gpus {gpu.key}")
    yield from cuda_problems(driver, gpu)
    yield from source_problems(driver)
    yield from signing.find_problems(driver.signing, (HERE, "signing"))
    yield from precompiled.problems(driver)
    yield from kernels.problems(host, driver)
    yield from runfile.problems(host, driver)
    yield from coherent_problems(host, driver, gpu, branch)
    yield from gsp.problems(driver, gpu, branch)
    for name in driver.module_parameters:
        if not name.startswith("NVreg_"):
            message = f'nvidia_driver.module_parameters: the nvidia module has no parameter "{name}"'
            fix = f'its parameters begin with NVreg_ ("NVreg_{name}"); for another module: kernel.module_options'
            if name.casefold().startswith("nvreg_"):
                fix = "capital letters count: write it as `modinfo -p nvidia` prints it, such as NVreg_EnableMSI"
            yield Problem(path=(HERE, "module_parameters", name), message=message, fix=fix)


def coherent_problems(host: HostSpec, driver: NvidiaDriver, gpu: gpus.Gpu | None, branch: str) -> Iterable[Problem]:
    """Yield problems of how a superchip's GPU memory is given to the kernel: an unknown mode, and Kubernetes without
    the parameter."""
    known = data.get_coherent_memory()
    given = driver.module_parameters.get(known.key)
    since = known.min_branch
    if given is not None and str(given) not in known.choices:
        message = f'nvidia_driver.module_parameters.{known.key} is "{given}"'
        fix = f"allowed: {' or '.join(known.choices)}"
        yield Problem(path=(HERE, "module_parameters", known.key), message=message, fix=fix)
    elif given is not None and branch and int(branch) < int(since):
        message = (
            f"nvidia_driver.module_parameters.{known.key} is known from branch {since} on, and the branch is {branch}"
        )
        yield Problem(path=(HERE, "module_parameters", known.key), message=message, fix=f'version: "{since}" or newer')
    coherent = gpu is not None and gpu.superchip
    if given is None and gpu and coherent and "kubernetes" in host.capabilities and int(branch or since) >= int(since):
        message = (
            f"{gpu.key} under Kubernetes: without {known.key}=driver its memory is a NUMA node, which pods "
            "without a GPU use too"
        )
        fix = f"nvidia_driver: {{module_parameters: {{{known.key}: driver}}}}"
        yield Problem(path=(HERE, "module_parameters"), message=message, fix=fix, severity="warning")


def cuda_problems(driver: NvidiaDriver, gpu: gpus.Gpu | None) -> Iterable[Problem]:
    """Yield a problem for a CUDA version that does not exist, or that the named driver, or any driver of the GPU,
    cannot run."""
    if not driver.cuda:
        return
    known = list(cuda.list_floors())
    if driver.cuda not in known:
        numbers = [int(part) for part in driver.cuda.split(".")]
        alike = [version for version in known if version.count(".") == driver.cuda.count(".")]
        near = min(alike or known, key=lambda v: [abs(int(a) - b) for a, b in zip(v.split("."), numbers, strict=False)])
        message = f'is "{driver.cuda}": there is no such CUDA'
        yield problem("cuda", message, f'the nearest is "{near}"; all: gpuprov catalog cuda')
        return
    last = gpu.last_branch.branch if gpu and gpu.last_branch else ""
    version = last if driver.version == "any" else driver.version
    support = cuda.check_support(version, driver.cuda) if version else None
    if support is None or (support.runs, support.full) == (True, True):
        return
    needed = cuda.find_floor(driver.cuda) if support.runs is False else support.full_driver
    branch = drivers.derive_branch(needed)
    if gpu and last and int(branch) > int(last):
        fix = f"an older CUDA: branch {last} is the last for {gpu.key} (gpuprov catalog cuda)"
    elif support.runs is False:
        fix = f'version: "{branch}" or a newer branch, or an older CUDA (gpuprov catalog cuda)'
    else:
        fix = f'version: "{branch}" or a newer branch, or leave version out'
    if support.runs is False:
        stands = (
            f"nvidia_driver.version is {driver.version}" if driver.version == version else f"{last} is the GPU's last"
        )
        message = f"nvidia_driver.cuda {driver.cuda} runs from driver {needed} on, and {stands}"
        yield Problem(path=(HERE, "cuda"), message=message, fix=fix)
    elif support.full is False:
        message = (
            f"nvidia_driver.cuda {driver.cuda} runs with driver {version} by minor-version compatibility: "
            f"all features of CUDA {driver.cuda} from driver {needed} on"
        )
        yield Problem(path=(HERE, "cuda"), message=message, fix=fix, severity="warning")


def source_problems(driver: NvidiaDriver) -> Iterable[Problem]:
    """Yield problems of a mirror without its repository, a repository that the source does not use, and the repository
    itself."""
    given = driver.repository.url
    if driver.source == "mirror" and not given:
        fix = "repository: {url: https://..., key_file: ...}, or source: nvidia"
        yield problem("source", "is mirror, and there is no repository", fix)
    elif driver.source in ("auto", "distribution") and given:
        fix = "source: mirror (the site's copy of NVIDIA's repository), or leave the repository out"
        yield problem("repository", f"is not used by source {driver.source}", fix)
    yield from repository.find_problems(driver.repository, (HERE, "repository"))


def without_flavour(branch: str, modules_wanted: str) -> str:
    """Return why no GPU can run with these modules on the branch; empty if some can."""
    facts = data.read_drivers_file().modules
    first, last = int(facts.open_first_branch.branch), int(facts.open_only_since.branch)
    if modules_wanted == "open" and int(branch) < first:
        return f"branch {branch} has no open kernel modules: {first} is the first"
    if modules_wanted == "proprietary" and int(branch) >= last:
        return f"branch {branch} has no proprietary kernel modules: open only since {last}"
    return ""


def contribute(_host: HostSpec, driver: NvidiaDriver) -> Kernel | None:
    """Return the parameters under every name that the module has on some distribution; a name that a host does not have
    is without effect."""
    if not driver.module_parameters:
        return None
    return Kernel(module_options={name: dict(driver.module_parameters) for name in MODULE_NAMES})


def export(facts: Facts) -> Fragment | None:
    """Return the driver whose kernel modules are installed, of the source whose complete set is installed. A mirror of
    NVIDIA's repository cannot be distinguished from it."""
    if driver := runfile.exported(facts):
        return gsp.exported(driver)
    release, installed = facts.get(system.OS_RELEASE), versions(facts)
    kinds = [(source, build) for source in ("auto", *SOURCES[:2]) for build in BUILDS]
    known = [(kind, find_packages(release.id, release.version, *kind)) for kind in kinds]
    candidates = [
        (kind, names, kernel)
        for kind, names in known
        if names
        for kernel in resolve.kernel_package(names.sets, installed).items()
    ]
    if not any(names for _, names in known):
        package_names(NvidiaDriver(), facts)  # says why
    whole = [
        candidate for candidate in candidates if resolve.installed_set(candidate[1].sets[candidate[2][0]], installed)
    ]
    for (source, build), names, (flavour, kernel) in (whole or candidates)[:1]:
        options = facts.get(modules.MODPROBE).options.get(modules.underscored(names.modules[flavour]), {})
        block = NvidiaDriver(
            version=resolve.upstream(installed[kernel]),
            kernel_modules="open" if flavour == "open" else "proprietary",
            source="nvidia" if source == "nvidia" else "auto",
            build="precompiled" if build == "precompiled" else "dkms",
            module_parameters={k: v for k, v in options.items() if k.startswith("NVreg_")},
            hold=facts.get(PACKAGES)[kernel].held,
        )
        return gsp.exported(block)
    return None


CHECKS = (
    *(
        *now.CHECKS,
        *signed.CHECKS,
        *enrolment.CHECKS,
        *built_once.CHECKS,
        *origin.CHECKS,
        *precompiled.CHECKS,
        *runfile.CHECKS,
        *kernels.CHECKS,
        *loading.CHECKS,
    ),
    *(
        *preflight.CHECKS,
        *signed.PREFLIGHT,
        *built_once.PREFLIGHT,
        *origin.PREFLIGHT,
        *machine.CHECKS,
        *kernels.PREFLIGHT,
    ),
)
CAPABILITY = Capability(
    name=HERE,
    summary="the NVIDIA driver: one version for kernel modules and user space, built for every kernel, held as a set",
    fragment=NvidiaDriver,
    checks=tuple(map(runfile.either, CHECKS)),
    rules=rules,
    contribute=contribute,
    fleet_rules=built_once.fleet_rules,
    export=export,
    export_probes=(*BASE_PROBES, modules.MODPROBE, RUNFILE),
    tasks=TASKS,
    desired=DESIRED,
    packages=True,
    room=preflight.ROOM,
    needs_gpu=True,
    presupposes={
        **dict.fromkeys(("flavour", "source", "held", "user_space"), DRIVER_PACKAGES),
        "modules_built": (*DRIVER_PACKAGES, "nvidia_driver.headers"),
        "next_kernel": (
            "nvidia_driver.modules_built",
            "nvidia_driver.precompiled",
            *DRIVER_PACKAGES,
            "nvidia_driver.headers",
        ),
        **dict.fromkeys(("signed", "initramfs"), ("nvidia_driver.modules_built",)),
        "loaded": ("host.gpu", "nouveau.running", "nvidia_driver.modules_built", *DRIVER_PACKAGES),
        "module_parameters": LOADED,
        "cuda": (*DRIVER_PACKAGES, *LOADED),
    },
)
