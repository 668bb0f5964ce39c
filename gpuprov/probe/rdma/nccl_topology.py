"""The topology file that /etc/nccl.conf names, with its checksum, and the PCI functions that it may name."""

from __future__ import annotations

import msgspec

from gpuprov.probe.base import Output, Probe


class TopologyFile(msgspec.Struct, frozen=True, kw_only=True):
    """`path` is empty where /etc/nccl.conf names none. `text` is None where there is no such file. `functions`: class by address."""

    path: str = ""
    text: str | None = None
    sha256: str = ""
    functions: dict[str, str] = {}


def parse(output: Output) -> TopologyFile:
    path, digest = "", ""
    lines: list[str] | None = None
    functions: dict[str, str] = {}
    for line in output.text.splitlines():
        kind, _, rest = line.partition("|")
        if kind == "path":
            path = rest
        elif kind == "sum":
            digest, lines = rest.partition(" ")[0], lines or []
        elif kind == "text" and lines is not None:
            lines.append(rest)
        elif kind == "pci":
            address, _, class_ = rest.partition("|")
            functions[address] = class_
    return TopologyFile(path=path, text=None if lines is None else "\n".join(lines), sha256=digest, functions=functions)


NCCL_TOPOLOGY = Probe(
    "nccl_topology",
    r"""f=$(sed -n 's/\r$//; s/^NCCL_TOPO_FILE=//p' /etc/nccl.conf 2>/dev/null | head -n 1)
[ -n "$f" ] || exit 0
echo "path|$f"
[ -f "$f" ] && { echo "sum|$(sha256sum "$f")"; head -c 1048577 "$f" | sed 's/^/text|/'; echo; }
for d in /sys/bus/pci/devices/*; do
  read -r c < "$d/class" 2>/dev/null || continue
  case $c in 0x02* | 0x0300* | 0x0302*) echo "pci|${d##*/}|$c" ;; esac
done
true""",
    parse,
    "cat $(sed -n 's/^NCCL_TOPO_FILE=//p' /etc/nccl.conf); lspci -D | grep -iE 'nvidia|infiniband|ethernet'",
)
"""Of two lines NCCL takes the first: gpuprov.capabilities.rdma.nccl.conf."""
