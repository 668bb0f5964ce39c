"""RDMA on the good host, told as its probes print it: two InfiniBand adapters, their ports up, beside an NVLink
bridge."""

from __future__ import annotations

from collections.abc import Mapping

GID = "fe80:0000:0000:0000:0002:c903:0000:0001"
MODULES = {
    "ib_uverbs": "loaded",
    "rdma_ucm": "loaded",
    "ib_umad": "loaded",
    "mlx5_ib": "loaded",
    "ib_ipoib": "loaded",
    "iw_cm": "there",
    "rdma_rxe": "there",
    "siw": "absent",
    "erdma": "absent",
}


def device(
    name: str,
    address: str = "0000:3b:00.0",
    driver: str = "mlx5_core",
    *,
    identifier: str = "0x15b3|0x1021",
    node: str = "1: CA",
    netdevs: str = "",
    macs: str = "",
    bridge: bool = False,
    virtual: bool = False,
    numa: str = "0",
    firmware: str = "28.39.1002",
    layer: str = "InfiniBand",
    state: str = "4: ACTIVE",
    physical: str = "5: LinkUp",
    rate: str = "400 Gb/sec (4X NDR)",
    lids: tuple[str, str] | None = None,
    gids: tuple[str, ...] = (),
    ports: int = 1,
) -> str:
    """A device and its ports. `lids`: LID and the subnet manager's. `gids`: `index|gid|type|netdev`, of port 1."""
    mark = "bridge" if bridge else "virtual" if virtual else ""
    lines = [
        f"device|{name}|{address}|{driver}|{identifier}|{node}|5254:00ff:fe00:1|{firmware}|{numa}|{netdevs}|{macs}|"
        f"{mark}"
    ]
    lid, manager = lids or (("0x1", "0x2") if layer == "InfiniBand" else ("0x0", "0x0"))
    lines += [f"port|{name}|{number + 1}|{state}|{physical}|{layer}|{rate}|{lid}|{manager}" for number in range(ports)]
    return "\n".join([*lines, *(f"gid|{name}|1|{gid}" for gid in gids)]) + "\n"


def rxe(name: str = "rocex525400fffe4d0001", netdev: str = "ens4", mac: str = "52:54:00:4d:00:01", *,
        driver: str = "rdma_rxe", state: str = "4: ACTIVE", physical: str = "5: LinkUp") -> str:  # fmt: skip
    """A software device, under the name that udev gave it."""
    node = "1: CA" if driver == "rdma_rxe" else "4: RNIC"
    return device(name, "", driver, identifier="|", node=node, netdevs=netdev, macs=mac, numa="", firmware="",
                  layer="Ethernet",
                  state=state, physical=physical, rate="2.5 Gb/sec (1X SDR)")  # fmt: skip


def host(
    *,
    modules: Mapping[str, str] | None = None,
    netdevs: tuple[str, ...] = ("lo|00:00:00:00:00:00|unknown|772||", "ens4|52:54:00:4d:00:01|up|1|0000:00:04.0|"),
    route: str = "ens4",
    port: tuple[str, ...] = (),
    managers: int = 0,
    umad: int = 2,
    soft: str = "not-found|inactive|",
    config: tuple[str, ...] | None = None,
    daemons: tuple[str, ...] = ("containerd.service|unlimited|infinity",),
    bound: bool = False,
    silent: tuple[str, ...] = (),
) -> str:
    """What the probe `rdma_host` prints. `port`: rows of ss; `soft`: LoadState, ActiveState, UnitFileState.

    `daemons`: a service that runs, its process's limit, its unit's. `silent`: `address|device|class` of adapters that
    are dead.
    """
    lines = [f"module|{name}|{state}" for name, state in {**MODULES, **(modules or {})}.items()]
    lines += [f"netdev|{one}" for one in netdevs] + [f"route|{route}"] + [f"port|{one}" for one in port]
    lines += [f"managers|{managers}", f"umad|{umad}"]
    states = zip(("LoadState", "ActiveState", "UnitFileState"), soft.split("|"), strict=True)
    lines += [f"{name}|{value}" for name, value in states]
    lines += ["bound|yes"] * bound + [f"silent|{one}" for one in silent]
    rows = [one.partition("|") for one in daemons]
    lines += [f"unit|{unit}|loaded|active|enabled|{limits}" for unit, _, limits in rows]
    lines += ["config|", *(f"config|{line}" for line in config)] if config is not None else []
    return "\n".join(lines) + "\n"


def packages(*names: str, state: str = "ii ") -> str:
    """dpkg-query's lines of the inbox stack."""
    usual = ("rdma-core", "ibverbs-providers", "ibverbs-utils", "rdmacm-utils", "infiniband-diags")
    rows = [f"{state}|{name}|44.0-2|rdma-core|amd64" for name in names or usual]
    return "\n".join(["native|amd64", *rows, "ii |iproute2|6.1.0-3|iproute2|amd64"]) + "\n"


TWO = device("ibp59s0", "0000:3b:00.0") + device("ibp94s0", "0000:5e:00.0", numa="1")
BRIDGE = device("mlx5_8", "0000:07:00.0", identifier="0x15b3|0x1023", bridge=True, state="2: INIT", lids=("0x0", "0x0"))
SOFT = host(umad=0, modules={"rdma_rxe": "loaded"}, soft="loaded|active|enabled", config=("rxe default",))
PROBES = {"rdma_devices": TWO + BRIDGE, "rdma_host": host(), "rdma_packages": packages()}
