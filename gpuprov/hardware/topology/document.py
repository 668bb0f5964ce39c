"""The wiring of hosts as one JSON document: the output of `gpuprov topology --json`.

docs/reference/topology.schema.json is generated from these types.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from gpuprov import __version__
from gpuprov.core.safe_parse import format_document
from gpuprov.hardware.topology import model
from gpuprov.hardware.topology.judge import Finding, Kind, assign_hcas
from gpuprov.hardware.topology.links import format_link
from gpuprov.hardware.topology.model import Distance, Wiring
from gpuprov.hardware.topology.text import format_cell

FORMAT = 1


class Gpu(msgspec.Struct, kw_only=True):
    """A GPU. `bridges`: PCI bridges from the CPU down to it. `link`: its present PCIe link. `nvlinks`: number of active
    ones; null if not reported. `nearest`: the HCA of its rail, else the nearest; null on a host without HCAs.
    `distance`: to the nearest HCA. `distances`: to every other GPU and HCA, as in the matrix of nvidia-smi topo -m:
    PIX, PXB, PHB, NODE, SYS, or NV and the number of NVLinks."""

    name: str
    address: str
    model: str
    numa_node: int
    socket: int | None
    bridges: tuple[str, ...]
    link: str
    nvlinks: int | None
    nearest: str | None
    distance: Distance | None
    distances: dict[str, str]


class Port(msgspec.Struct, kw_only=True):
    """A port of an HCA. `rate` in Gb/s; null if the driver does not report the true one."""

    number: int
    state: str
    link_layer: str
    rate: float | None


class End(msgspec.Struct, kw_only=True):
    """The other end of a cable: a switch, or a host, and its port; empty if not known."""

    switch: str
    port: str


class Hca(msgspec.Struct, kw_only=True):
    """An RDMA device that is a PCI function. `ends`: where its cables lead, if lldpd or the port itself says so."""

    name: str
    address: str
    driver: str
    netdevs: tuple[str, ...]
    numa_node: int
    socket: int | None
    bridges: tuple[str, ...]
    link: str
    ports: tuple[Port, ...]
    ends: tuple[End, ...]


class Told(msgspec.Struct, kw_only=True):
    """A finding that a person should look at; a note may be by design of the machine."""

    kind: Kind
    severity: Literal["note", "warning"]
    message: str
    fix: str


class Host(msgspec.Struct, kw_only=True):
    """The wiring of a host. `not_on_the_bus`: RDMA devices that are not PCI functions, such as software devices."""

    gpus: tuple[Gpu, ...]
    hcas: tuple[Hca, ...]
    nvlink_bridges: tuple[str, ...]
    nvswitches: tuple[str, ...]
    not_on_the_bus: tuple[str, ...]
    findings: tuple[Told, ...]


class Topology(msgspec.Struct, kw_only=True):
    """The document: hosts by name, and the errors of hosts that could not be read."""

    gpuprov_topology: Annotated[int, msgspec.Meta(description="Version of this format")] = FORMAT
    gpuprov: str = __version__
    hosts: dict[str, Host]
    unread: dict[str, str]


def format_json(hosts: Mapping[str, Host], unread: Mapping[str, str]) -> str:
    """Return the document as JSON text."""
    document = Topology(hosts=dict(hosts), unread=dict(unread))
    return format_document(document)


def build_host(wiring: Wiring, findings: tuple[Finding, ...]) -> Host:
    """Convert the wiring of one host. Distances as in the matrix."""
    return Host(
        gpus=tuple(build_gpu(wiring, gpu) for gpu in wiring.gpus),
        hcas=tuple(_convert_hca(wiring, hca) for hca in wiring.hcas),
        nvlink_bridges=tuple(hca.name for hca in wiring.bridges),
        nvswitches=tuple(switch.address for switch in wiring.nvswitches),
        not_on_the_bus=wiring.unplaced,
        findings=tuple(
            Told(
                kind=finding.kind,
                severity="note" if finding.note else "warning",
                message=finding.message,
                fix=finding.fix,
            )
            for finding in findings
        ),
    )


def build_gpu(wiring: Wiring, gpu: model.Gpu) -> Gpu:
    best = assign_hcas(wiring)
    ends: tuple[model.Gpu | model.Hca, ...] = (*wiring.gpus, *wiring.hcas)
    return Gpu(
        name=gpu.name,
        address=gpu.function.address,
        model=gpu.model,
        numa_node=gpu.function.numa_node,
        socket=wiring.socket(gpu.function),
        bridges=tuple(gpu.function.bridges),
        link=format_link(gpu.function.link.width, gpu.function.link.speed),
        nvlinks=gpu.nvlink.active if gpu.nvlink and not wiring.nvlinks.complaint else None,
        nearest=best[gpu.index].name if gpu.index in best else None,
        distance=wiring.near(gpu)[0],
        distances={end.name: format_cell(wiring, gpu, end) for end in ends if end is not gpu},
    )


def _convert_hca(wiring: Wiring, hca: model.Hca) -> Hca:
    return Hca(
        name=hca.name,
        address=hca.function.address,
        driver=hca.device.driver,
        netdevs=tuple(hca.device.netdevs),
        numa_node=hca.function.numa_node,
        socket=wiring.socket(hca.function),
        bridges=tuple(hca.function.bridges),
        link=format_link(hca.function.link.width, hca.function.link.speed),
        ports=tuple(
            Port(
                number=port.number,
                state=port.state,
                link_layer=port.link_layer,
                rate=port.rate if hca.tells_rate else None,
            )
            for port in hca.device.ports
        ),
        ends=tuple(End(switch=end.switch, port=end.port) for end in wiring.find_ends(hca)),
    )
