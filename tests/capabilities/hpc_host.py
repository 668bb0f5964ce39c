"""Open MPI, UCX and HPC-X, told as their probes print them: the good host has none, and the distribution offers
them."""

from __future__ import annotations

from tests.capabilities import ofed_host

MPI, UCX = "4.1.6-7ubuntu2", "1.16.0+ds-5ubuntu1"
DOCA = {"openmpi": "4.1.9a1-1.2510171", "ucx": "1.20.0-1.2510171"}
OWN = {"openmpi-bin": MPI, "ucx-utils": UCX, "libucx0": UCX}
FOLDER = "hpcx-v2.24.1-gcc-doca_ofed-ubuntu24.04-cuda12-x86_64"
PLACE = f"/opt/{FOLDER}"
SHA = "ab" * 32
HCAS = ("ibp59s0", "ibp94s0")


def packages(**versions: str) -> str:
    """The installed packages, by version; with _ for - in names."""
    rows = {name.replace("_", "-"): version for name, version in versions.items()}
    return "native|amd64\n" + "".join(f"hi |{name}|{version}|{name}|amd64\n" for name, version in rows.items())


def offers(*sets: dict[str, str]) -> str:
    return "".join(
        f" {name} | {version} | http://mirror ./ Packages\n" for each in sets for name, version in each.items()
    )


def said(
    *more: str,
    mpi: str = "openmpi",
    mpirun: str = "/usr/bin/mpirun",
    output: str = "mpirun (Open MPI) 4.1.6",
    pml: bool = True,
    cuda: bool = False,
    ucx: str = "1.16.0",
    library: str = "/usr/lib/x86_64-linux-gnu/libucs.so.0",
    devices: tuple[str, ...] = HCAS,
    transports: tuple[str, ...] = ("rc_mlx5", "tcp"),
) -> str:
    """What the probe `hpc` prints."""
    lines = [f"asked|{mpi}", *more]
    lines += (
        [f"mpi|{mpirun}|{output}", f"cuda|{mpirun}|{str(cuda).lower()}", *[f"pml|{mpirun}"] * pml] if mpirun else []
    )
    lines += [f"ucx|# Library version: {ucx}", f"version|{ucx}", f"library|{library}"] if ucx else []
    lines += [f"device|{name}:1" for name in devices] + [f"transport|{name}" for name in transports]
    return "\n".join(lines) + "\n"


def hpcx(*more: str, link: str = PLACE, mark: str = f'{{"sha256": "{SHA}"}}', lib: str = "", **changed: object) -> str:
    """What it prints of HPC-X, with NCCL's plugin and its libraries."""
    lib = lib or "/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so"
    rows = [
        f"link|{link}",
        f"mark|{mark}",
        f"plugin|{lib}",
        "needs|libsharp_coll.so.5|/opt/hpcx/sharp/lib/libsharp_coll.so.5",
    ]
    given = {
        "mpirun": "/opt/hpcx/ompi/bin/mpirun",
        "library": "/opt/hpcx/ucx/lib/libucs.so.0",
        "cuda": True,
        "ucx": "1.20.0",
    }
    given |= {"transports": ("cuda_copy", "gdr_copy", "rc_mlx5"), **changed}
    return said(*rows, *more, mpi="hpcx", **given)  # type: ignore[arg-type]


INSTALLED = {
    "hpc": said(),
    "hpc_packages": packages(**{k.replace("-", "_"): v for k, v in OWN.items()}),
    "hpc_index": offers(OWN),
}
WITH_OFED = {
    "hpc": said(mpirun="/usr/mpi/gcc/openmpi-4.1.9a1/bin/mpirun", ucx="1.20.0", library="/usr/lib/libucs.so.0"),
    "hpc_packages": packages(**DOCA),
    "hpc_index": offers(DOCA),
    "ofed_packages": ofed_host.packages(),
}
PROBES = {
    "hpc": said(mpirun="", ucx="", devices=(), transports=()),
    "hpc_packages": "native|amd64\n",
    "hpc_index": offers(OWN),
}
