"""Outputs that only records hold: half of what a host is asked, so that they prove defects and never their absence."""

import re

import msgspec

from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.host_code.at_boot import devices
from gpuprov.host_code.at_boot.devices import RdmaDevice


class GpuLinks(msgspec.Struct, frozen=True):
    """A GPU's NVLinks by `nvidia-smi nvlink -s`: its name, how many it lists, and how many of them are up."""

    index: int
    name: str
    links: int
    active: int


class GoneFunction(msgspec.Struct, frozen=True):
    """An NVSwitch or a network function that lspci shows with `(rev ff)`; without -nn also a GPU, and its name."""

    address: str
    identifier: str


def parse_gone(output: Output) -> tuple[GoneFunction, ...]:
    rows = (line.split(" ", 1) for line in output.text.splitlines())
    return tuple(GoneFunction(*row) for row in rows if len(row) == 2)


class PcieLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link by `lspci -vv`: speed in GT/s and width as they are, as the function, and as the port above it supports; 0
    where that is not shown."""

    address: str
    name: str
    is_gpu: bool
    speeds: tuple[float, float, float]
    widths: tuple[int, int, int]


def parse_pcie(output: Output) -> tuple[PcieLink, ...]:
    links = []
    for row in (line.split(" ", 8) for line in output.text.splitlines()):
        if len(row) != 9 or not all(re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", number) for number in row[2:8]):
            raise ProbeFailed(f"no PCIe link: {' '.join(row)[:80]!r}")
        speed, width, own, own_width, above, above_width = map(float, row[2:8])
        speeds, widths = (speed, own, above), (int(width), int(own_width), int(above_width))
        links.append(PcieLink(address=row[0], name=row[8], is_gpu=row[1] == "gpu", speeds=speeds, widths=widths))
    return tuple(links)


def parse_ports(output: Output) -> tuple[RdmaDevice, ...]:
    """Parse what `ibstat` says, in the form of the reader of RDMA devices. Its PCI functions are unknown."""
    return devices.parse(output.text)


def parse_links(output: Output) -> tuple[GpuLinks, ...]:
    gpus: list[GpuLinks] = []
    for line in map(str.strip, output.text.splitlines()):
        if match := re.match(r"GPU (\d{1,3}): (.*?)(?: \(UUID: .*)?\Z", line):
            gpus.append(GpuLinks(int(match[1]), match[2][:80], 0, 0))
        elif gpus and (match := re.match(r"Link \d{1,3}: (.*)\Z", line)):
            up = bool(re.match(r"[0-9.]+ [GM]B/s", match[1]))
            last = gpus[-1]
            gpus[-1] = msgspec.structs.replace(last, links=last.links + 1, active=last.active + up)
    return tuple(gpus)


def explain_missing_links(text: str) -> str:
    """Explain that `nvidia-smi nvlink -s` breaks off: its last GPU lists fewer links than another of its name. Empty if
    it does not."""
    gpus = parse_links(Output(text))
    if not gpus or not gpus[-1].links:
        return ""
    last, most = gpus[-1], max(gpu.links for gpu in gpus if gpu.name == gpus[-1].name)
    return (
        f"nvidia-smi nvlink -s breaks off in GPU {last.index}: {last.links} of {most} links"
        if last.links < most
        else ""
    )


PORTS = Probe("recorded_ports", "command -v ibstat >/dev/null || exit 127; ibstat", parse_ports, "ibstat")
LINKS = Probe(
    "recorded_links",
    "command -v nvidia-smi >/dev/null || exit 127; nvidia-smi nvlink -s",
    parse_links,
    "nvidia-smi nvlink -s",
)
GONE = Probe("recorded_gone", "command -v lspci >/dev/null || exit 127; lspci -nn", parse_gone, "lspci -nn")
PCIE = Probe("recorded_pcie", "command -v lspci >/dev/null || exit 127; lspci -vv", parse_pcie, "lspci -vv")
