"""The topology file that /etc/nccl.conf names, with its checksum, and the PCI functions that it may name."""

import msgspec

from gpuprov.facts.probes.base import Output, Probe


class TopologyFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file."""

    # Empty if /etc/nccl.conf names none.
    path: str = ""
    # None if there is no such file.
    text: str | None = None
    sha256: str = ""
    # Class by address.
    functions: dict[str, str] = {}


def parse(output: Output) -> TopologyFile:
    rows = output.rows()
    return TopologyFile(
        path=rows.get("path", [""])[-1],
        text="\n".join(rows.get("text", ())) if "sum" in rows else None,
        sha256=rows.get("sum", [""])[-1].partition(" ")[0],
        functions={address: class_ for address, _, class_ in (line.partition("|") for line in rows.get("pci", ()))},
    )


# The topology file. If two lines name one, NCCL uses the first: gpuprov.capabilities.rdma.nccl.conf.
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
