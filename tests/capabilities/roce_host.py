"""RoCE on the good host: as its probe prints it, and as a tree of folders that the probe and the program read and
write."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from gpuprov.host_code.at_boot.roce_ports import READER
from gpuprov.simulate.parts import base
from tests.capabilities import at_boot

STANDINS = Path(base.__file__).parent / "ofed_files"
PLACES = (
    "/sys/class",
    "/sys/kernel",
    "/run/gpuprov-sim",
    "/usr/local/lib/gpuprov/rdma",
    "/etc/gpuprov",
    "/var/lib/gpuprov-sim",
)
VALUES = {
    "mode": "v2", "tos": "106", "traffic_class": "106", "mtu": "4200", "ecn": "3", "cnp_dscp": "48",
    "cnp_802p_prio": "6",
    "trust": "dscp", "dscp.26": "3", "pfc": "3",
}  # fmt: skip
LINES = tuple(f"set {key} {value}" for key, value in {
    "mtu": "4200", "trust": "dscp", "dscp.26": "3", "pfc": "3", "mode": "v2", "tos": "106", "traffic_class": "106",
    "ecn": "3",
    "cnp_dscp": "48", "cnp_802p_prio": "6",
}.items())  # fmt: skip
PORT = "port|mlx5_0|1|ens1f0np0"


def said(
    values: Mapping[str, str] | None = None,
    *,
    tools: tuple[str, ...] = ("mlnx_qos", "dcb", "cma_roce_mode", "cma_roce_tos", "rdma_cm"),
    port: str = PORT,
    more: tuple[str, ...] = ("filter|nft",),
) -> str:
    """What the probe `roce` prints. An empty value is one that the host does not show."""
    lines = [f"tool|{tool}" for tool in tools] + ([port] if port else [])
    shown = VALUES | dict(values or {})
    lines += [f"value|mlx5_0|1|{key}|{value}" for key, value in shown.items() if value and port]
    return "\n".join([*lines, *more]) + "\n"


PROBES = {"roce": said()}


def put(root: Path, files: Mapping[str, str]) -> None:
    """Files below the root, by path."""
    for path, content in files.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n" if content else "")


def device(
    root: Path, name: str = "mlx5_0", netdev: str = "ens1f0np0", pci: str = "0000:3b:00.0", *, ofed: bool = True,
    driver: str = "mlx5_core", layer: str = "Ethernet",
) -> None:  # fmt: skip
    """A device with one port in /sys below the root, of NVIDIA's OFED or of the kernel's own drivers."""
    function, folder = root / "sys/devices" / pci, root / "sys/class/infiniband" / name
    (function / "net" / netdev).mkdir(parents=True)
    put(function, {"vendor": "0x15b3"})
    (root / "sys/bus/drivers" / driver).mkdir(parents=True, exist_ok=True)
    (function / "driver").symlink_to(f"../../bus/drivers/{driver}")
    put(folder, {"node_type": "1: CA", "ports/1/link_layer": layer, "ports/1/gid_attrs/ndevs/1": netdev})
    (folder / "device").symlink_to(function)
    put(root / "sys/class/net" / netdev, {"mtu": "1500", "address": f"b8:3f:d2:00:00:{pci[5:7]}"})
    put(
        root / "sys/kernel/config/rdma_cm" / name / "ports/1", {"default_roce_mode": "RoCE v2", "default_roce_tos": "0"}
    )
    if ofed:
        put(folder, {"tc/1/traffic_class": ""})
        ecn = {f"ecn/roce_{point}/enable/{n}": "1" for point in ("np", "rp") for n in range(8)}
        put(root / "sys/class/net" / netdev, {**ecn, "ecn/roce_np/cnp_dscp": "48", "ecn/roce_np/cnp_802p_prio": "6"})
    else:
        put(root / "sys/kernel/debug/mlx5" / pci / "cc_params", {"np_cnp_dscp": "48", "np_cnp_prio": "6"})


def bond(root: Path, *netdevs: str) -> None:
    """bond0 of interfaces; their own folders come before or after."""
    net = root / "sys/class/net"
    put(net, {"bond0/bonding/slaves": " ".join(netdevs)})
    for name in netdevs:
        (net / name).mkdir(exist_ok=True)
        (net / name / "master").symlink_to("../bond0")


def second(root: Path, netdev: str, pci: str) -> None:
    """An interface of a function without an RDMA device, with the attributes of NVIDIA's OFED."""
    function, folder = root / "sys/devices" / pci, root / "sys/class/net" / netdev
    put(function, {"vendor": "0x15b3"})
    ecn = {f"ecn/roce_{point}/enable/{n}": "1" for point in ("np", "rp") for n in range(8)}
    put(folder, {**ecn, "ecn/roce_np/cnp_dscp": "48", "ecn/roce_np/cnp_802p_prio": "6", "mtu": "1500"})
    (folder / "device").symlink_to(function)


IP = 'case "$*" in *" mtu "*) echo "$6" >/sys/class/net/$4/mtu ;; esac'
DCB = r"""h=/run/gpuprov-sim/dcb; mkdir -p $h; d=$h/$5
[ "$1" = -N ] && { shift; d=$h/$4; }
d=$h/$4
case "$1 $2" in
'pfc show') echo "prio-pfc $(cat $d.pfc 2>/dev/null || echo '0:off 1:off 2:off 3:off 4:off 5:off 6:off 7:off')" ;;
'pfc set') shift 5; r=''
  for o in 0 1 2 3 4 5 6 7; do s=off; for m in "$@"; do [ "$m" = "$o:on" ] && s=on; done; r="$r$o:$s "; done
    echo "$r" >$d.pfc ;;
'app show') [ -s $d.app ] && echo "dscp-prio $(tr '\n' ' ' <$d.app)"; true ;;
'app flush') : >$d.app ;;
'app add' | 'app replace') shift 5
  for m in "$@"; do grep -v "^${m%:*}:" $d.app >$d.new 2>/dev/null; echo "$m" >>$d.new; mv $d.new $d.app; done ;;
esac"""
"""dcb of iproute2 and ip, as far as the program calls them: `dcb [-N] OBJECT COMMAND dev NETDEV ...`."""


def environment(root: Path, *, ofed: bool = True, **programs: str) -> dict[str, str]:
    """PATH with stand-ins for what the host has; `programs`: bodies of further ones."""
    folder = root / "bin"
    bodies = {"systemd-detect-virt": "exit 1", "modprobe": "exit 1", "mount": "exit 1", "sleep": "true", "ip": IP}
    bodies |= {} if ofed else {"dcb": DCB}
    for name in ("mlnx_qos", "cma_roce_mode", "cma_roce_tos") if ofed else ():
        bodies[name] = (STANDINS / name).read_text()
    return at_boot.stand_in(folder, {name: here(root, body) for name, body in {**bodies, **programs}.items()})


def here(root: Path, script: str) -> str:
    """The script with its places below the root, and without the programs of this machine's /sbin."""
    for place in PLACES:
        script = script.replace(place, f"{root}{place}")
    return script.replace("PATH=$PATH:/usr/sbin:/sbin", "")


def read(root: Path, *, ofed: bool = True) -> list[str]:
    """What the reader prints."""
    command = ["sh", "-c", here(root, READER)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=20, env=environment(root, ofed=ofed)
    )
    return done.stdout.splitlines()
