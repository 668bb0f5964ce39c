"""Description of a simulated GPU host, for containers and machines alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from gpuprov.catalog.gpus import Gpu, explain_unknown, find_gpu
from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import distributions
from gpuprov.simulate.distributions import Distribution, Repository

Kind = Literal["container", "machine"]
HcaFabric = Literal["infiniband", "roce"]
# Gb/s of a port: 4X EDR, HDR, NDR and XDR.
HcaRate = Literal[100, 200, 400, 800]
Engine = Literal["docker", "podman"]
User = Literal["gpuadmin", "root"]
# The stand-in NVML has at most 8 GPUs.
MOST_GPUS = 8


class Gpus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`model` is a key of the catalogue (`gpuprov catalog gpus`)."""

    model: str
    count: Annotated[int, msgspec.Meta(ge=1, le=MOST_GPUS)] = 1

    @property
    def known(self) -> Gpu:
        """Return the catalogue's entry. Raises GpuprovError for a model it does not have."""
        gpu = find_gpu(self.model)
        if gpu is None:
            what, fix = explain_unknown(self.model)
            raise GpuprovError(f'gpu.model is "{self.model}", which {what}', fix=fix)
        return gpu


class Description(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`driver`: the branches or versions that the host's package repositories offer, separated by commas (empty: the
    distribution's).

    `repositories`: those that the host is configured for: the distribution's own, NVIDIA's, or both (empty: the one
    with the distribution's driver; NVIDIA's on rpm distributions except Amazon Linux). `mirror`: the host serves
    NVIDIA's repository without being configured for it: a site's mirror. `nvswitch`: generation of the NVSwitches (0:
    none; 1 to 3 are PCI functions, 4 is seen only in the VPD of NVLink bridges). `hcas`: number of HCAs. `fabric`: what
    their ports are connected to; `rate`: their speed in Gb/s. In containers they are RDMA devices in sysfs, and GPUs,
    HCAs and NVSwitches are behind PCIe switches as on the boards; in machines they are PCI functions only. `kernel`: a
    release of the distribution's archive (`6.1.0-47-amd64`; empty: the newest). `container_toolkit`: the repository
    also offers NVIDIA's Container Toolkit (built with Go). `containerd`: the containerd release running on the host,
    the real daemon (built with Go), without a configuration file; without it there is only a distribution's package.
    `engines`: container engines of Debian's archive. `ofed`: the host's repositories include a doca-host
    package in /doca, for apt. `cgpu`: Alibaba's cGPU, as files only (containers with GPUs). `erdma`: one interface of
    Alibaba's eRDMA; `efa`: number of AWS's Elastic Fabric Adapters, on an instance type that can have them (containers
    with GPUs). `memory` in MiB, `cpus` and `nvme`, the sizes of local NVMe disks in MiB, apply to machines only.
    `faults` are planted once the host is up. A description without `gpu` is a plain Debian host with nothing simulated
    but its existence.
    """

    kind: Kind = "container"
    distribution: str = "debian12"
    gpu: Gpus | None = None
    driver: str = ""
    nvswitch: Annotated[int, msgspec.Meta(ge=0, le=4)] = 0
    hcas: Annotated[int, msgspec.Meta(ge=0, le=16)] = 0
    fabric: HcaFabric = "infiniband"
    rate: HcaRate = 400
    kernel: Annotated[str, msgspec.Meta(pattern=r"^([0-9]+\.[0-9]+\.[0-9]+-[0-9]+-amd64)?$")] = ""
    repositories: tuple[Repository, ...] = ()
    mirror: bool = False
    container_toolkit: bool = False
    containerd: Annotated[str, msgspec.Meta(pattern=r"^([12]\.[0-9]+\.[0-9]+)?$")] = ""
    engines: tuple[Engine, ...] = ()
    cgpu: bool = False
    ofed: bool = False
    erdma: bool = False
    efa: Annotated[int, msgspec.Meta(ge=0, le=32)] = 0
    memory: Annotated[int, msgspec.Meta(ge=512)] = 2048
    cpus: Annotated[int, msgspec.Meta(ge=1, le=16)] = 2
    nvme: Annotated[tuple[Annotated[int, msgspec.Meta(ge=16)], ...], msgspec.Meta(max_length=16)] = ()
    user: User = "gpuadmin"
    faults: tuple[str, ...] = ()

    @property
    def known(self) -> Distribution:
        """Return the distribution. Raises GpuprovError for one that cannot be simulated."""
        return distributions.find(self.distribution)

    @property
    def configured(self) -> tuple[Repository, ...]:
        """Return the repositories that the host is configured for. A mirror takes the place of NVIDIA's default one."""
        usual = self.known.default_repositories
        return self.repositories or tuple(name for name in usual if not (self.mirror and name == "nvidia"))

    @property
    def served(self) -> tuple[Repository, ...]:
        """Return the repositories that the host serves."""
        return tuple(dict.fromkeys((*self.configured, *(("nvidia",) if self.mirror else ()))))


def check(described: Description) -> None:
    """Raise unless a host can be made from this description."""
    _check_kind(described)
    _check_packages(described)
    _check_cloud(described)
    _check_hcas(described)
    _check_repositories(described)


def _check_kind(described: Description) -> None:
    known = described.known
    if described.kind == "machine" and known.stands_in:
        raise GpuprovError(
            f'distribution is "{known.key}" and kind is "machine", whose userland would be Debian\'s',
            fix=f"kind: container; machines are {' or '.join(distributions.REAL)}",
        )
    if described.cgpu and (described.kind == "machine" or described.gpu is None):
        why = 'kind is "machine"' if described.gpu else "there is no gpu"
        raise GpuprovError(
            f"cgpu is true and {why}: cGPU is simulated as files, in containers with GPUs",
            fix="kind: container, and gpu: {model: ...}; or leave cgpu out",
        )
    if described.nvme and described.kind == "container":
        raise GpuprovError(
            'nvme has disks and kind is "container", whose disks are those of this machine',
            fix="kind: machine; or leave nvme out",
        )


def _check_packages(described: Description) -> None:
    known = described.known
    if described.ofed and known.rpms:
        raise GpuprovError(
            f"ofed is true, and {known.key} takes no packages for apt", fix="a Debian or Ubuntu, or leave ofed out"
        )
    if described.containerd and "docker" in described.engines:
        raise GpuprovError(
            f"containerd is {described.containerd} and engines has docker, whose package brings a containerd of "
            "its own",
            fix="leave one of them out",
        )


def _check_hcas(described: Description) -> None:
    if described.hcas and described.gpu is None:
        raise GpuprovError(
            f"hcas is {described.hcas} and there is no gpu: HCAs are simulated on hosts with GPUs",
            fix="gpu: {model: ...}; or leave hcas out",
        )
    if described.fabric == "roce" and described.kind == "machine":
        raise GpuprovError(
            'fabric is "roce" and kind is "machine", where HCAs are PCI functions only',
            fix="kind: container; a machine has RDMA by its own kernel: rdma: {fabric: soft} in the spec",
        )


def _check_repositories(described: Description) -> None:
    known = described.known
    if described.kernel and known.stands_in:
        raise GpuprovError(
            f'kernel is "{described.kernel}", one of Debian\'s, and distribution is "{known.key}"',
            fix=f"leave it out: the host's kernel is named {known.kernel}",
        )
    if "distribution" in described.repositories and known.rpms and not known.driver_source:
        raise GpuprovError(
            f'repositories has "distribution", and {known.key} has no NVIDIA driver of its own',
            fix="repositories: [nvidia]",
        )


def _check_cloud(described: Description) -> None:
    """Check a cloud's RDMA: of one cloud at a time, on a host with no other RDMA."""
    kinds = {"eRDMA": ("erdma", "true")} if described.erdma else {}
    kinds |= {"EFA": ("efa", str(described.efa))} if described.efa else {}
    if len(kinds) > 1:
        raise GpuprovError(
            f"erdma is true and efa is {described.efa}: no instance has the adapters of two clouds",
            fix="leave one of them out",
        )
    for cloud, (field, value) in kinds.items():
        if described.kind == "machine" or described.gpu is None or described.hcas:
            why = (
                f"hcas is {described.hcas}"
                if described.hcas
                else 'kind is "machine"'
                if described.gpu
                else "there is no gpu"
            )
            raise GpuprovError(
                f"{field} is {value} and {why}: {cloud} is simulated as files, in containers with GPUs and no HCAs",
                fix=f"kind: container, and gpu: {{model: ...}}; or leave {field} out",
            )


def convert(values: Any, place: str) -> Description:
    """Convert plain values to a description. Raises GpuprovError with the place, the value and what is allowed."""
    try:
        described = msgspec.convert(values, Description)
    except msgspec.ValidationError as error:
        allowed = ", ".join(field.name for field in msgspec.structs.fields(Description))
        raise GpuprovError(f"{place}: {error}", fix=f"a simulated host is described by: {allowed}") from None
    try:
        check(described)
        if described.gpu:
            _ = described.gpu.known
    except GpuprovError as error:
        raise GpuprovError(f"{place}: {error}", fix=error.fix) from None
    return described


def read(file: Path) -> Description:
    """Read a description from a YAML file."""
    import yaml

    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise GpuprovError(f"{file}: cannot be read: {' '.join(str(error).split())}") from None
    return convert(values if values is not None else {}, str(file))
