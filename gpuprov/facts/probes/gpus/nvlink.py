"""NVLinks as nvidia-smi reports them: active links of each GPU, and their number between each pair."""

import re

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.gpus.fabric import BUS

# Seen on an H200 in pass-through (driver 580.159.04): `nvidia-smi nvlink -s` and `-e` print nothing, and end with
# status 0.
ALONE = "as of a GPU that a machine was given alone: its links lead to none that it has"
# nvidia-smi underlines the header of its matrix, even into a pipe (tests/real/six-gpus-ansi-topo):
#     \x1b[4m\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class LinkedGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU by nvidia-smi's index. `bus` as sysfs writes it. `links`: its number of NVLinks, `active` those that are
    up.

    `pstate`: `P0` at work, higher numbers as it saves power. `persistent`: the driver keeps it initialized without
    clients; else nvidia-smi itself has just woken it. `mig`: MIG mode is on.
    """

    index: int
    bus: str
    pstate: str = ""
    persistent: bool = True
    mig: bool = False
    links: int = 0
    active: int = 0


class NvLinks(msgspec.Struct, frozen=True, kw_only=True):
    """`pairs`: number of NVLinks of each pair of indices that has any, by `nvidia-smi topo -m`; None if that printed
    nothing. `complaint`: the reason why the NVLinks are unknown; empty if they are known."""

    gpus: tuple[LinkedGpu, ...] = ()
    pairs: dict[tuple[int, int], int] | None = None
    complaint: str = ""


def parse(output: Output) -> NvLinks:
    if output.status == 127:
        return NvLinks(complaint="nvidia-smi is not installed")
    rows: dict[str, list[str]] = {"gpu": [], "link": [], "topo": []}
    for line in output.text.splitlines():
        kind, _, rest = line.partition("|")
        rows.get(kind, []).append(rest)
    counts = _count_links(rows["link"])
    gpus = []
    for row in rows["gpu"]:
        # 0, 00000000:19:00.0, P0, Disabled, Enabled
        match = re.match(rf"(\d+), {BUS}, ([^,]*), ([^,]*)(?:, (.*))?\Z", row)
        if match:
            links, active = counts.get(int(match[1]), (0, 0))
            pstate, mig = match[3].strip(), match[4].strip() == "Enabled"
            gpus.append(
                LinkedGpu(
                    index=int(match[1]),
                    bus=match[2].lower(),
                    pstate=pstate,
                    persistent=(match[5] or "").strip() != "Disabled",
                    mig=mig,
                    links=links,
                    active=active,
                )
            )
    message = " ".join(f"{' '.join(rows['gpu'])} {output.error}".split())[:200]
    complaint = "" if gpus else f"nvidia-smi shows no GPU: {message or 'it said nothing'}"
    if gpus and not counts:
        complaint = "nvidia-smi nvlink -s said nothing"
    return NvLinks(gpus=tuple(gpus), pairs=_parse_pairs(rows["topo"]), complaint=complaint)


def _count_links(rows: list[str]) -> dict[int, tuple[int, int]]:
    """Count links and active links by index. A GPU without NVLink has a line of its own, but no link lines."""
    counts: dict[int, tuple[int, int]] = {}
    index = -1
    for row in rows:
        # `nvidia-smi nvlink -s` (tests/real/h100-nvlink-s, azure-v100-inactive-links); a link that is down has
        # `<inactive>` in place of its rate:
        #     GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000001-0000-0000-0000-000000000000)
        #              Link 0: 26.562 GB/s
        if match := re.match(r"GPU (\d+):", row.strip()):
            index = int(match[1])
            counts[index] = (0, 0)
        elif index >= 0 and (match := re.match(r"Link \d+: (.*)\Z", row.strip())):
            links, active = counts[index]
            counts[index] = (links + 1, active + bool(re.match(r"[0-9.]+ [GM]B/s", match[1])))
    return counts


def _parse_pairs(rows: list[str]) -> dict[tuple[int, int], int] | None:
    """Parse the cells `NV#` of the matrix; its header and its rows begin with a GPU's name."""
    pairs: dict[tuple[int, int], int] | None = None
    header: list[int] = []
    for row in (COLOURS.sub("", row) for row in rows):
        cells = row.split()
        # `nvidia-smi topo -m` of a DGX-2 (https://github.com/NVIDIA/nccl-tests/issues/78):
        #             GPU0    GPU1    GPU2    GPU3
        #     GPU0     X      NV6     NV6     NV6
        #     GPU1    NV6      X      NV6     NV6
        if not cells or not re.fullmatch(r"GPU\d+", cells[0]):
            continue
        if not header:
            header = [int(cell[3:]) for cell in cells if re.fullmatch(r"GPU\d+", cell)]
            pairs = {}
            continue
        index = int(cells[0][3:])
        for other, cell in zip(header, cells[1:], strict=False):
            if pairs is not None and other > index and (match := re.fullmatch(r"NV(\d+)", cell)):
                pairs[index, other] = int(match[1])
    return pairs


# All queries run at the same time, so that GPUs without persistence, which take seconds each, are woken once; -u: in
# whole lines.
NVLINKS = Probe(
    "topology_nvlinks",
    """command -v nvidia-smi >/dev/null || exit 127
q=index,pci.bus_id,pstate,mig.mode.current,persistence_mode
timeout 25 nvidia-smi --query-gpu=$q --format=csv,noheader 2>&1 | sed -u 's/^/gpu|/' &
timeout 25 nvidia-smi nvlink -s 2>/dev/null | sed -u 's/^/link|/' &
timeout 25 nvidia-smi topo -m 2>/dev/null | sed -u 's/^/topo|/' &
wait; true""",
    parse,
    "nvidia-smi nvlink -s; nvidia-smi topo -m",
    knows_missing=True,
)
