"""eRDMA in compat mode on a good instance, told as its probes print it."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities.rdma.erdma.fragment import Erdma
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl.fragment import Nccl

KERNEL = "5.15.0-119-generic"
KO = f"/lib/modules/{KERNEL}/updates/dkms/erdma.ko"
PARAMETERS = "compat_mode legacy_mode reserve_ports_base use_zeronet vector_num default_cc rand_qpn wwi_perf"
OURS = "options erdma compat_mode=Y"
RUNS = {"compat_mode": "Y", "legacy_mode": "N", "reserve_ports_base": "30608", "default_cc": "-1"}
SHA256 = "cb44f4c4aaaabfbd81224c85a9e7889732bda26cc832ff70ecc0559bcc14165c"
GIDS = (
    "0|fe80:0000:0000:0000:0016:3eff:fe02:aa10|RoCE v2|eth1",
    "1|0000:0000:0000:0000:0000:ffff:c0a8:042d|RoCE v2|eth1",
)


def said(
    *more: str,
    kernels: tuple[str, ...] = (f"{KERNEL}|1|1|{KO}|{PARAMETERS}|1",),
    functions: tuple[str, ...] = ("0000:00:06.0|erdma",),
    parameters: dict[str, str] | None = RUNS,
    options: tuple[str, ...] = ("compat_mode=Y",),
    files: tuple[str, ...] = (f"/etc/modprobe.d/gpuprov-erdma.conf|{OURS}",),
    vendor: tuple[str, ...] = ("vendor|", "vendor-softdep|"),
    pairs: tuple[str, ...] = ("rdmap0s6|eth1|8500",),
    dkms: tuple[str, ...] = ("erdma/1.0.2, 5.15.0-119-generic, x86_64: installed",),
    config: tuple[str, ...] | None = ("parameter compat_mode Y", "mtu 8500"),
    softdep: bool = True,
) -> str:
    """What the probe `erdma` prints; `parameters` None: not loaded, {}: the kernel's own driver."""
    lines = [f"kernel|{row}" for row in kernels] + [f"function|{row}" for row in functions]
    if parameters is not None:
        lines += ["loaded|0", *(f"parameter|{name}|{value}" for name, value in parameters.items()), "holders|"]
    lines += [f"option|{row}" for row in options] + ["softdep|"] * softdep
    lines += [f"file|{row}" for row in files] + list(vendor) + ["boot|"]
    lines += [f"pair|{row}" for row in pairs] + ["tcp|22", "ephemeral|32768 60999", "reserved|"]
    lines += [f"core|/lib/modules/{KERNEL}/kernel/drivers/infiniband/core/ib_core.ko"] + [f"dkms|{row}" for row in dkms]
    lines += ["config|", *(f"config|{row}" for row in config)] if config is not None else []
    return "\n".join([*lines, *more]) + "\n"


def devices(
    kind: str = "1: CA", *more: str, name: str = "rdmap0s6", gids: tuple[str, ...] = GIDS, driver: str = "erdma"
) -> str:
    """What the probe `rdma_devices` prints of one eRDMA device."""
    return "\n".join([
        f"device|{name}|0000:00:06.0|{driver}|0x1ded|0x107f|{kind}|0016:3eff:fe02:aa10|0.2.0|0|eth1|02:16:3e:02:aa:10|",
        f"port|{name}|1|4: ACTIVE|5: LinkUp|Ethernet|100 Gb/sec (4X EDR)|0x0|0x0",
        *(f"gid|{name}|1|{row}" for row in gids), *more,
    ]) + "\n"  # fmt: skip


def block(nccl: Nccl | None = None, stack: Any = "auto", **more: Any) -> Rdma:
    """A spec of eRDMA: compat mode and jumbo frames, but for what is said."""
    asked = {"compat_mode": True, "mtu": "jumbo", **more}
    return Rdma(fabric="erdma", stack=stack, erdma=Erdma(**asked), nccl=nccl or Nccl())


CONF = ("NCCL_IB_HCA==rdmap0s6", "NCCL_IB_GID_INDEX=-1", "NCCL_IB_ADDR_FAMILY=AF_INET", "NCCL_IB_ROCE_VERSION_NUM=2")


def nccl(lines: tuple[str, ...] | None = CONF, *more: str) -> str:
    """What the probe `nccl` prints: the file's lines, and other rows."""
    shown = ["line|=", *(f"line|{line}" for line in lines)] if lines is not None else []
    return "\n".join([*shown, "netdev|lo", "netdev|eth0", "netdev|eth1", *more]) + "\n"
