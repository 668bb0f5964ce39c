"""`container_toolkit`: GPUs for docker, containerd, cri-o and podman: one toolkit version, runtimes registered, CDI
kept current."""

from collections.abc import Iterable

from gpuprov.capabilities.base import LOADED, Capability
from gpuprov.capabilities.container_toolkit import cdi, cuda, now, preflight
from gpuprov.capabilities.container_toolkit.desired import DESIRED, RESOURCES
from gpuprov.capabilities.container_toolkit.fragment import STARTABLE, ContainerToolkit, installed, modern
from gpuprov.capabilities.container_toolkit.tasks import TASKS
from gpuprov.catalog import container_toolkit as catalogue
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.containers.container_engines import ENGINES
from gpuprov.facts.probes.containers.container_toolkit import CDI, TOOLKIT, USERS
from gpuprov.facts.probes.software import packages
from gpuprov.rules import engines as files
from gpuprov.rules import resolve
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.spec.problem import Problem, report_under

HERE = "container_toolkit"
problem = report_under(HERE)


def rules(_host: HostSpec, block: ContainerToolkit) -> Iterable[Problem]:
    yield from doubled("runtimes", block.runtimes)
    yield from doubled("rootless", block.rootless)
    if block.default_runtime and block.runtimes == ("podman",) and not block.rootless:
        message = "is true, and podman has no runtime to register: it takes GPUs by CDI"
        yield problem("default_runtime", message, "leave default_runtime out")
    old = block.version != "any" and not modern(block.version)
    if block.rootless and (block.mode == "legacy" or (block.mode == "auto" and old)):
        which = "legacy" if block.mode == "legacy" else f"auto, which is legacy before {catalogue.MODERN}"
        message = f"cannot work in mode {which}: it needs no-cgroups, which breaks root's containers"
        yield problem("rootless", message, "mode: cdi")
    elif block.mode == "legacy":
        message = "is legacy: where systemd has the cgroups, its daemon-reload takes GPUs from containers"
        yield problem("mode", message, "leave mode out, or mode: cdi", warning=True)
    if block.cuda_image and block.runtimes and not set(block.runtimes) & {*STARTABLE}:
        message = (
            f"needs one of {', '.join(STARTABLE)}: with {', '.join(block.runtimes)} a kubelet alone starts containers"
        )
        yield problem("cuda_image", message, "leave cuda_image out, and run a pod that computes")
    if block.cuda_pull and not block.cuda_image:
        yield problem("cuda_pull", "is true, and no image is named", "name one in container_toolkit.cuda_image")
    if "root" in block.rootless:
        message = 'container_toolkit.rootless has "root", whose engines are those of runtimes'
        yield Problem(path=(HERE, "rootless", block.rootless.index("root")), message=message, fix="take it out")


def doubled(name: str, values: tuple[str, ...]) -> Iterable[Problem]:
    """Yield duplicates in a list."""
    for place, value in enumerate(values):
        if value in values[:place]:
            message = f'container_toolkit.{name} has "{value}" twice'
            yield Problem(path=(HERE, name, place), message=message, fix="take one out")


def export(facts: Facts) -> Fragment | None:
    """Return the installed toolkit, with the engines in which it is registered."""
    present = installed(facts)
    if "nvidia-container-toolkit" not in present:
        return None
    runtimes, default = [], False
    for name, engine in facts.get(ENGINES).items():
        try:
            registration = files.registered(name, files.configuration(name, engine)) if name != "podman" else None
        except ValueError:
            continue
        if registration and registration.path:
            runtimes.append(name)
            default = default or registration.default == files.NAME
        elif name == "podman" and facts.get(CDI):
            runtimes.append(name)
    toolkit = facts.get(TOOLKIT)
    mode = files.at(toolkit.settings, "nvidia-container-runtime", "mode")
    kept = any(fact.path.startswith("/etc/cdi/") for fact in facts.get(CDI))
    users = facts.get(USERS)
    own = {
        name: files.configuration("docker", files.make_rootless_docker(user.daemon))
        for name, user in users.items()
        if _can_read(user.daemon)
    }
    return ContainerToolkit(
        version=resolve.upstream(present["nvidia-container-toolkit"].version),
        hold=all(package.held for package in present.values()),
        runtimes=tuple(runtimes),  # type: ignore[arg-type]
        default_runtime=default,
        mode=mode if mode in ("auto", "cdi", "legacy") else "auto",
        cdi_directory="/etc/cdi" if kept else "/var/run/cdi",
        rootless=tuple(name for name, config in own.items() if files.registered("docker", config).path),
    )


def _can_read(text: str | None) -> bool:
    try:
        return bool(files.configuration("docker", files.make_rootless_docker(text)))
    except ValueError:
        return False


CAPABILITY = Capability(
    name=HERE,
    summary="GPUs in containers: NVIDIA's toolkit at one version, registered in the engines, with a CDI "
    "specification kept fresh",
    fragment=ContainerToolkit,
    checks=now.CHECKS + cdi.CHECKS + cuda.CHECKS + preflight.CHECKS,
    rules=rules,
    export=export,
    export_probes=(packages.PACKAGES, ENGINES, TOOLKIT, CDI, USERS),
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    packages=True,
    presupposes={
        **dict.fromkeys(
            ("held", "configured", "mode", "daemon_reload", "files", "enabled"), ("container_toolkit.packages",)
        ),
        "registered": ("container_toolkit.packages", "container_toolkit.configured"),
        "cdi": ("container_toolkit.packages", *LOADED),
        "cuda": ("container_toolkit.packages", "container_toolkit.registered", "container_toolkit.cdi", *LOADED),
    },
)
