"""EFA on a good p4d.24xlarge, told as its probes print it."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities.rdma.efa.fragment import Efa
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl.fragment import Nccl

KERNEL = "6.8.0-1021-aws"
KO = f"/lib/modules/{KERNEL}/updates/dkms/efa.ko"
CORE = f"/lib/modules/{KERNEL}/kernel/drivers/infiniband/core/ib_core.ko.zst"
SHA256 = "2df4201e046833c7dc8160907bee7f52b76ff80ed147376a2d0ed8a0dd66b2db"
"""Of the installer 1.47.0."""
RECORD = f'{{"sha256": "{SHA256}", "options": ["-y", "--no-verify", "--skip-limit-conf", "--skip-mpi"]}}'
ADDRESSES = ("0000:10:1b.0", "0000:20:1b.0", "0000:90:1b.0", "0000:a0:1b.0")
NAMES = ("rdmap16s27", "rdmap32s27", "rdmap144s27", "rdmap160s27")
PLUGIN = "/opt/amazon/ofi-nccl/lib/libnccl-net.so"


def fi_info(*names: str) -> tuple[str, ...]:
    """What fi_info prints of these devices: each by both fabrics."""
    return tuple(
        line
        for name in names
        for fabric in ("efa-direct", "efa")
        for line in ("provider: efa", f"    fabric: {fabric}", f"    domain: {name}-rdm", "    type: FI_EP_RDM")
    )


def said(
    *more: str,
    product: str = "p4d.24xlarge",
    bound: tuple[str, ...] = ("efa",) * 4,
    kernels: tuple[str, ...] = (f"{KERNEL}|1|{KO}|3.1.0",),
    version: str | None = "3.1.0",
    p2p: str = "NVIDIA peer memory",
    installer: str = "1.47.0",
    record: str = RECORD,
    fi: tuple[str, ...] | None = fi_info(*NAMES),
    plugins: tuple[str, ...] = (PLUGIN,),
    core: str = CORE,
) -> str:
    """What the probe `efa` prints; `version` None: the driver is not loaded, empty: the kernel's own; `fi` None: no
    fi_info."""
    lines = [f"product|{product}"]
    lines += [f"function|{address}|{name}" for address, name in zip(ADDRESSES, bound, strict=False)]
    lines += [f"loaded|{version}"] if version is not None else []
    lines += [f"kernel|{row}" for row in kernels]
    lines += [f"p2p|{name}|{p2p}" for name in NAMES] if version else []
    lines += [f"installer|{installer}"] * bool(installer) + [f"record|{record}"] * bool(record)
    lines += ["found|", *(f"fi|{line}" for line in fi)] if fi is not None else []
    lines += [f"plugin|{path}" for path in plugins] + ["package|libnccl-ofi|1.17.2-1"]
    return "\n".join([*lines, *more, f"core|{core}"]) + "\n"


def devices(count: int = 4) -> str:
    """What the probe `rdma_devices` prints of as many EFA devices."""
    return "".join(
        f"device|{name}|{address}|efa|0x1d0f|0xefa0|4: unspecified|0000:0000:0000:0000|0.0.0.0|0|||\n"
        f"port|{name}|1|4: ACTIVE|5: LinkUp|Unknown|100 Gb/sec (4X EDR)|0x0|0x0\n"
        for name, address in list(zip(NAMES, ADDRESSES, strict=True))[:count]
    )


def block(stack: Any = "auto", nccl: Nccl | None = None, count: int = 0, **more: Any) -> Rdma:
    """A spec of EFA with the installer 1.47.0, but for what is said."""
    asked = {"installer": "1.47.0", **more}
    return Rdma(fabric="efa", stack=stack, efa=Efa(**asked), nccl=nccl or Nccl(), count=count)
