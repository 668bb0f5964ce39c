"""RDMA devices and what surrounds them, read by the probes' own scripts from folders that look like sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.rdma import DEVICES, Gid, RdmaDevice, RdmaPort, list_hcas, parse
from gpuprov.facts.probes.rdma.surroundings import HOST, Daemon, RdmaHost
from gpuprov.facts.probes.rdma.surroundings import parse as parse_host
from gpuprov.host_code.at_boot.network import Netdev
from tests.facts.probes import run_script

UNSET = "0000:0000:0000:0000:0000:0000:0000:0000"
MAPPED = "0000:0000:0000:0000:0000:ffff:0a4d:0001"
LINK_LOCAL = "fe80:0000:0000:0000:5054:00ff:fe4d:0001"


def put(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        place = folder / name.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{text}\n")
    return folder


def hca(root: Path, name: str, address: str, *, layer: str = "InfiniBand", driver: str = "mlx5_core", vpd: bytes = b"",
        node: str = "1: CA", lids: tuple[str, str] = ("0x11", "0x1"), firmware: str = "28.39.1002",
        gids: dict[str, tuple[str, str]] | None = None, state: str = "4: ACTIVE", net: str = "") -> Path:  # fmt: skip
    """A device as the kernel shows it: its PCI function, and one port."""
    function = put(root / "devices" / address, vendor="0x15b3", device="0x1021", numa_node="1")
    (function / "vpd").write_bytes(vpd)
    (root / "drivers" / driver).mkdir(parents=True, exist_ok=True)
    (function / "driver").symlink_to(root / "drivers" / driver)
    if net:
        (function / "net" / net).mkdir(parents=True)
        put(root / "net" / net, address="b8:3f:d2:00:00:01", operstate="up", type="1")
    folder = put(root / "infiniband" / name, node_type=node, node_guid="b83f:d203:0012:3456", fw_ver=firmware)
    (folder / "device").symlink_to(function)
    port = put(folder / "ports" / "1", state=state, phys_state="5: LinkUp", link_layer=layer,
               rate="400 Gb/sec (4X NDR)", lid=lids[0],
               sm_lid=lids[1])  # fmt: skip
    for index in range(4):
        gid, kind = (gids or {}).get(str(index), (UNSET, ""))
        put(port, **{f"gids__{index}": gid})
        if kind:
            put(port, **{f"gid_attrs__types__{index}": kind, f"gid_attrs__ndevs__{index}": net})
    return folder


def soft(root: Path, name: str, **files: str) -> Path:
    folder = put(root / "infiniband" / name, node_guid="5054:00ff:fe4d:0001", fw_ver="", **files)
    put(folder / "ports" / "1", state="4: ACTIVE", phys_state="5: LinkUp", link_layer="Ethernet",
        rate="2.5 Gb/sec (1X SDR)",
        lid="0x0", sm_lid="0x0", gid_attrs__ndevs__0="ens4", gids__0=LINK_LOCAL, gid_attrs__types__0="RoCE v2")  # fmt: skip
    put(root / "net" / "ens4", address="52:54:00:4d:00:01", operstate="up", type="1")
    return folder


def read(root: Path, script: str, **programs: str) -> Output:
    for place, there in (("/sys/class/infiniband_mad", "mad"), ("/sys/class/infiniband", "infiniband"),
                         ("/sys/class/net", "net"),
                         ("/sys/module", "module"), ("/lib/modules", "modules"), ("/proc/net/vlan", "vlan"),
                         ("/proc/$p", "proc/$p"),
                         ("/proc/[0-9]*", "proc/[0-9]*"), ("/proc/self", "self"),
                         ("/sys/bus/pci/devices", "devices"), ("/etc/gpuprov", "etc"),
                         ("/etc/systemd/system", "units")):  # fmt: skip
        script = script.replace(place, f"{root}/{there}")
    output = run_script(script, root, programs)
    assert output.error == ""
    return output


def devices(root: Path) -> tuple[RdmaDevice, ...]:
    return parse(read(root, DEVICES.script))


def test_no_rdma_at_all(tmp_path: Path) -> None:
    assert devices(tmp_path) == ()


def test_an_adapter_and_its_port(tmp_path: Path) -> None:
    hca(tmp_path, "ibp59s0", "0000:3b:00.0", gids={"0": (LINK_LOCAL, "IB/RoCE v1")})
    (found,) = devices(tmp_path)
    assert found == RdmaDevice(
        name="ibp59s0", driver="mlx5_core", address="0000:3b:00.0", identifier="15b3:1021", node_type="CA",
        node_guid="b83f:d203:0012:3456", firmware="28.39.1002", numa_node=1,
        ports=(RdmaPort(number=1, state="ACTIVE", physical="LinkUp", link_layer="InfiniBand", rate=400.0, lid=17,
                        sm_lid=1,
                        gids=(Gid(index=0, gid=LINK_LOCAL, kind="IB/RoCE v1"),)),),
    )  # fmt: skip
    assert not found.soft


def test_a_bridge_of_the_nvswitch_board_is_no_adapter(tmp_path: Path) -> None:
    """ConnectX-7 functions that manage NVLink say SW_MNG in their VPD, between bytes that are not text."""
    hca(tmp_path, "mlx5_8", "0000:07:00.0", vpd=b"\x82\x10\x00NVLink5\x00V0\x06SW_MNG\x00\xff")
    hca(tmp_path, "mlx5_0", "0000:3b:00.0", vpd=b"\x82\x10\x00ConnectX-7\x00")
    assert [(one.name, one.bridge) for one in devices(tmp_path)] == [("mlx5_0", False), ("mlx5_8", True)]
    assert [one.name for one in list_hcas(devices(tmp_path))] == ["mlx5_0"]


RDMA_DEV = """cat <<'END'
1: ibp11s0: node_type ca fw 40.45.1200 node_guid a088:c203:0000:0000 sys_image_guid a088:c203:0000:0000
2: smi1: node_type ca fw 40.45.1200 node_guid a088:c203:0000:0000 sys_image_guid a088:c203:0000:0000 type smi parent ibp11s0
END"""


@pytest.mark.install
@pytest.mark.parametrize("said", [RDMA_DEV, "exit 1", RDMA_DEV.replace(" type smi parent ibp11s0", "")])
@pytest.mark.parametrize("name", ["smi1", "a_name_of_their_own"])
def test_a_device_of_the_subnet_manager_is_no_adapter(tmp_path: Path, said: str, name: str) -> None:
    """ConnectX-8 with four planes: the kernel tells the type; an older rdma does not, and then the planes do."""
    hca(tmp_path, "ibp11s0", "0000:0b:00.0")
    folder = put(
        tmp_path / "infiniband" / name, node_type="1: CA", node_guid="b83f:d203:0012:3456", fw_ver="28.39.1002"
    )
    (folder / "device").symlink_to(tmp_path / "devices" / "0000:0b:00.0")
    for plane in range(1, 5):
        put(
            folder / "ports" / str(plane),
            state="4: ACTIVE",
            link_layer="InfiniBand",
            rate="200 Gb/sec (1X XDR)",
            lid="0x0",
        )
    found = parse(read(tmp_path, DEVICES.script, rdma=said.replace("smi1", name)))
    assert {one.name: (one.type, one.parent) for one in found} == {"ibp11s0": ("hca", ""), name: ("smi", "ibp11s0")}
    assert [one.name for one in list_hcas(found)] == ["ibp11s0"]


def test_a_sub_device_of_a_type_yet_to_come_is_no_adapter(tmp_path: Path) -> None:
    hca(tmp_path, "ibp11s0", "0000:0b:00.0")
    hca(tmp_path, "ibp12s0", "0000:0c:00.0")
    said = "echo '2: ibp12s0: node_type ca type newish parent ibp11s0'"
    found = parse(read(tmp_path, DEVICES.script, rdma=said))
    assert [(one.name, one.type) for one in found] == [("ibp11s0", "hca"), ("ibp12s0", "newish")]
    assert [one.name for one in list_hcas(found)] == ["ibp11s0"]


def test_two_ports_are_no_planes(tmp_path: Path) -> None:
    """A device with two ports, and the two functions of a card, are what they are."""
    for number in (0, 1):
        folder = hca(tmp_path, f"mlx5_{number}", f"0000:0b:00.{number}")
        put(folder / "ports" / "2", state="4: ACTIVE", link_layer="InfiniBand", rate="200 Gb/sec (4X HDR)")
    assert {one.type for one in devices(tmp_path)} == {"hca"}


def test_an_sriov_function_beside_its_physical_function(tmp_path: Path) -> None:
    hca(tmp_path, "mlx5_0", "0000:3b:00.0")
    hca(tmp_path, "mlx5_1", "0000:3b:00.1")
    (tmp_path / "devices" / "0000:3b:00.1" / "physfn").symlink_to(tmp_path / "devices" / "0000:3b:00.0")
    assert [(one.name, one.virtual, one.bridge) for one in devices(tmp_path)] == [
        ("mlx5_0", False, False),
        ("mlx5_1", True, False),
    ]


@pytest.mark.install
@pytest.mark.parametrize(
    ("state", "status", "aggregator", "told"),
    [
        ("up", "up", "1", ()),
        ("down", "down", "1", ("ens1f1np1 of bond0 is down",)),
        ("down", "up", "N/A", ("ens1f1np1 of bond0 is down",)),
        ("up", "up", "2", ("ens1f1np1 of bond0 is not in its active LACP aggregator",)),
        ("up", "up", "N/A", ()),
    ],
    ids=["both up", "a cable is out", "the same without miimon", "another aggregator", "no LACP"],
)
def test_a_bond_that_lost_an_interface(
    tmp_path: Path, state: str, status: str, aggregator: str, told: tuple[str, ...]
) -> None:
    """Its device has the first interface, and is ACTIVE while one of both is up:
    https://github.com/openucx/ucx/pull/5401"""
    hca(tmp_path, "mlx5_bond_0", "0000:3b:00.0", layer="Ethernet", lids=("0x0", "0x0"), net="ens1f0np0")
    bond = put(tmp_path / "net" / "bond0", address="b8:3f:d2:00:00:01", bonding__ad_aggregator="1")
    rows = {"ens1f0np0": ("up", "up", "1"), "ens1f1np1": (state, status, aggregator)}
    for name, (carrier, mii, own) in rows.items():
        slave = put(
            tmp_path / "net" / name,
            operstate=carrier,
            bonding_slave__mii_status=mii,
            bonding_slave__ad_aggregator_id=own,
        )
        (slave / "master").symlink_to(bond)
        (bond / f"lower_{name}").symlink_to(slave)
    (found,) = devices(tmp_path)
    assert (found.legs, found.ports[0].state) == (told, "ACTIVE")


def test_adapters_that_are_dead(tmp_path: Path) -> None:
    """mlx5_core failed to start one; the firmware of another crashed. Beside them: healthy functions without an RDMA
    device."""
    (tmp_path / "drivers" / "mlx5_core").mkdir(parents=True)
    (tmp_path / "drivers" / "vfio-pci").mkdir()
    rows = {
        "69:01.0": ("0x020700", "", ""),
        "65:01.0": ("0x020000", "mlx5_core", ""),
        "3b:00.0": ("0x020700", "mlx5_core", "infiniband"),
        "3b:00.1": ("0x020000", "mlx5_core", "net"),
        "3b:00.2": ("0x020700", "mlx5_core", "physfn"),
        "3b:00.3": ("0x020700", "mlx5_core", "mlx5_core.rdma.3"),
        "5e:00.0": ("0x020700", "vfio-pci", ""),
        "5e:00.1": ("0x060400", "", ""),
    }
    for address, (kind, driver, has) in rows.items():
        function = put(tmp_path / "devices" / f"0000:{address}", **{"class": kind}, vendor="0x15b3", device="0x1021")
        if driver:
            (function / "driver").symlink_to(tmp_path / "drivers" / driver)
        if has:
            (function / has).mkdir()
    put(tmp_path / "devices" / "0000:08:00.0", **{"class": "0x020000"}, vendor="0x15b3", device="0x1007")
    bridge = put(tmp_path / "devices" / "0000:07:00.0", **{"class": "0x020700"}, vendor="0x15b3", device="0x1021")
    (bridge / "vpd").write_bytes(b"\x82\x00V0\x06SW_MNG\x00\xff")
    found = parse_host(read(tmp_path, HOST.script, **GOOD)).silent
    assert [(one.address, one.identifier, one.infiniband) for one in found] == [
        ("0000:65:01.0", "15b3:1021", False),
        ("0000:69:01.0", "15b3:1021", True),
    ]


def test_gids_that_are_set_by_type_and_address(tmp_path: Path) -> None:
    table = {"0": (LINK_LOCAL, "IB/RoCE v1"), "1": (LINK_LOCAL, "RoCE v2"), "3": (MAPPED, "RoCE v2")}
    hca(tmp_path, "rocep59s0", "0000:3b:00.0", layer="Ethernet", lids=("0x0", "0x0"), gids=table, net="ens5np0")
    (found,) = devices(tmp_path)
    assert (found.netdevs, found.macs) == (("ens5np0",), ("b8:3f:d2:00:00:01",))
    assert [(gid.index, gid.kind, gid.ipv4, gid.netdev) for gid in found.ports[0].gids] == [
        (0, "IB/RoCE v1", "", "ens5np0"),
        (1, "RoCE v2", "", "ens5np0"),
        (3, "RoCE v2", "10.77.0.1", "ens5np0"),
    ]


def test_software_devices_are_known_by_what_only_they_have(tmp_path: Path) -> None:
    """As rxe of Linux 6.1 shows itself; siw's device may be the network card that it runs on."""
    soft(tmp_path, "rocex525400fffe4d0001", parent="ens4", node_type="1: CA")
    siw = soft(tmp_path, "iwx525400fffe4d0001", node_type="4: RNIC")
    (siw / "device").symlink_to(put(tmp_path / "devices" / "virtio1", vendor="0x1af4", device="0x0001"))
    hca(tmp_path, "iwp59s0", "0000:3b:00.0", driver="ice", node="4: RNIC", layer="Ethernet", firmware="1.60")
    hca(tmp_path, "rdmap0s6", "0000:00:06.0", driver="erdma", node="4: RNIC", layer="Ethernet", firmware="")
    found = {one.name: (one.driver, one.soft, one.netdevs) for one in devices(tmp_path)}
    assert found == {
        "rocex525400fffe4d0001": ("rdma_rxe", True, ("ens4",)),
        "iwx525400fffe4d0001": ("siw", True, ("ens4",)),
        "iwp59s0": ("ice", False, ()),
        "rdmap0s6": ("erdma", False, ()),
    }


SHOWN = "Id=%s\\nLoadState=%s\\nActiveState=%s\\nUnitFileState=enabled\\nMainPID=%s\\nLimitMEMLOCK=%s\\n\\n"
SYSTEMCTL = f"""case "$*" in *rdma-soft*) printf 'LoadState=loaded\\nActiveState=failed\\nUnitFileState=enabled\\n'
  exit ;; esac
printf '{SHOWN}' containerd.service loaded active 612 infinity \\
  docker.service not-found inactive 0 65536"""
SS = """echo 'UNCONN 0 0 0.0.0.0:4791 0.0.0.0:*'; echo 'UNCONN 0 0 [::]:4791 [::]:*'"""
SS_PROGRAM = """echo 'UNCONN 0 0 0.0.0.0:4791 0.0.0.0:* users:(("gunicorn",pid=612,fd=3))'"""
GOOD = {
    "uname": "echo 6.1.0",
    "systemctl": SYSTEMCTL,
    "ss": SS,
    "ip": "[ $1 = -4 ] && echo 'default via 10.0.2.2 dev ens3 proto static metric 100'; true",
}


def test_what_surrounds_the_devices(tmp_path: Path) -> None:
    (tmp_path / "module" / "rdma_rxe").mkdir(parents=True)
    deps = (
        "kernel/drivers/infiniband/core/ib_umad.ko.xz: "
        "kernel/x/ib_core.ko.xz\nkernel/y/rdma_rxe.ko:\nkernel/y/notsiw.ko:"
    )
    put(
        tmp_path / "modules" / "6.1.0",
        **{"modules.dep": deps, "modules.builtin": "kernel/drivers/infiniband/core/ib_uverbs.ko"},
    )
    put(tmp_path / "net" / "ens3", address="52:54:00:12:34:56", operstate="up", type="1")
    put(tmp_path / "net" / "ib0", address="80:00:02:08", operstate="down", type="32")
    function = put(tmp_path / "devices" / "0000:3b:00.0", vendor="0x15b3")
    put(function, **{"class": "0x020700"})
    (tmp_path / "net" / "ib0" / "device").symlink_to(function)
    put(tmp_path / "net" / "ens3.7", address="52:54:00:12:34:56", operstate="up", type="1")
    put(tmp_path / "vlan", **{"ens3.7": ""})
    put(tmp_path / "etc", **{"rdma-soft.conf": "# managed\nrxe ens9"})
    put(tmp_path / "units", **{"gpuprov-rdma-soft.service": ""})
    put(tmp_path / "proc" / "612", limits="Max locked memory         65536                65536                bytes")
    for pid, (name, owner) in enumerate((("opensm", 0), ("opensm", 0), ("opensmd", 0), ("opensm", 1000)), 700):
        put(tmp_path / "proc" / str(pid), comm=name, status=f"Name:\t{name}\nUid:\t{owner}\t0\t0\t0")
    for number in range(3):
        (tmp_path / "mad" / f"umad{number}").mkdir(parents=True)
    found = parse_host(read(tmp_path, HOST.script, **GOOD))
    assert found.modules == {
        "ib_uverbs": "there", "rdma_ucm": "absent", "ib_umad": "there", "mlx5_ib": "absent", "ib_ipoib": "absent",
        "iw_cm": "absent",
        "rdma_rxe": "loaded", "siw": "absent", "erdma": "absent",
    }  # fmt: skip
    assert found.netdevs == (
        Netdev(name="ens3", mac="52:54:00:12:34:56", state="up", kind=1),
        Netdev(name="ens3.7", mac="52:54:00:12:34:56", state="up", kind=1, vlan=True),
        Netdev(name="ib0", mac="80:00:02:08", state="down", kind=32, address="0000:3b:00.0"),
    )
    assert (found.default_route, found.port_users, found.managers, found.umad) == ("ens3", ("kernel",), 2, 3)
    assert (found.soft.load, found.soft.active, found.soft.file) == ("loaded", "failed", "enabled")
    assert found.soft.config == ("rxe ens9",)
    assert found.daemons == (Daemon(unit="containerd.service", now="65536", unit_limit="infinity"),)
    assert found.netdev("52:54:00:12:34:56") == found.netdevs[0], "the interface itself, before its VLAN"


@pytest.mark.parametrize(
    ("capabilities", "uids", "user", "bound"),
    [
        ("000001ffffffffff", "         0          0 4294967295", "0", False),
        ("000001fffeffffff", "         0          0 4294967295", "0", True),
        ("000001ffffffffff", "         0     100000      65536", "0", True),
        ("0000000000000000", "         0          0 4294967295", "1000", False),
    ],
    ids=["a machine", "without CAP_SYS_RESOURCE", "a user namespace", "not root: nobody knows"],
)
def test_where_root_may_lift_no_limit(tmp_path: Path, capabilities: str, uids: str, user: str, *, bound: bool) -> None:
    put(tmp_path / "self", status=f"Name:\tsh\nCapPrm:\t0\nCapEff:\t{capabilities}", uid_map=uids)
    assert parse_host(read(tmp_path, HOST.script, **GOOD, id=f"echo {user}")).bound is bound


def test_a_host_without_any_of_it(tmp_path: Path) -> None:
    nothing = dict.fromkeys(GOOD, "exit 1")
    found = parse_host(read(tmp_path, HOST.script, **nothing))
    assert found == RdmaHost(modules=dict.fromkeys(found.modules, "absent"))
    assert parse_host(read(tmp_path, HOST.script, **{**nothing, "ss": SS_PROGRAM})).port_users == ("gunicorn",)


def test_a_line_of_a_bond_that_is_cut_off_is_an_error_like_any_other() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        parse(Output(text="leg|mlx5_bond_0|bond0\n"))


LINKS = """cat <<'END'
link rocep8s0f0/1 state ACTIVE physical_state LINK_UP netdev enp8s0f0np0
link rocep8s0f0/2 state DOWN physical_state DISABLED netdev enp8s0f0npf0vf0
link rocep8s0f0/3 state ACTIVE physical_state LINK_UP netdev enp8s0f0npf0sf88
END"""


def switch(root: Path, ports: int = 4) -> Path:
    """An adapter with its embedded switch in switchdev mode: an uplink, a function of each kind, and one that is not
    set up."""
    folder = hca(root, "rocep8s0f0", "0000:08:00.0", layer="Ethernet", net="enp8s0f0np0")
    for name, port in (("enp8s0f0np0", "p0"), ("enp8s0f0npf0vf0", "pf0vf0"), ("enp8s0f0npf0sf88", "c1pf0sf88")):
        put(root / "net" / name, address="b8:3f:d2:00:00:01", operstate="up", type="1", phys_port_name=port)
        (root / "devices" / "0000:08:00.0" / "net" / name).mkdir(parents=True, exist_ok=True)
    for number in range(2, ports + 1):
        put(folder / "ports" / str(number), state="1: DOWN", phys_state="3: Disabled", link_layer="Ethernet", lid="0x0")
    return folder


def test_a_port_that_stands_for_another_function_is_none_of_the_adapter(tmp_path: Path) -> None:
    switch(tmp_path)
    (found,) = parse(read(tmp_path, DEVICES.script, rdma=f"[ $1 = link ] || exit 0\n{LINKS}"))
    assert [(port.number, port.state) for port in found.ports] == [(1, "ACTIVE")]
    assert found.netdevs == ("enp8s0f0np0",)


def test_ports_without_an_interface_stay_where_nothing_says_what_they_are(tmp_path: Path) -> None:
    switch(tmp_path, ports=2)
    (found,) = parse(read(tmp_path, DEVICES.script, rdma="echo 'link rocep8s0f0/1 state ACTIVE netdev enp8s0f0np0'"))
    assert [port.number for port in found.ports] == [1, 2], "it may join the ports of two functions"
    (found,) = parse(read(tmp_path, DEVICES.script, rdma="exit 1"))
    assert [port.number for port in found.ports] == [1, 2]


def test_two_ports_of_one_device_are_both_its_own(tmp_path: Path) -> None:
    switch(tmp_path, ports=2)
    put(tmp_path / "net" / "enp8s0f1np1", phys_port_name="p1", address="b8:3f:d2:00:00:02")
    said = LINKS.replace("enp8s0f0npf0vf0", "enp8s0f1np1").replace("rocep8s0f0/3", "other/1")
    (found,) = parse(read(tmp_path, DEVICES.script, rdma=said))
    assert [port.number for port in found.ports] == [1, 2]


def test_a_subfunction_is_no_adapter_of_the_host_and_no_software(tmp_path: Path) -> None:
    hca(tmp_path, "rocep8s0f0", "0000:08:00.0", layer="Ethernet")
    folder = put(
        tmp_path / "infiniband" / "mlx5_4", node_type="1: CA", node_guid="0000:00ff:fe00:8888", fw_ver="16.29.0550"
    )
    (tmp_path / "devices" / "0000:08:00.0" / "mlx5_core.sf.4").mkdir()
    (folder / "device").symlink_to(tmp_path / "devices" / "0000:08:00.0" / "mlx5_core.sf.4")
    put(folder / "ports" / "1", state="1: DOWN", link_layer="Ethernet")
    found = {device.name: device for device in devices(tmp_path)}
    own = found["mlx5_4"]
    assert (own.type, own.parent, own.driver, own.soft) == ("sf", "0000:08:00.0", "mlx5_core", False)
    assert [device.name for device in list_hcas(tuple(found.values()))] == ["rocep8s0f0"]
