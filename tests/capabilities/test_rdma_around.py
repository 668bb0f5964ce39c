"""rdma: what surrounds the devices: locked memory of logins and services, packages, modules, interfaces, UDP port 4791."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.rdma.fragment import Opensm, Rdma, Soft
from tests.capabilities.asking import PODMAN, Row, judge
from tests.capabilities.rdma_host import host, packages

MEMLOCK, MEMLOCK_BOOT, PACKAGES, KERNEL, INTERFACES, PORT = (
    f"rdma.{name}" for name in ("memlock", "memlock_boot", "packages", "kernel", "interfaces", "port")
)
RXE = Rdma(fabric="soft", soft=Soft(netdevs=("ens4",)))
SIW = Rdma(fabric="soft", soft=Soft(driver="siw", netdevs=("ens4",)))
ROCE = Rdma(fabric="roce")
MANAGED = Rdma(opensm=Opensm(hosts=("gpu1",)))
TAKEN = 'UNCONN 0 0 0.0.0.0:4791 0.0.0.0:* users:(("gunicorn",pid=612,fd=3))'
KERNELS = "UNCONN 0 0 0.0.0.0:4791 0.0.0.0:*"
CLOUD = {"platform": "Linux 6.1.0-47-cloud-amd64 x86_64\n"}


ROWS = [
    # Memory that may be locked: login sessions AND daemons.
    Row("unlimited", MEMLOCK, None, {}, "pass", "unlimited"),
    Row("logins only", MEMLOCK, None,
        {"default_limits": "DefaultLimitMEMLOCK=8388608\nDefaultLimitMEMLOCKSoft=8388608\n"}, "fail",
        "services: 8388608 bytes", "limits.conf counts for login sessions only"),
    Row("services only", MEMLOCK, None, {"login_limits": ""}, "fail", "login sessions: unset", "next login"),
    Row("soft limit of logins", MEMLOCK, None, {"login_limits": "* soft memlock 64\n* hard memlock unlimited\n"},
        "fail", "64:unlimited"),
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


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.check}: {row.name}")
def test_answers(row: Row) -> None:
    judge(row)
