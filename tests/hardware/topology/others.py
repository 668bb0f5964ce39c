"""More machines: some as they were published, some with a fault."""

from __future__ import annotations

from tests.hardware.topology.machines import A100, B200, CX6, GB200, H100, L40S, V100, Machine, port, rail

GEN4 = "16.0 GT/s PCIe x16"


def hgx_b200(*, lost: tuple[int, ...] = ()) -> Machine:
    """8 B200 with a ConnectX-7 each below two switches, 4 network functions below the CPUs, 4 NVLink bridges
    (SW_MNG)."""
    made = Machine()
    for number, bus in enumerate(("15", "28", "38", "58", "95", "a8", "b8", "d8")):
        upper = rail(bus)
        made.gpu(port(upper, 4), B200, number // 4)
        made.hca(
            f"{rail(bus, deep=True)}/0000:{int(bus, 16) + 4:02x}:00.0/0000:{int(bus, 16) + 9:02x}:00.0",
            f"mlx5_{number}",
            number // 4,
        )
    for number, (bus, numa) in enumerate((("6a", 0), ("6c", 0), ("e4", 1), ("e6", 1))):
        made.hca(
            f"pci0000:{bus}/0000:{bus}:01.0/0000:{int(bus, 16) + 1:02x}:00.0",
            f"mlx5_{8 + number}",
            numa,
            layer="Ethernet",
        )
    for number in range(4):
        made.hca(
            f"pci0000:00/0000:00:1c.{number}/0000:0{5 + number}:00.0",
            f"mlx5_{12 + number}",
            0,
            bridge=True,
            now="8.0 GT/s PCIe x2",
        )
    made.joined(18, lost=lost)
    return made


def dgx2() -> Machine:
    """16 V100 and 8 HCAs: two GPUs and an HCA below a switch, two of those below another, two of these on a socket."""
    made = Machine()
    for number in range(16):
        tray, leaf = number // 4, number // 2
        bus = ("30", "50", "b0", "d0")[tray]
        upper = f"pci0000:{bus}/0000:{bus}:00.0/0000:{int(bus, 16) + 1:02x}:00.0"
        base = int(bus, 16) + 3 + 6 * (leaf % 2)
        switch = f"{upper}/0000:{int(bus, 16) + 2:02x}:0{leaf % 2}.0/0000:{base:02x}:00.0"
        made.gpu(
            f"{switch}/0000:{base + 1:02x}:0{number % 2}.0/0000:{base + 2 + number % 2:02x}:00.0",
            V100,
            tray // 2,
            now="8.0 GT/s PCIe x16",
        )
        if number % 2:
            made.hca(
                f"{switch}/0000:{base + 1:02x}:08.0/0000:{base + 4:02x}:00.0",
                f"mlx5_{leaf}",
                tray // 2,
                identifier=CX6,
                now="8.0 GT/s PCIe x16",
            )
    for number in (8, 9):
        made.hca(
            f"pci0000:80/0000:80:00.0/0000:81:00.{number - 8}",
            f"mlx5_{number}",
            1,
            identifier=CX6,
            now="8.0 GT/s PCIe x16",
        )
    made.joined(6)
    return made


def dgx_a100() -> Machine:
    """8 A100 and 8 HCAs, four NUMA nodes with devices: an HCA below a switch, each of two GPUs below a second one of
    its own."""
    made = Machine(sockets={node: node // 4 for node in range(8)})
    for pair, (bus, numa) in enumerate((("00", 3), ("40", 1), ("80", 7), ("c0", 5))):
        base = int(bus, 16)
        upper = (
            f"pci0000:{bus}/0000:{bus}:01.1/0000:{base + 1:02x}:00.0/0000:{base + 2:02x}:00.0/0000:{base + 3:02x}:00.0"
        )
        for half in range(2):
            down = f"{upper}/0000:{base + 4:02x}:{half}0.0/0000:{base + 5 + 5 * half:02x}:00.0"
            leaf = base + 6 + 5 * half
            made.gpu(f"{down}/0000:{leaf:02x}:10.0/0000:{leaf + 1:02x}:00.0", A100, numa, now=GEN4)
            near = base + 16 + 2 * half
            made.hca(
                f"{upper}/0000:{base + 4:02x}:{half}8.0/0000:{near:02x}:00.0",
                f"mlx5_{2 * pair + half}",
                numa,
                identifier=CX6,
                now=GEN4,
            )
    made.joined(12)
    return made


def l40s() -> Machine:
    """Two sockets with two L40S and an HCA each, every device below a root port; the GPUs are idle, and their links
    slow."""
    made = Machine()
    for number, (bus, numa) in enumerate((("16", 0), ("38", 0), ("97", 1), ("c8", 1))):
        way = f"pci0000:{bus}/0000:{bus}:01.0/0000:{int(bus, 16) + 1:02x}:00.0"
        made.gpu(way, L40S, numa, pstate="P8", now="2.5 GT/s PCIe x16", most=GEN4)
        made.functions[way.rpartition("/")[0]][8:10] = ["32.0 GT/s PCIe", "16"]
        if number in (0, 2):
            made.hca(
                f"pci0000:{bus}/0000:{bus}:03.0/0000:{int(bus, 16) + 9:02x}:00.0",
                f"mlx5_{number // 2}",
                numa,
                layer="Ethernet",
            )
    made.matrix = ["topo|\tGPU0\tGPU1\tGPU2\tGPU3"] + [f"topo|GPU{index}\tX\tX\tX\tX" for index in range(4)]
    return made


def vm() -> Machine:
    """A VM with two H100 and two HCAs on its only bus; no NUMA node, and what QEMU shows where no link is."""
    made = Machine(sockets={0: 0})
    for number in range(2):
        made.gpu(f"pci0000:00/0000:00:0{5 + number}.0", H100, -1, now="32.0 GT/s PCIe x16")
        made.hca(
            f"pci0000:00/0000:00:0{7 + number}.0",
            f"mlx5_{number}",
            -1,
            identifier="15b3:101e",
            now="Unknown x0",
            most="Unknown x255",
        )
    made.joined(18)
    return made


def grace() -> Machine:
    """A GB200 tray: a PCI domain for each GPU and each HCA, two of each on a socket; no switch, no NVSwitch in
    sight."""
    made = Machine()
    for number, domain in enumerate(("0008", "0009", "0018", "0019")):
        made.gpu(f"platform/NVDA000{number}:00/pci{domain}:00/{domain}:00:00.0/{domain}:01:00.0", GB200, number // 2)
    for number, domain in enumerate(("0000", "0002", "0010", "0012")):
        made.hca(f"pci{domain}:00/{domain}:00:00.0/{domain}:03:00.0", f"mlx5_{number}", number // 2)
    made.joined(18)
    return made


def swapped() -> Machine:
    """8 H100 and 8 HCAs, but both HCAs of the first two rails are below the first's switch."""
    made = Machine()
    for number, bus in enumerate(("15", "38", "48", "59", "97", "b7", "c7", "d7")):
        made.gpu(port(rail(bus), 3), H100, number // 4)
        where = port(rail("15"), 5) if number == 1 else port(rail(bus), 1)
        made.hca(where, f"mlx5_{number}", number // 4)
    made.joined(18)
    return made


def shared() -> Machine:
    """4 A100, two below a switch with one HCA; and an HCA for storage on each socket."""
    made = Machine()
    for number in range(4):
        switch = rail(("15", "97")[number // 2])
        made.gpu(port(switch, 2 + number % 2), A100, number // 2, now=GEN4)
        if number % 2:
            made.hca(port(switch, 6), f"mlx5_{number // 2}", number // 2, identifier=CX6, now=GEN4)
            bus = ("6a", "e4")[number // 2]
            made.hca(
                f"pci0000:{bus}/0000:{bus}:01.0/0000:{int(bus, 16) + 1:02x}:00.0", f"storage{number // 2}", number // 2
            )
    made.joined(12)
    return made


def crowded() -> Machine:
    """As shared(), with a further HCA below the first switch: one pair has two, the other one."""
    made = shared()
    made.hca(port(rail("15"), 8), "mlx5_9", 0, identifier=CX6, now=GEN4)
    return made
