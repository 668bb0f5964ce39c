"""DOCA-OFED on the good host, told as its probes print it."""

from __future__ import annotations

KERNEL = "6.8.0-88-generic"
OTHER = "6.8.0-90-generic"
DKMS = "/lib/modules/{}/updates/dkms/{}.ko.zst"
OWN = "/lib/modules/{}/kernel/drivers/infiniband/core/{}.ko.zst"
VERSION = "25.10.OFED.25.10.1.7.1.1-1"
UBUNTU = 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\nID_LIKE=debian\n'
ROCKY = 'ID="rocky"\nVERSION_ID="{}"\nPRETTY_NAME="Rocky Linux {}"\nID_LIKE="rhel centos fedora"\n'
NAMES = (
    "doca-host doca-ofed mlnx-ofed-kernel-dkms mlnx-ofed-kernel-utils iser-dkms isert-dkms srp-dkms mlnx-tools "
    "rdma-core"
).split()


def loaded(name: str, *, own: bool = False, older: bool = False, checksum: str = "A1") -> str:
    """A module in memory: OFED's, the kernel's own, or that of an OFED that was there before."""
    file = (OWN if own else DKMS).format(KERNEL, name)
    memory = f"{'' if own else 'B2' if older else checksum}|{'' if own else '25.07-0.9.7' if older else '25.10-1.7.1'}"
    disk = "|" if own else f"{checksum}|25.10-1.7.1"
    return f"loaded|{name}|{memory}|{file}|{disk}"


def kernel(
    release: str,
    *,
    own: bool = False,
    none: bool = False,
    headers: bool = True,
    built: str = "mlnx-ofed-kernel iser isert srp",
) -> list[str]:
    """An installed kernel, with OFED's modules or without."""
    rows = [f"kernel|{release}|1", *[f"headers|{release}"] * headers]
    rows += (
        []
        if none
        else [f"file|{release}|{m}|{(OWN if own else DKMS).format(release, m)}" for m in ("ib_core", "mlx5_core")]
    )
    return rows + ([] if own or none else [f"built|{release}|{name}|25.10" for name in built.split()])


def index(
    *versions: str, names: tuple[str, ...] = ("doca-ofed", "mlnx-ofed-kernel-dkms", "mlnx-ofed-kernel-utils")
) -> str:
    """What apt-cache madison prints of these versions, newest first, for the probe `ofed_index`."""
    rows = [(name, version) for name in names for version in versions or (VERSION,)]
    return "".join(f"{name} | {version} | file:/usr/share/doca-host-3.2.1/repo ./ Packages\n" for name, version in rows)


def said(
    *more: str,
    info: str = "OFED-internal-25.10-1.7.1:",
    memory: tuple[str, ...] = (loaded("ib_core"), loaded("mlx5_core"), loaded("mlx5_ib")),
    kernels: tuple[list[str], ...] = (kernel(KERNEL), kernel(OTHER)),
    dkms: str = "mlnx-ofed-kernel iser isert srp",
    unit: tuple[str, str, str] = ("loaded", "active", "enabled"),
    conf: str | None = "ONBOOT=yes UMAD_LOAD=yes FORCE_MODE=no SET_IPOIB_CM=auto",
    pinned: bool = True,
) -> str:
    """What the probe `ofed` prints."""
    lines = [f"running|{KERNEL}", *([f"info|{info}"] if info else []), *memory]
    lines += [f"dkms|{name}|25.10" for name in dkms.split()] + [row for rows in kernels for row in rows]
    lines += [f"LoadState|{unit[0]}", f"ActiveState|{unit[1]}", f"UnitFileState|{unit[2]}"]
    lines += ["config|", *(f"setting|{row}" for row in conf.split())] if conf is not None else []
    return "\n".join([*lines, *more, *(["pinned|"] if pinned else [])]) + "\n"


def packages(*without: str, state: str = "hi ", version: str = VERSION, names: list[str] | None = None) -> str:
    """What the probe `ofed_packages` prints on Ubuntu."""
    rows = [name for name in (NAMES if names is None else names) if name not in without]
    return "native|amd64\n" + "".join(f"{state}|{name}|{version}|{name}|amd64\n" for name in rows)


ABSENT = said(
    info="",
    memory=(),
    kernels=(kernel(KERNEL, own=True),),
    dkms="",
    unit=("not-found", "inactive", ""),
    conf=None,
    pinned=False,
)
PROBES = {"ofed": ABSENT, "ofed_packages": "native|amd64\n", "ofed_index": ""}
"""The good host of all capabilities has no OFED."""
