"""rdma: are the devices there, and their ports up; and what surrounds them: locked memory, packages, modules, UDP port
4791."""

from __future__ import annotations

from gpuprov.capabilities.rdma.fragment import Opensm, Rdma, Selector, Soft
from tests.capabilities.asking import PODMAN, Row, judge
from tests.capabilities.rdma_host import BRIDGE, TWO, device, host, packages, rxe
from tests.capabilities.toolkit_host import CLOCK, docker, podman
from tests.rows import run_each

DEVICES, PORTS, RATE = (f"rdma.{name}" for name in ("devices", "ports", "rate"))
KEPT = "rdma.kept_away"
RXE = Rdma(fabric="soft", soft=Soft(netdevs=("ens4",)))
ROCE = Rdma(fabric="roce")
ETHERNET = device("rocep59s0", layer="Ethernet", netdevs="ens5np0")
IWARP = device("iwp59s0", driver="ice", layer="Ethernet", node="4: RNIC", identifier="0x8086|0x1592")
ERDMA = device("rdmap0s6", driver="erdma", layer="Ethernet", node="4: RNIC", identifier="0x1ded|0x107f", firmware="")
BOND = device("mlx5_bond_0", layer="Ethernet", netdevs="bond0 ens1f0np0")
BOND += "leg|mlx5_bond_0|bond0|ens1f0np0|up up|1|1\nleg|mlx5_bond_0|bond0|ens1f1np1|down down|1|1\n"
PHYSICAL = device("mlx5_0", "0000:3b:00.0")
XDR = device("mlx5_0", "0000:0b:00.0", rate="800 Gb/sec (4X XDR)")
PLANES = device("smi1", "0000:0b:00.0", rate="200 Gb/sec (1X XDR)", lids=("0x0", "0x0"), ports=4)
"""An HCA of four planes, and its device for the subnet manager."""
VIRTUAL = device("mlx5_1", "0000:3b:00.1", virtual=True, state="1: DOWN", physical="5: LinkUp", netdevs="ibs1v0")
DEAD = host(silent=("0000:69:01.0|0x1021|0x020700", "0000:65:01.0|0x101d|0x020000"))
INIT = device("ibp59s0", state="2: INIT", lids=("0x0", "0x0"))


def by(**keys: str) -> Rdma:
    return Rdma(devices=(Selector(**keys),))


ROWS = [
    # Devices: by what does not change; NVLink bridges are none of them.
    Row("two adapters beside a bridge", DEVICES, Rdma(count=2), {}, "pass",
        "ibp94s0 (0000:5e:00.0); left out: mlx5_8 (NVLink bridges)"),
    Row("only a bridge", DEVICES, None, {"rdma_devices": BRIDGE}, "fail", "no RDMA device; left out: mlx5_8", "lspci"),
    Row("a bridge that is selected by driver", DEVICES, by(driver="mlx5_core"), {"rdma_devices": BRIDGE}, "fail",
        "no device has driver mlx5_core"),
    Row("drivers that load", KEPT, None, {}, "pass", "nothing keeps mlx5_core out"),
    Row("a driver that a command replaces", KEPT, None, {"modprobe_config": "install mlx5-core /bin/false\n"}, "fail",
        "install mlx5_core /bin/false (modprobe.d)", "take it out"),
    Row("a driver that is blacklisted", KEPT, ROCE, {"modprobe_config": "blacklist mlx5_core\n",
                                                     "rdma_devices": ETHERNET},
        "fail", "mlx5_core is blacklisted"),
    Row("which openibd loads by name", KEPT, Rdma(stack="doca-ofed"), {"modprobe_config": "blacklist mlx5_core\n"},
        "pass"),
    Row("a driver of gpuprov's own unit", KEPT, RXE, {"modprobe_config": "blacklist rdma_rxe\n"}, "n/a", "own unit"),
    Row("one adapter is lost", DEVICES, Rdma(count=2), {"rdma_devices": device("ibp59s0")}, "fail",
        "1: ibp59s0 (0000:3b:00.0)", "dmesg"),
    Row("one adapter too many", DEVICES, Rdma(count=1), {}, "fail", "2: ibp59s0", "name them in rdma.devices by pci"),
    # https://github.com/scitix/sichek/pull/118: mlx5_core failed on one of eight, and all that is left is well.
    Row("an adapter that did not start", DEVICES, None, {"rdma_host": DEAD}, "fail",
        "ibp94s0 (0000:5e:00.0); without an RDMA device: 0000:69:01.0 [15b3:1021]; left out",
        "dmesg | grep 0000:69:01.0; if it is not to have one: rdma.count"),
    Row("one that the spec does not count", DEVICES, Rdma(count=2), {"rdma_host": DEAD}, "pass", "ibp94s0"),
    Row("one that the spec does not name", DEVICES, by(pci="5e:00.0"), {"rdma_host": DEAD}, "pass", "ibp94s0"),
    Row("an Ethernet adapter that did not start", DEVICES, ROCE, {"rdma_host": DEAD, "rdma_devices": ETHERNET}, "fail",
        "without an RDMA device: 0000:65:01.0 [15b3:101d]"),
    Row("a bond with an interface down", PORTS, ROCE, {"rdma_devices": BOND}, "fail",
        "mlx5_bond_0: ens1f1np1 of bond0 is down", "ethtool ens1f1np1"),
    Row("a bond with both up", PORTS, ROCE, {"rdma_devices": BOND.replace("down down", "up up")}, "pass",
        "1 port ACTIVE"),
    # SR-IOV functions are their virtual machines' and pods':
    # https://github.com/openshift/sriov-network-operator/issues/635
    Row("SR-IOV functions that wait for pods", DEVICES, Rdma(count=1), {"rdma_devices": PHYSICAL + VIRTUAL}, "pass",
        "mlx5_0 (0000:3b:00.0); left out: 1 SR-IOV function"),
    Row("and are down", PORTS, None, {"rdma_devices": PHYSICAL + VIRTUAL}, "pass", "1 port ACTIVE"),
    Row("by driver", PORTS, by(driver="mlx5_core"), {"rdma_devices": PHYSICAL + VIRTUAL}, "pass", "1 port ACTIVE"),
    Row("one that is named", PORTS, by(netdev="ibs1v0"), {"rdma_devices": PHYSICAL + VIRTUAL}, "fail", "mlx5_1 port 1"),
    Row("no others", PORTS, None, {"rdma_devices": VIRTUAL}, "fail", "mlx5_1 port 1 is DOWN"),
    Row("a PCI address", DEVICES, by(pci="0000:5e:00.0"), {}, "pass", "ibp94s0"),
    Row("without a domain", DEVICES, by(pci="5e:00.0"), {}, "pass", "ibp94s0"),
    Row("one that is not there", DEVICES, by(pci="0000:af:00.0"), {}, "fail", "no device has pci 0000:af:00.0",
        "correct rdma.devices"),
    Row("all that is given must hold", DEVICES, by(pci="5e:00.0", driver="erdma"), {}, "fail",
        "no device has pci 5e:00.0, driver erdma"),
    Row("a port in Ethernet mode", DEVICES, by(pci="3b:00.0"), {"rdma_devices": ETHERNET}, "fail",
        "rocep59s0 (0000:3b:00.0) is Ethernet", "mlxconfig -d 0000:3b:00.0 set LINK_TYPE_P1=1"),
    Row("all ports in Ethernet mode", DEVICES, None, {"rdma_devices": ETHERNET}, "fail", "rocep59s0 is Ethernet",
        "LINK_TYPE_P1=1"),
    Row("an InfiniBand port where RoCE is asked for", DEVICES, ROCE, {}, "fail", "ibp59s0 is InfiniBand",
        "LINK_TYPE_P1=2"),
    Row("RoCE", DEVICES, ROCE, {"rdma_devices": ETHERNET}, "pass", "rocep59s0"),
    Row("by its interface", DEVICES, Rdma(fabric="roce", devices=(Selector(netdev="ens5np0"),)),
        {"rdma_devices": ETHERNET}, "pass"),
    Row("rxe is not a RoCE adapter", DEVICES, ROCE, {"rdma_devices": rxe()}, "fail", "is software (rdma_rxe)",
        "rdma.fabric"),
    Row("iWARP", DEVICES, Rdma(fabric="iwarp"), {"rdma_devices": IWARP}, "pass", "iwp59s0"),
    Row("an adapter in RoCE mode where iWARP is asked for", DEVICES, Rdma(fabric="iwarp"), {"rdma_devices": ETHERNET},
        "fail", "is Ethernet", "enable_iwarp"),
    Row("eRDMA is not an iWARP adapter of ours", DEVICES, Rdma(fabric="iwarp"), {"rdma_devices": ERDMA}, "fail",
        "driver erdma, iWARP"),
    Row("eRDMA", DEVICES, Rdma(fabric="erdma"), {"rdma_devices": ERDMA}, "pass", "rdmap0s6"),
    Row("no eRDMA", DEVICES, Rdma(fabric="erdma"), {"rdma_devices": ""}, "fail", "no RDMA device", "modprobe erdma"),
    Row("the RDMA part of the driver is not loaded", DEVICES, None,
        {"rdma_devices": "", "rdma_host": host(modules={"mlx5_ib": "there"})}, "fail", "no RDMA device",
        "modprobe mlx5_ib"),
    # Ports.
    Row("all up", PORTS, None, {}, "pass", "2 ports ACTIVE"),
    Row("a bridge's port in INIT does not count", PORTS, None, {"rdma_devices": TWO + BRIDGE}, "pass"),
    Row("no subnet manager", PORTS, None, {"rdma_devices": INIT}, "fail", "ibp59s0 port 1 is INIT (LinkUp), sm_lid 0",
        "no subnet manager"),
    Row("a subnet manager at work", PORTS, None, {"rdma_devices": device("ib0", state="3: ARMED")}, "fail", "is ARMED",
        "has not finished"),
    Row("no cable", PORTS, None, {"rdma_devices": device("ib0", state="1: DOWN", physical="2: Polling")}, "fail",
        "DOWN (Polling)", "cable"),
    Row("switched off", PORTS, None, {"rdma_devices": device("ib0", state="1: DOWN", physical="3: Disabled")}, "fail",
        "Disabled", "ibportstate"),
    Row("active without a LID", PORTS, None, {"rdma_devices": device("ib0", lids=("0x0", "0x0"))}, "fail",
        "ACTIVE with LID 0", "sminfo"),
    Row("active with the permissive LID", PORTS, None, {"rdma_devices": device("ib0", lids=("0xffff", "0x1"))}, "fail",
        "ACTIVE with LID 65535", "sminfo"),
    Row("LID 0 on Ethernet is right", PORTS, ROCE, {"rdma_devices": ETHERNET}, "pass"),
    Row("an interface that is down", PORTS, RXE, {"rdma_devices": rxe(state="1: DOWN", physical="3: Disabled")},
        "fail", "DOWN", "ip link set"),
    Row("no carrier", PORTS, RXE, {"rdma_devices": rxe(state="1: DOWN", physical="2: Polling")}, "fail",
        "network interface ens4", "ip link set ens4 up"),
    Row("the second of two ports", PORTS, None, {"rdma_devices": device("mlx4_0", ports=2)}, "pass", "2 ports"),
    Row("a device without ports", PORTS, by(pci="3b:00.0"), {"rdma_devices": device("ib0", ports=0)}, "fail",
        "no port"),
    Row("no device", PORTS, None, {"rdma_devices": ""}, "fail", "see rdma.devices"),
    Row("rate", RATE, Rdma(rate=400), {}, "pass", "400 Gb/s"),
    Row("no rate asked for", RATE, None, {}, "n/a", "not in the spec"),
    Row("fewer lanes", RATE, Rdma(rate=400), {"rdma_devices": TWO + device("ib2", rate="100 Gb/sec (1X NDR)")}, "fail",
        "ib2 port 1: 100 Gb/s", "cable"),
    Row("a slow bridge does not count", RATE, Rdma(rate=400),
        {"rdma_devices": TWO + device("b", bridge=True, rate="10 Gb/sec")}, "pass"),
    Row("an HCA of four planes", DEVICES, Rdma(count=1), {"rdma_devices": XDR + PLANES}, "pass",
        "left out: smi1 (smi of mlx5_0)"),
    Row("its port", PORTS, None, {"rdma_devices": XDR + PLANES}, "pass", "1 port ACTIVE"),
    Row("its rate", RATE, Rdma(rate=800), {"rdma_devices": XDR + PLANES}, "pass", "800 Gb/s"),
    Row("by its address", DEVICES, by(pci="0000:0b:00.0"), {"rdma_devices": XDR + PLANES}, "pass",
        "mlx5_0 (0000:0b:00.0)"),
    Row("only the device of the planes", DEVICES, None, {"rdma_devices": "sub|smi1|smi|mlx5_0\n" + PLANES}, "fail",
        "no RDMA device; left out: smi1"),
    Row("a rate without a device", RATE, Rdma(rate=400), {"rdma_devices": ""}, "fail", "no such device"),
]  # fmt: skip

MEMLOCK, MEMLOCK_BOOT, PACKAGES, KERNEL, INTERFACES, PORT = (
    f"rdma.{name}" for name in ("memlock", "memlock_boot", "packages", "kernel", "interfaces", "port")
)
SIW = Rdma(fabric="soft", soft=Soft(driver="siw", netdevs=("ens4",)))
MANAGED = Rdma(opensm=Opensm(hosts=("gpu1",)))
TAKEN = 'UNCONN 0 0 0.0.0.0:4791 0.0.0.0:* users:(("gunicorn",pid=612,fd=3))'
KERNELS = "UNCONN 0 0 0.0.0.0:4791 0.0.0.0:*"
CLOUD = {"platform": "Linux 6.1.0-47-cloud-amd64 x86_64\n"}
AROUND = [
    # Memory that may be locked: login sessions AND daemons.
    Row("unlimited", MEMLOCK, None, {}, "pass", "unlimited"),
    Row("logins only", MEMLOCK, None,
        {"default_limits": "DefaultLimitMEMLOCK=8388608\nDefaultLimitMEMLOCKSoft=8388608\n"}, "fail",
        "services: 8388608 bytes", "limits.conf counts for login sessions only"),
    Row("services only", MEMLOCK, None, {"login_limits": ""}, "fail", "login sessions: unset", "next login"),
    Row("soft limit of logins", MEMLOCK, None, {"login_limits": "* soft memlock 64\n* hard memlock unlimited\n"},
        "fail", "64:unlimited"),
    Row("a group that has less", MEMLOCK, None, {"login_limits": "* - memlock unlimited\n@gpu hard memlock 64\n"},
        "fail", "login of @gpu has memlock unset:64", "goes before that of everyone"),
    Row("a daemon that was started before", MEMLOCK, None,
        {"rdma_host": host(daemons=("containerd.service|65536|infinity",))}, "fail",
        "containerd.service now: 65536 bytes", "prlimit",
        change="setting memlock of containerd.service: 65536 -> unlimited"),
    Row("a daemon of a container that may lift nothing", MEMLOCK, None,
        {"rdma_host": host(daemons=("docker.service|8192|infinity",), bound=True)}, "skip",
        "docker.service 8192 bytes; set it where the container is started: --ulimit memlock=-1"),
    Row("what gpuprov can set there fails all the same", MEMLOCK, None,
        {"login_limits": "", "rdma_host": host(daemons=("docker.service|8192|infinity",), bound=True)}, "fail",
        "login sessions: unset", "next login"),
    Row("a container that may lift nothing, and need not", MEMLOCK, None, {"rdma_host": host(bound=True)}, "pass",
        "unlimited"),
    Row("as many KiB", MEMLOCK, Rdma(memlock="64"), {"rdma_host": host(daemons=("docker.service|65536|65536",))},
        "pass", "64"),
    Row("fewer KiB", MEMLOCK, Rdma(memlock="65"), {"rdma_host": host(daemons=("docker.service|65536|65536",))},
        "fail", "docker.service"),
    Row("left alone", MEMLOCK, Rdma(memlock=""), {"login_limits": "", "rdma_host": host()}, "n/a", "not in the spec"),
    Row("a limit of the unit's own", MEMLOCK_BOOT, None,
        {"rdma_host": host(daemons=("docker.service|unlimited|65536",))}, "fail",
        "docker.service: LimitMEMLOCK=65536", "systemctl cat docker.service",
        change="file /etc/systemd/system/docker.service.d/50-gpuprov-rdma.conf: 65536 -> unlimited"),
    Row("none", MEMLOCK_BOOT, None, {}, "pass", "containerd.service: infinity"),
    Row("no such service", MEMLOCK_BOOT, None, {"rdma_host": host(daemons=())}, "pass", "none of these services runs"),
    *(Row(f"containers' limits: {words or 'enough'}", MEMLOCK_BOOT, None, {"container_engines": CLOCK + text}, status,
          words, *more)
      for text, status, words, *more in (
        (docker({"default-ulimits": {"memlock": {"Name": "memlock", "Soft": 65536, "Hard": -1}}}), "fail",
         "/etc/docker/daemon.json gives containers of docker 65536 bytes", "take memlock out of the ulimits"),
        (docker({"default-ulimits": {"memlock": {"Soft": -1, "Hard": -1}, "nofile": {"Soft": 5}}}), "pass", ""),
        (f'{podman()}@file /etc/containers/containers.conf 1\n [containers]\n default_ulimits = ["nofile=5:5", '
         '"memlock=64:64"]\n',
         "fail", "/etc/containers/containers.conf gives containers of podman 64 bytes"),
        (f'{podman()}@file /etc/containers/containers.conf 1\n [containers]\n default_ulimits = ["memlock=-1:-1"]\n',
         "pass", ""),
      )),
    Row("units left alone", MEMLOCK_BOOT, Rdma(memlock=""), {}, "n/a", "not in the spec"),
    # Before anything is changed.
    Row("inbox packages", PACKAGES, None, {}, "pass", "rdma-core 44.0-2"),
    Row("none of them", PACKAGES, None, {"rdma_packages": ""}, "fail", "not installed: rdma-core",
        "apt-get install rdma-core", change="package rdma-core:  -> installed"),
    Row("InfiniBand's tools are missing", PACKAGES, None,
        {"rdma_packages": packages("rdma-core", "ibverbs-providers", "ibverbs-utils", "rdmacm-utils")}, "fail",
        "not installed: infiniband-diags"),
    Row("not needed without InfiniBand", PACKAGES, ROCE,
        {"rdma_packages": packages("rdma-core", "ibverbs-providers", "ibverbs-utils", "rdmacm-utils")}, "pass"),
    Row("half-installed", PACKAGES, None, {"rdma_packages": packages(state="iU ")}, "fail", "half-installed",
        "dpkg --configure"),
    Row("opensm's package", PACKAGES, MANAGED, {}, "fail", "not installed: opensm"),
    Row("another stack", PACKAGES, Rdma(stack="doca-ofed"), {"rdma_packages": ""}, "n/a", "doca-ofed"),
    Row("the vendor's stack", PACKAGES, Rdma(fabric="erdma"), {"rdma_packages": ""}, "n/a", "erdma-vendor"),
    Row("the kernel has all", KERNEL, None, {}, "pass", "ib_umad in kernel 6.1.0-47-amd64"),
    Row("rxe in the generic kernel", KERNEL, RXE, {}, "pass", "rdma_rxe"),
    Row("no rxe in the cloud kernel", KERNEL, RXE, {**CLOUD, "rdma_host": host(modules={"rdma_rxe": "absent"})},
        "fail", "6.1.0-47-cloud-amd64 has no rdma_rxe", "apt-get install linux-image-amd64"),
    Row("no siw on Debian", KERNEL, SIW, {}, "fail", "has no siw", "no kernel of Debian is built with siw"),
    Row("Ubuntu without its extra modules", KERNEL, RXE,
        {"os_release": "ID=ubuntu\nID_LIKE=debian\nVERSION_ID=24.04\n",
        "rdma_host": host(modules={"rdma_rxe": "absent"})}, "fail", "no rdma_rxe", "linux-modules-extra"),
    Row("a kernel of one's own", KERNEL, RXE,
        {"platform": "Linux 6.9.1-mine x86_64\n", "rdma_host": host(modules={"rdma_rxe": "absent"})}, "fail",
        "6.9.1-mine has no rdma_rxe", "a kernel that has rdma_rxe"),
    Row("a container", KERNEL, None, {**PODMAN, "rdma_host": host(modules={"ib_umad": "absent"})}, "skip",
        "podman container"),
    Row("software devices in a container", KERNEL, RXE, {**PODMAN, "rdma_host": host(modules={"rdma_rxe": "absent"})},
        "fail", "podman container: rdma_rxe not loaded", "a machine, not a container"),
    Row("another stack's modules", KERNEL, Rdma(stack="doca-ofed"), {"rdma_host": host(modules={"ib_umad": "absent"})},
        "pass", "no module"),
    Row("interfaces", INTERFACES, RXE, {}, "pass", "ens4"),
    Row("an interface that is not there", INTERFACES, Rdma(fabric="soft", soft=Soft(netdevs=("eth7",))), {}, "fail",
        "no eth7; the host has lo ens4", "correct rdma.soft.netdevs"),
    Row("no default route", INTERFACES, Rdma(fabric="soft"), {"rdma_host": host(route="")}, "fail",
        "none; the host has", "netdevs: [NAME]"),
    Row("one interface by name and address", INTERFACES,
        Rdma(fabric="soft", soft=Soft(netdevs=("ens4", "52:54:00:4d:00:01"))), {}, "fail", "ens4 is named twice",
        "take one out"),
    Row("a VLAN", INTERFACES, Rdma(fabric="soft", soft=Soft(netdevs=("ens4.7",))),
        {"rdma_host": host(netdevs=("ens4.7|52:54:00:4d:00:01|up|1||vlan",))}, "fail", "ens4.7 is a VLAN",
        "the interface below"),
    Row("hardware has its own", INTERFACES, None, {}, "n/a", "not in the spec"),
    Row("the port is free", PORT, RXE, {}, "pass", "free"),
    Row("rxe has the port", PORT, RXE, {"rdma_host": host(port=(KERNELS,), modules={"rdma_rxe": "loaded"})}, "pass",
        "rxe has it"),
    Row("a program has it", PORT, RXE, {"rdma_host": host(port=(TAKEN,))}, "fail", "held by gunicorn",
        "end that program"),
    Row("eRDMA in compat mode", PORT, RXE, {"rdma_host": host(port=(KERNELS,), modules={"erdma": "loaded"})}, "fail",
        "the kernel (eRDMA in compat mode?)", "rmmod erdma"),
    Row("siw needs no port", PORT, SIW, {"rdma_host": host(port=(TAKEN,))}, "n/a", "not in the spec"),
]  # fmt: skip


@run_each("row", [*ROWS, *AROUND], ids=lambda row: f"{row.check}: {row.name}")
def test_answers(row: Row) -> None:
    judge(row)
