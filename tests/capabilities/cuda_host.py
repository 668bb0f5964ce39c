"""A host with two CUDA toolkits, cuDNN and NCCL that is right in everything, told as the text its probes print."""

from __future__ import annotations

DRIVER = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05\n/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05\n"
CUDNN, NCCL = "9.5.1.17-1", "2.21.5-1+cuda12.4"
META = {"12.4": "12.4.1-1", "13.0": "13.0.2-1"}
NVCC = {"12.4": "12.4.131-1", "13.0": "13.0.88-1"}
CUDART = {"12.4": "12.4.127-1", "13.0": "13.0.96-1"}


def packages(state: str = "hi ", part: str = "toolkit", **changed: str | None) -> str:
    """dpkg-query's lines. `changed` (underscores for dashes): another version, or None for a package that is not
    there."""
    versions: dict[str, str | None] = {}
    for kit, release in META.items():
        dashed = kit.replace(".", "-")
        versions |= {
            f"cuda-{part}-{dashed}": release,
            f"cuda-nvcc-{dashed}": NVCC[kit],
            f"cuda-cudart-{dashed}": CUDART[kit],
            f"libcublas-{dashed}": f"{kit}.5.8-1",
        }
    versions |= {"libcudnn9-cuda-12": CUDNN, "libcudnn9-dev-cuda-12": CUDNN, "libnccl2": NCCL, "libnccl-dev": NCCL}
    versions |= {name.replace("_", "-"): version for name, version in changed.items()}
    return "".join(f"{state}|{name}|{version}|cuda\n" for name, version in versions.items() if version)


def rpms(**changed: str) -> str:
    """What the probe prints on a host of rpm packages."""
    versions = {"cuda-toolkit-12-4": "12.4.1", "cuda-nvcc-12-4": "12.4.131", "cuda-cudart-12-4": "12.4.127"} | changed
    return "".join(f"rpm|{name}|0|{version}|1|x86_64|cuda-{version}-1.src.rpm\n" for name, version in versions.items())


INDEX = "".join(
    f" {name} | {version} | https://developer.example/cuda/repos/debian12/x86_64  Packages\n"
    for name, versions in {
        "cuda-toolkit-12-4": ["12.4.1-1", "12.4.0-1"],
        "cuda-toolkit-12-8": ["12.8.1-1"],
        "cuda-toolkit-13-0": ["13.0.2-1", "13.0.1-1"],
        "cuda-minimal-build-12-4": ["12.4.1-1"],
        "cuda-libraries-12-4": ["12.4.1-1"],
        "libcudnn9-cuda-12": ["9.8.0.87-1", "9.5.1.17-1"],
        "libcudnn9-dev-cuda-12": ["9.8.0.87-1", "9.5.1.17-1"],
        "libcudnn9-headers-cuda-12": ["9.8.0.87-1"],
        "libcudnn8": ["8.9.7.29-1+cuda12.2", "8.9.7.29-1+cuda11.8"],
        "libcudnn8-dev": ["8.9.7.29-1+cuda12.2", "8.9.7.29-1+cuda11.8"],
        "libnccl2": ["2.28.3-1+cuda13.0", "2.28.3-1+cuda12.9", "2.21.5-1+cuda12.5", "2.21.5-1+cuda12.4"],
        "libnccl-dev": ["2.28.3-1+cuda13.0", "2.28.3-1+cuda12.9", "2.21.5-1+cuda12.5", "2.21.5-1+cuda12.4"],
    }.items()
    for version in versions
)


def toolkits(
    *,
    nvcc: str = "12.4 12.4.131",
    cudart: str = "12.4.127",
    link: str = "alternatives /usr/local/cuda-12.4",
    mode: str = "manual mode",
    profile: bool = True,
    libraries: tuple[str, ...] = ("cudart.so.12.4.127", "cudart.so.13.0.96", "cudnn.so.9.5.1", "nccl.so.2.21.5"),
    header: str = "9 5 1",
    free: int = 40_000,
) -> str:
    """What the probe of /usr/local prints; the arguments are about 12.4."""
    lines = ["@toolkit 12.4", *([f"nvcc {nvcc}"] if nvcc else []), *([f"cudart {cudart}"] if cudart else [])]
    lines += ["@toolkit 13.0", "nvcc 13.0 13.0.88", "kit 13.0.2", "cudart 13.0.96"]
    lines += [f"link {link}"] if link else []
    if link.startswith("alternatives"):
        lines += [f"alternative cuda - {mode}", "alternative   link best version is /usr/local/cuda-13.0"]
        lines += ["alternative /usr/local/cuda-12.4 - priority 124", "alternative /usr/local/cuda-13.0 - priority 130"]
    lines += ['profile export PATH="/usr/local/cuda/bin${PATH:+:$PATH}"'] if profile else []
    for name in libraries:
        stem, _, version = name.partition(".so.")
        soname = version if version.count(".") == 1 else version.partition(".")[0]
        lines.append(f"library lib{stem}.so.{soname} /usr/local/lib/lib{name}")
    lines += [f"cudnn {number}" for number in header.split()]
    return "\n".join([*lines, f"space {free * 1024} /usr/local", f"space {free * 1024} /var"]) + "\n"


GOOD = {
    "cuda_packages": packages(),
    "cuda_index": INDEX,
    "cuda_toolkits": toolkits(),
    "driver_libraries": DRIVER,
    "loaded_driver": "",
}

ONE = {**{f"cuda_{kind}_13_0": None for kind in ("toolkit", "nvcc", "cudart")}, "libcublas_13_0": None}
PROBES = {"cuda_packages": packages("hi ", "toolkit", **ONE), "cuda_index": INDEX, "cuda_toolkits": toolkits()}
"""The same host with 12.4 alone, which every driver of the other tests runs."""
