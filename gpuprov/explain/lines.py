"""Lines of a log that only make sense with their neighbours: messages of several lines, and which PCI addresses are
GPUs."""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

# The end of a line of a start script, printed apart from its beginning: `   ...done.`
_RESULT = re.compile(r"\s+\.\.\.\s*(done|fail)")
_UNMET = "The following packages have unmet dependencies"
_OF_UNMET = re.compile(r"\s|E: Unable to correct problems")
# Maximum number of lines of one list in apt's output.
_MOST = 40
_ADDRESS = r"((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
# The first line of a device in the output of lspci.
_DEVICE = re.compile(rf"{_ADDRESS} ", re.IGNORECASE)
_ANY_ADDRESS = re.compile(_ADDRESS, re.IGNORECASE)
_DRIVER = re.compile(r"\s+Kernel driver in use:")
_OF_NVIDIA = re.compile(r"nvidia|10de:", re.IGNORECASE)
# GPUs that the driver names: `nvidia 0000:3b:00.0: ...`, `NVRM: The NVIDIA GPU 0000:3b:00.0`, `NVRM: GPU at PCI:...`.
_GPU = re.compile(rf"(?:\bnvidia |NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?|^){_ADDRESS}(?=[: ]|\Z)", re.IGNORECASE)


# ibstat writes `SM lid: 0` and `Link layer: Ethernet`, ibv_devinfo `sm_lid: 0` and `link_layer: Ethernet`.
_LID = re.compile(r"\s*sm.?lid:", re.IGNORECASE)
_LAYER = re.compile(r"\s*link.layer:\s*(\w+)", re.IGNORECASE)
# Lines of a port in the output of ibstat and ibv_devinfo from the LID of the subnet manager to the link layer.
_PORT = 12


def statements(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, continued ones joined; without the drivers that lspci names of devices that are not NVIDIA's,
    and without the LIDs of ports that are not InfiniBand."""
    whole, device, count = "", "", 0
    source = iter(lines)
    ahead = deque(islice(source, _PORT))
    while ahead:
        line = ahead.popleft()
        ahead.extend(islice(source, 1))
        if _LID.match(line) and _is_no_infiniband(ahead):
            continue
        if _DEVICE.match(line):
            device = line
        elif not line[:1].isspace():
            device = ""
        if device and _DRIVER.match(line) and not _OF_NVIDIA.search(device):
            continue
        listed = _UNMET in whole and count < _MOST and _OF_UNMET.match(line)
        if whole and (listed or _RESULT.match(line)):
            whole, count = f"{whole.rstrip()} {line.strip()}", count + 1
            continue
        if whole:
            yield whole
        whole, count = line, 1
    if whole:
        yield whole


def _is_no_infiniband(after: Iterable[str]) -> bool:
    """True if the lines after a port's LID show another link layer than InfiniBand."""
    layer = next((match[1] for line in after if (match := _LAYER.match(line))), "InfiniBand")
    return layer.casefold() != "infiniband"


def gpu_addresses(lines: Iterable[str]) -> set[str]:
    """Return the PCI addresses of GPUs in a log: used by NVIDIA's driver, or identified by lspci."""
    addresses = set()
    for line in lines:
        if _OF_NVIDIA.search(line) or "NVRM" in line:
            for match in _GPU.finditer(line):
                addresses.add(_shorten_address(match[1]))
    return addresses


def devices_in(line: str) -> frozenset[str]:
    """Return the PCI addresses of a line that does not name NVIDIA's driver: `vfio-pci 0000:41:00.0: ...` is a GPU
    bound to another driver."""
    if not _ANY_ADDRESS.search(line) or _OF_NVIDIA.search(line):
        return frozenset()
    return frozenset(map(_shorten_address, _ANY_ADDRESS.findall(line)))


def _shorten_address(address: str) -> str:
    """Return an address in its shortest form: without the domain if it is 0, since only some programs print it."""
    domain, _, rest = address.casefold().rpartition(":")[0].rpartition(":")
    return address.casefold() if domain.strip("0") else f"{rest}:{address.casefold().rpartition(':')[2]}"
