"""CUDA toolkits, cuDNN and NCCL of simulated hosts: stand-ins with the real packages' names, versions and relations.

Names and versions: gpuprov/catalog/data/toolkits.yaml. Metapackages depend by `>=`, as NVIDIA's do. The libraries are
empty shared objects under their real names, so that the linker's cache has them; `nvcc` says that it is a stand-in, and
its version in nvcc's form.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from gpuprov.catalog.cuda import packages
from gpuprov.simulate import tools
from gpuprov.simulate.parts.base import File, text
from gpuprov.simulate.standins.extra import LIBDIR, Extra, Form, Packaged

# Release -> versions of nvcc, cudart (and the rest), cublas.
RELEASES = {
    "12.4.0": ("12.4.99", "12.4.99", "12.4.2.65"),
    "12.4.1": ("12.4.131", "12.4.127", "12.4.5.8"),
    "12.8.1": ("12.8.93", "12.8.90", "12.8.4.1"),
    "13.0.2": ("13.0.88", "13.0.96", "13.1.0.3"),
}
# Driver versions required by metapackages that bring a driver:
# https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/index.html table 3.
DRIVERS = {"12.4.0": "550.54.14", "12.4.1": "550.54.15", "12.8.1": "570.124.06", "13.0.2": "580.95.05"}
LINKER = {"": "000_cuda.conf", "12": "988_cuda-12.conf", "13": "987_cuda-13.conf"}
# cuDNN releases; True if a release has the package of headers.
CUDNN = {"9.5.1.17": False, "9.8.0.87": False, "9.20.0.48": True}
NCCL = {"2.21.5": ("12.4", "12.5"), "2.28.9": ("12.9", "13.0")}
NVCC = """\
#!/bin/sh
# A gpuprov stand-in: it compiles nothing.
[ "$1" = --version ] || {{ echo "nvcc: a gpuprov stand-in on a simulated host, which compiles nothing" >&2; exit 1; }}
echo 'nvcc: NVIDIA (R) Cuda compiler driver'
echo 'Copyright (c) 2005-2025 NVIDIA Corporation'
echo 'Built on Wed_Jan_01_00:00:00_UTC_2025'
echo 'Cuda compilation tools, release {minor}, V{build}'
echo 'Build cuda_{minor}.r{minor}/compiler.00000000_0 (gpuprov stand-in)'
"""
REGISTER = """\
#!/bin/sh
set -e
mkdir -p {link}-{minor}
update-alternatives --install {link} cuda {link}-{minor} {priority}
update-alternatives --install {link}-{major} cuda-{major} {link}-{minor} {priority}
"""
FORGET = """\
#!/bin/sh
set -e
if [ "$1" = remove ] || [ "$1" = 0 ]; then
  update-alternatives --remove cuda {link}-{minor}
  update-alternatives --remove cuda-{major} {link}-{minor}
fi
"""
LDCONFIG = "#!/bin/sh\nset -e\nldconfig\n"


@cache
def library(soname: str) -> bytes:
    """Return an empty shared object with this soname."""
    with tempfile.TemporaryDirectory(prefix="gpuprov-") as temporary:
        made = Path(temporary) / "library"
        flags = ("-shared", "-nostdlib", "-x", "c", "/dev/null", f"-Wl,-soname,{soname}")
        tools.run(["gcc", *flags, "-o", str(made)])
        return made.read_bytes()


def package(
    name: str,
    version: str,
    summary: str,
    files: Mapping[str, File] | Callable[[Form], Mapping[str, File]] | None = None,
    needs: Mapping[str, str] | None = None,
    *,
    other: str = "",
    conflicts: str = "",
    scripts: tuple[str, str] = ("", ""),
) -> Extra:
    """Return one package in both forms. `needs`: packages and the least version of each, or `=VERSION`. `other`: its
    rpm name, if different. `conflicts`: a package with the same file. `scripts`: run after installation and before
    removal."""

    def form(kind: Form) -> Packaged:
        relations = []
        for needed, at_least in (needs or {}).items():
            sign, number = ("=", at_least[1:]) if at_least.startswith("=") else (">=", at_least)
            known = renamed(needed) if kind == "rpm" else needed
            relations.append(
                known if not number else f"{known} ({sign} {number})" if kind == "deb" else f"{known} {sign} {number}"
            )
        names = ("postinst", "prerm") if kind == "deb" else ("post", "preun")
        given = {
            script: body.removeprefix("#!/bin/sh\n" if kind == "rpm" else "")
            for script, body in zip(names, scripts, strict=True)
            if body
        }
        against = (conflicts,) if conflicts else ()
        return Packaged(version, other if kind == "rpm" else "", tuple(relations), conflicts=against, scripts=given)

    return Extra(name, summary, form("deb"), form("rpm"), files or {})


def renamed(name: str) -> str:
    """Return the rpm name of a package that other packages require."""
    return {"libnccl2": "libnccl", "libnccl-dev": "libnccl-devel"}.get(name, name)


def linker(of: str) -> Mapping[str, File]:
    place = f"{packages.LINK}{'-' + of if of else ''}/targets/x86_64-linux/lib"
    return {f"/etc/ld.so.conf.d/{LINKER[of]}": text(f"{place}\n")}


def release(version: str) -> list[Extra]:
    """Return all packages of one release of the toolkit."""
    nvcc, cudart, cublas = RELEASES[version]
    major, minor = version.partition(".")[0], ".".join(version.split(".")[:2])
    kit, root, tag = minor.replace(".", "-"), f"{packages.LINK}-{minor}", f"CUDA {minor}"
    words = {"link": packages.LINK, "minor": minor, "major": major, "priority": minor.replace(".", ""), "build": nvcc}
    lib = f"{root}/targets/x86_64-linux/lib"
    compiler = text(NVCC.format(**words), 0o755)
    sdk = {"cuda": {"name": "CUDA SDK", "version": version}, "cuda_nvcc": {"name": "CUDA NVCC", "version": nvcc}}
    document = text(json.dumps(sdk, indent=3))
    common = {
        f"cuda-toolkit-{kit}-config-common": cudart,
        f"cuda-toolkit-{major}-config-common": cudart,
        "cuda-toolkit-config-common": cudart,
    }

    def runtime(_form: Form) -> Mapping[str, File]:
        return {f"{lib}/libcudart.so.{cudart}": File(library(packages.derive_runtime(version)))}

    def cublas_files(_form: Form) -> Mapping[str, File]:
        return {f"{lib}/libcublas.so.{cublas}": File(library(f"libcublas.so.{major}"))}

    return [
        package("cuda-toolkit-config-common", f"{cudart}-1", "linker configuration of CUDA", linker("")),
        package(f"cuda-toolkit-{major}-config-common", f"{cudart}-1", f"linker configuration of CUDA {major}",
                linker(major)),
        package(
            f"cuda-toolkit-{kit}-config-common", f"{cudart}-1", f"alternatives of {tag}",
            scripts=(REGISTER.format(**words), FORGET.format(**words)),
        ),
        package(f"cuda-cudart-{kit}", f"{cudart}-1", f"runtime of {tag}", runtime, common, scripts=(LDCONFIG, "")),
        package(f"libcublas-{kit}", f"{cublas}-1", f"BLAS of {tag}", cublas_files, common, scripts=(LDCONFIG, "")),
        package(f"cuda-nvcc-{kit}", f"{nvcc}-1", f"compiler of {tag}", {f"{root}/bin/nvcc": compiler}, common),
        package(f"cuda-documentation-{kit}", f"{cudart}-1", f"documents of {tag}", {f"{root}/version.json": document}),
        package(f"cuda-compiler-{kit}", f"{version}-1", f"compilers of {tag}", None, {f"cuda-nvcc-{kit}": nvcc}),
        package(f"cuda-libraries-{kit}", f"{version}-1", f"libraries of {tag}", None,
                {f"cuda-cudart-{kit}": cudart, f"libcublas-{kit}": cublas}),
        package(f"cuda-minimal-build-{kit}", f"{version}-1", f"what compiling with {tag} needs", None,
                {f"cuda-nvcc-{kit}": nvcc, f"cuda-cudart-{kit}": cudart}),
        package(f"cuda-toolkit-{kit}", f"{version}-1", f"all of {tag}", None,
                {f"cuda-compiler-{kit}": version, f"cuda-libraries-{kit}": version,
                 f"cuda-documentation-{kit}": cudart}),
        package(f"cuda-runtime-{kit}", f"{version}-1", f"libraries of {tag}, and a driver", None,
                {f"cuda-libraries-{kit}": version, "cuda-drivers": DRIVERS[version]}),
        package(f"cuda-{kit}", f"{version}-1", f"all of {tag}, and a driver", None,
                {f"cuda-toolkit-{kit}": version, f"cuda-runtime-{kit}": version}),
        package("cuda", f"{version}-1", "the newest CUDA, and the newest driver", None, {f"cuda-{kit}": version}),
    ]  # fmt: skip


def cudnn(version: str, headers: bool, major: str) -> list[Extra]:
    """Return cuDNN for one CUDA major."""
    short = ".".join(version.split(".")[:3])
    lines = zip(("MAJOR", "MINOR", "PATCHLEVEL"), short.split("."), strict=True)
    header = "".join(f"#define CUDNN_{name} {number}\n" for name, number in lines)
    other = "13" if major == "12" else "12"
    run, dev = f"libcudnn9-cuda-{major}", f"libcudnn9-dev-cuda-{major}"

    def files(form: Form) -> Mapping[str, File]:
        return {f"{LIBDIR[form]}/libcudnn.so.{short}": File(library("libcudnn.so.9"))}

    header_files = {"/usr/include/cudnn_version.h": text(header)}
    needs = {run: f"={version}-1"} | ({f"libcudnn9-headers-cuda-{major}": f"={version}-1"} if headers else {})
    made = [
        package(run, f"{version}-1", f"cuDNN for CUDA {major}", files, conflicts=run.replace(major, other),
                scripts=(LDCONFIG, "")),
        package(dev, f"{version}-1", f"cuDNN for CUDA {major}, to build with", {} if headers else header_files, needs,
                other=f"libcudnn9-devel-cuda-{major}"),
    ]  # fmt: skip
    if headers:
        made.append(
            package(
                f"libcudnn9-headers-cuda-{major}", f"{version}-1", f"headers of cuDNN for CUDA {major}", header_files
            )
        )
    return made


def nccl(version: str, cuda: str) -> list[Extra]:
    """Return NCCL built for a CUDA version."""
    full = f"{version}-1+cuda{cuda}"

    def files(form: Form) -> Mapping[str, File]:
        return {f"{LIBDIR[form]}/libnccl.so.{version}": File(library("libnccl.so.2"))}

    return [
        package("libnccl2", full, "NCCL", files, other="libnccl", scripts=(LDCONFIG, "")),
        package("libnccl-dev", full, "NCCL, to build with", {}, {"libnccl2": f"={full}"}, other="libnccl-devel"),
    ]


EXTRAS: tuple[Extra, ...] = (
    *(extra for version in RELEASES for extra in release(version)),
    *(
        extra
        for version, headers in CUDNN.items()
        for major in ("12", "13")
        for extra in cudnn(version, headers, major)
    ),
    *(extra for version, built in NCCL.items() for cuda in built for extra in nccl(version, cuda)),
)
