"""GPUDirect RDMA on the good host, told as its probes print it: proprietary modules built after OFED, nvidia_peermem
loaded."""

from __future__ import annotations

from gpuprov.facts.probes.base import Output

K = "6.1.0-47-amd64"
NEXT = "6.1.0-56-amd64"
OWN, PEERMEM = "NVIDIA", "nvidia_peermem"
OPEN = "Dual MIT/GPL"
PARAMETERS = "peerdirect_support persistent_api_support "
LOG = "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing"
OPTIONS = ("CONFIG_DMA_SHARED_BUFFER", "CONFIG_INFINIBAND_ON_DEMAND_PAGING")
OFED_TREE = "/usr/src/ofa_kernel/x86_64/{}/Module.symvers"


def kernel(
    release: str = K,
    *,
    bootable: bool = True,
    nvidia: str = "535.261.03",
    license_: str = OWN,
    module: str = PEERMEM,
    symbols: str = "yes",
    parameters: str = PARAMETERS,
    core: str = "/lib/modules/{}/updates/dkms/ib_core.ko",
    exports: str = "yes",
    uverbs: str = "yes",
    symvers: str = OFED_TREE,
    options: tuple[str, ...] | None = OPTIONS,
    dkms: str = "nvidia-current/535.261.03",
    rebuild: str = "",
) -> str:
    """The rows of one kernel. `module`: the peer module that it has, or nothing."""
    lines = [f"kernel|{release}|{int(bootable)}"] + [f"nvidia|{release}|{nvidia}|{license_}"] * bool(nvidia)
    lines += [f"symvers|{release}|{symvers.format(release)}|0x1f2e3d4c"] * bool(symvers)
    lines += [f"core|{release}|{core.format(release)}|{exports}", f"uverbs|{release}|{uverbs}"]
    if module:
        path = f"/lib/modules/{release}/updates/dkms/{module.replace('nvidia_', 'nvidia-current-')}.ko"
        lines.append(f"module|{release}|{module}|{path}|{nvidia}|{symbols}|0x1f2e3d4c|{parameters}")
    lines += [f"rebuild|{release}|{module}|{rebuild}"] * bool(rebuild) + [f"dkms|{release}|{dkms}"] * bool(dkms)
    if options is not None:
        lines += [f"config|{release}|", *(f"config|{release}|{name}" for name in options)]
    return "\n".join(lines) + "\n"


def said(
    *kernels: str,
    loaded: tuple[str, ...] = ("nvidia", "ib_core", PEERMEM),
    holders: str = "ib_uverbs,nvidia_peermem,mlx5_ib,",
    exported: bool = True,
    values: dict[str, str] | None = None,
    unit: tuple[str, str, str] = ("loaded", "active", "enabled"),
    openibd: tuple[str, str, str] = ("loaded", "active", "enabled"),
    starts: str = PEERMEM,
    log: tuple[str, ...] = (),
    ofed: str = "25.10-1.7.1",
    running: str = K,
) -> str:
    """What the probe `gpudirect` prints. `values`: parameters of the loaded nvidia_peermem."""
    given = {"peerdirect_support": "0", "persistent_api_support": "1"} if values is None else values
    lines = ["".join(kernels or (kernel(),)).rstrip("\n"), f"running|{running}"]
    lines += [f"loaded|{name}|0" for name in loaded] + [f"holders|{holders}"] * ("ib_core" in loaded)
    lines += ["exported|yes"] * exported
    lines += [f"parameter|{name}|{value}" for name, value in given.items() if PEERMEM in loaded]
    units = {"gpuprov-gpudirect": unit, "openibd": openibd}
    lines += [f"unit|{name}.service|{'|'.join(state)}" for name, state in units.items()]
    lines += [f"starts|{starts}"] * bool(starts)
    lines += [f"log|[  100.500000] {line}" for line in log] + [f"ofed|{ofed}"] * bool(ofed)
    return "\n".join(lines) + "\n"


def peer(*kernels: str, **more: object) -> dict[str, Output | str]:
    """The probe's output, changed."""
    return {"gpudirect": said(*kernels, **more)}  # type: ignore[arg-type]


NONE = ("not-found", "", "")
DMABUF = said(
    kernel(
        license_=OPEN,
        symvers="",
        exports="no",
        core="/lib/modules/{}/kernel/drivers/infiniband/core/ib_core.ko",
        symbols="no",
    ),
    loaded=("nvidia", "ib_core"),
    holders="ib_uverbs,mlx5_ib,",
    exported=False,
    unit=NONE,
    openibd=NONE,
    starts="",
    ofed="",
)
"""A host with open modules, and the RDMA stack of its distribution."""
COPIES = f"kernel|{K}|2.5.1\nloaded|\nmajor|237\nnode|237 666\n"
INSTALLED = "".join(f"ii |{name}|2.5.1-1|{name}\n" for name in ("gdrdrv-dkms", "libgdrapi"))
INDEX = "".join(
    f" {name} | 2.5.1-1 | http://mirror ./ Packages\n" for name in ("gdrdrv-dkms", "libgdrapi", "gdrcopy-tests")
)
PROBES = {"gpudirect": said(), "gdrcopy": f"kernel|{K}|\n", "gdrcopy_packages": "", "gdrcopy_index": ""}
