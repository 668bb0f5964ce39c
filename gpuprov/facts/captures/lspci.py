"""Outputs of lspci, with or without -nn, -k and -v, brought into the forms of probes."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from gpuprov.facts.probes.host import pci

# da:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 SXM4 40GB] [10de:20b0] (rev a1)
_FUNCTION = re.compile(
    r"((?:[0-9a-f]{4,}:)?[0-9a-f]{2}:[0-9a-f]{2}\.\d) .*?\[([0-9a-f]{4})\]: .*\[10de:([0-9a-f]{4})\](?: \(|\Z)"
)
# A network function of anybody's, or a bridge of its own kind: NVSwitches are such.
_OTHER = re.compile(
    r"((?:[0-9a-f]{4,}:)?[0-9a-f]{2}:[0-9a-f]{2}\.\d) .*?\[(02[0-9a-f]{2}|0680)\]: "
    r".*\[([0-9a-f]{4}:[0-9a-f]{4})\](?: \(|\Z)"
)
# lspci's mark of a function that does not answer, so that its configuration space reads as ones; newer versions show
# the header alone: https://github.com/pciutils/pciutils/pull/91
_GONE = re.compile(r"\(rev ff\)|!!! Unknown header type 7f")

# Maximum number of characters that are read of a line of lspci.
LONGEST_LINE = 2000


def convert_functions(text: str) -> str:
    """Convert `lspci -nn`, with or without -k or -v: the NVIDIA functions; a subsystem that is not shown is zeros."""
    rows: list[list[str]] = []
    gone: set[str] = set()
    for line in text.splitlines():
        if match := _FUNCTION.match(line[:LONGEST_LINE]):
            address = match[1] if match[1].count(":") == 2 else f"0000:{match[1]}"
            rows.append([address, "0x10de", f"0x{match[3]}", "0x0000", "0x0000", f"0x{match[2]}00", ""])
        elif not line.startswith((" ", "\t")):
            rows.append([])  # a function of another vendor: what follows is its own
        #         Subsystem: Hewlett-Packard Company Device [103c:85fc]
        #         Kernel driver in use: nvidia
        elif rows and rows[-1] and (match := re.match(r"\s+Kernel driver in use: (\S+)", line)):
            rows[-1][6] = match[1]
        elif rows and rows[-1] and (match := re.match(r"\s+Subsystem: .*\[([0-9a-f]{4}):([0-9a-f]{4})\]", line)):
            rows[-1][3:5] = [f"0x{match[1]}", f"0x{match[2]}"]
        if rows and rows[-1] and _GONE.search(line[:LONGEST_LINE]):
            gone.add(rows[-1][0])
    kept = [[*row[:6], row[6] or pci.NO_DRIVER, pci.GONE] if row[0] in gone else row for row in rows if row]
    return "".join(" ".join(row).rstrip() + "\n" for row in kept)


def list_gone(text: str) -> str:
    """List in `lspci -nn` the NVSwitches and network functions that do not answer, as `ADDRESS IDENTIFIER`."""
    gone: dict[str, str] = {}
    last: tuple[str, str] | None = None
    for line in (line[:LONGEST_LINE] for line in text.splitlines()):
        if not line.startswith((" ", "\t")):
            match = _OTHER.match(line)
            known = match and (match[2].startswith("02") or match[3].startswith("10de:"))
            last = (match[1] if match[1].count(":") == 2 else f"0000:{match[1]}", match[3]) if match and known else None
        if last and _GONE.search(line):
            gone[last[0]] = last[1]
    return "".join(f"{address} {identifier}\n" for address, identifier in gone.items())


_HEAD = re.compile(
    r"((?:[0-9a-f]{4,}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ([^:\[]{2,60}?)(?: \[[0-9a-f]{4}\])?: "
    r"(.*?)(?: \(rev ..\).*)?\Z"
)
_LINK = re.compile(r"\s+Lnk(Cap|Sta):.*?\bSpeed ([0-9.]{1,5})GT/s.*?\bWidth x([0-9]{1,2})\b")
_BELOW = re.compile(r"\s+Bus: primary=[0-9a-f]{2}, secondary=([0-9a-f]{2}),")
_DISPLAYS = ("VGA compatible controller", "3D controller")
_NAMES = re.compile(r"Mellanox|ConnectX|BlueField|NVSwitch")


class _Shown(NamedTuple):
    """A function with its links as `Cap` and `Sta`: speed and width."""

    address: str
    kind: str
    name: str
    links: dict[str, tuple[str, str]]
    # The bus that a bridge leads to.
    below: list[str]
    gone: list[bool]

    @property
    def is_gpu(self) -> bool:
        return self.kind in _DISPLAYS and "NVIDIA" in self.name

    @property
    def is_judged(self) -> bool:
        return self.is_gpu or self.kind == "Infiniband controller" or bool(_NAMES.search(self.name))


def _list_shown(text: str) -> Iterator[_Shown]:
    shown: _Shown | None = None
    for line in (line[:LONGEST_LINE] for line in text.splitlines()):
        if match := _HEAD.match(line):
            yield from filter(None, (shown,))
            address = match[1] if match[1].count(":") == 2 else f"0000:{match[1]}"
            shown = _Shown(address, match[2], match[3], {}, [], [])
        if shown and (match := _LINK.match(line)):
            shown.links.setdefault(match[1], (match[2], match[3]))
        elif shown and (match := _BELOW.match(line)):
            shown.below.append(match[1])
        if shown and _GONE.search(line):
            shown.gone.append(True)
    yield from filter(None, (shown,))


def list_pcie_links(text: str) -> str:
    """List the GPUs, HCAs and NVSwitches of `lspci -vv`: address, gpu or -, the present link, what the function and
    what the port above it support (speed and width; 0 where it is not shown), and the name."""
    functions = list(_list_shown(text))
    above = {
        (function.address.rpartition(":")[0].rpartition(":")[0], bus): function.links["Cap"]
        for function in functions
        for bus in function.below
        if "Cap" in function.links
    }
    rows = []
    for function in functions:
        if function.is_judged and not function.gone and {"Cap", "Sta"} <= set(function.links):
            domain, bus, _ = function.address.split(":")
            links = (function.links["Sta"], function.links["Cap"], above.get((domain, bus), ("0", "0")))
            numbers = " ".join(" ".join(link) for link in links)
            rows.append(f"{function.address} {'gpu' if function.is_gpu else '-'} {numbers} {function.name}\n")
    return "".join(rows)


def list_nameless_gone(text: str) -> str:
    """List in lspci without -nn what does not answer, GPUs too, as `ADDRESS NAME`."""
    gone = [function for function in _list_shown(text) if function.is_judged and function.gone]
    return "".join(f"{function.address} {function.name}\n" for function in gone)
