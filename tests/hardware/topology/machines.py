"""Machines as their probes print them: a PCI tree with its links, RDMA devices, NVLinks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gpuprov.facts.probes import rdma
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus import nvlink, topology
from gpuprov.hardware.topology.model import Wiring, build_wiring

H100, H100_PCIE, B200, V100, A100, L40S, T4, GB200 = "2330", "2331", "2901", "1db8", "20b0", "26b9", "1eb8", "2941"
CX7, CX6 = "15b3:1021", "15b3:101b"
CLASSES = {"gpu": "0x030200", "hca": "0x020700", "bridge": "0x060400", "nvswitch": "0x068000"}


@dataclass
class Machine:
    """Functions are added below the bridges that are named first; a bridge that is not there yet is made."""

    sockets: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 1})
    functions: dict[str, list[str]] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)
    nvlinks: dict[int, str] = field(default_factory=dict)
    matrix: list[str] = field(default_factory=list)
    smi: bool = True
    nccl: str = ""

    def function(
        self,
        kind: str,
        way: str,
        identifier: str,
        numa: int,
        *,
        now: str = "32.0 GT/s PCIe x16",
        most: str = "",
        extra: str = "|",
    ) -> str:
        """`way`: `pci0000:16/0000:16:01.0/0000:17:00.0`. `now` and `most`: speed and width of its link."""
        bridge = way.rpartition("/")[0]
        if "/" in bridge and bridge not in self.functions:
            self.function("bridge", bridge, "1000:c030", numa)
        vendor, _, device = identifier.partition(":")
        speed, _, width = now.rpartition(" x")
        max_speed, _, max_width = (most or now).rpartition(" x")
        cells = ["function", f"/sys/devices/{way}", f"0x{vendor}", f"0x{device}", CLASSES[kind], str(numa)]
        self.functions[way] = [*cells, speed, width, max_speed, max_width, *extra.split("|")]
        return way.rpartition("/")[2]

    def gpu(self, way: str, device: str, numa: int, *, pstate: str = "P0", mig: str = "Disabled", **link: str) -> None:
        address = self.function("gpu", way, f"10de:{device}", numa, **link)
        self.gpus.append(f"gpu|{len(self.gpus)}, 0000{address.upper()}, {pstate}, {mig}")

    def hca(
        self, way: str, name: str, numa: int, *, identifier: str = CX7, bridge: bool = False, virtual: bool = False,
        layer: str = "InfiniBand", netdev: str = "", **link: str,
    ) -> None:  # fmt: skip
        extra = f"{'virtual' * virtual}|rdma"
        address = self.function("hca", way, identifier, numa, extra=extra, **link)
        vendor, _, device = identifier.partition(":")
        self.devices += [
            f"device|{name}|{address}|mlx5_core|0x{vendor}|0x{device}|1: "
            f"CA|a088:c203:0083:c2fc|28.43.2566|{numa}|{netdev}||"
            f"{'bridge' * bridge}",
            f"port|{name}|1|4: ACTIVE|5: LinkUp|{layer}|400 Gb/sec (4X NDR)|0x1|0x1",
        ]

    def nvswitch(self, way: str, numa: int) -> None:
        self.function("nvswitch", way, "10de:22a3", numa, now="16.0 GT/s PCIe x2")

    def joined(
        self, links: int, *, lost: tuple[int, ...] = (), pairs: tuple[tuple[int, int], ...] | None = None
    ) -> None:
        """Each GPU has so many NVLinks, those in `lost` none that is up; `pairs` of GPUs joined, all by default."""
        count = len(self.gpus)
        for index in range(count):
            state = "<inactive>" if index in lost else "26.562 GB/s"
            self.nvlinks[index] = "".join(f"link|\t Link {number}: {state}\n" for number in range(links))
        names = [f"GPU{index}" for index in range(count)]
        self.matrix = [
            "topo|\t\x1b[4m" + "\t".join([*names, "NIC0", "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]) + "\x1b[0m"
        ]
        for mine in range(count):
            cells = []
            for its in range(count):
                known = pairs is None or (min(mine, its), max(mine, its)) in pairs
                cells.append(" X " if mine == its else f"NV{links}" if known and not {mine, its} & set(lost) else "SYS")
            self.matrix.append(f"topo|GPU{mine}\t" + "\t".join([*cells, "PIX", "0-47", "0", "N/A"]))
        self.matrix.append("topo|NIC0\tPIX\t" + "\t".join(["SYS"] * (count - 1)) + "\t X ")

    @property
    def texts(self) -> dict[str, Output]:
        """What the four probes print."""
        nodes = [f"node|{node}|{node * 48}-{node * 48 + 47}|{socket}" for node, socket in self.sockets.items()]
        pci = "".join(f"{line}\n" for line in [*nodes, *("|".join(cells) for cells in self.functions.values())])
        lines = list(self.gpus)
        for index in range(len(self.gpus)):
            lines += [f"link|GPU {index}: NVIDIA (UUID: GPU-{index})", *self.nvlinks.get(index, "").splitlines()]
        nvlinks = Output("".join(f"{line}\n" for line in [*lines, *self.matrix])) if self.smi else Output("", 127)
        devices = Output("".join(f"{line}\n" for line in self.devices))
        return {"topology_pci": Output(pci), "rdma_devices": devices, "topology_nvlinks": nvlinks}

    def read(self) -> Wiring:
        texts = self.texts
        return build_wiring(
            topology.parse(texts["topology_pci"]),
            rdma.parse(texts["rdma_devices"]),
            nvlink.parse(texts["topology_nvlinks"]),
        )

    def sysfs(self, root: Path) -> None:
        """The PCI part as folders and files."""
        bus = root / "sys/bus/pci/devices"
        bus.mkdir(parents=True)
        names = ("numa_node", "current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
        for cells in self.functions.values():
            folder = root / cells[1].lstrip("/")
            folder.mkdir(parents=True)
            values = dict(zip(("vendor", "device", "class", *names), cells[2:10], strict=True))
            for name, value in values.items():
                (folder / name).write_text(f"{value}\n")
            if cells[10]:
                (folder / "physfn").symlink_to("../x")
            if cells[11]:
                (folder / "infiniband").mkdir()
            (bus / folder.name).symlink_to(folder)
        for node, socket in self.sockets.items():
            folder = root / f"sys/devices/system/node/node{node}"
            folder.mkdir(parents=True)
            (folder / "cpulist").write_text(f"{node * 48}-{node * 48 + 47}\n")
            cpu = root / f"sys/devices/system/cpu/cpu{node * 48}/topology"
            cpu.mkdir(parents=True)
            (cpu / "physical_package_id").write_text(f"{socket}\n")


RAILS = ("15", "38", "48", "59", "97", "b7", "c7", "d7")
"""Buses of the root ports above the switches of an HGX board."""


def rail(bus: str, *, deep: bool = False) -> str:
    """The way to a rail's switch; `deep`: to a second switch below the first."""
    way = f"pci0000:{bus}/0000:{bus}:01.0/0000:{int(bus, 16) + 1:02x}:00.0"
    return f"{way}/0000:{int(bus, 16) + 2:02x}:00.0/0000:{int(bus, 16) + 3:02x}:00.0" if deep else way


def port(switch: str, slot: int) -> str:
    """The way to what is in a slot of a switch."""
    bus = int(switch.rpartition("/")[2].split(":")[1], 16)
    return f"{switch}/0000:{bus + 1:02x}:{slot:02x}.0/0000:{bus + 1 + slot:02x}:00.0"


def hgx_h100(*, misplaced: bool = False, narrow: bool = False, lost: tuple[int, ...] = ()) -> Machine:
    """8 H100 and 8 HCAs, each pair below a switch of its own, 4 NVSwitches. `misplaced`: the HCA of GPU3 is in a slot
    of the CPU."""
    made = Machine()
    for number, bus in enumerate(RAILS):
        numa, switch = number // 4, rail(bus)
        link = {"now": "32.0 GT/s PCIe x8", "most": "32.0 GT/s PCIe x16"} if narrow and number == 5 else {}
        made.gpu(port(switch, 3), H100, numa, **link)
        if misplaced and number == 3:
            continue
        made.hca(port(switch, 1), f"ibp{int(bus, 16) + 3}s0", numa, netdev=f"ibs{number}")
    if misplaced:
        made.hca("pci0000:6e/0000:6e:01.0/0000:6f:00.0", "ibp111s0", 0, netdev="ibs3")
    for number in range(4):
        made.nvswitch(f"pci0000:00/0000:00:1c.{number}/0000:0{5 + number}:00.0", 0)
    made.joined(18, lost=lost)
    return made
