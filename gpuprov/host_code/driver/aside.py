"""The modules of a DKMS package built in a staging area: the old package's scriptlet removes its own modules, and a
failed build after that would leave a host without any.

They are packed: on Debian where the package's postinst looks (ldtarball in /usr/lib/dkms/common.postinst), so that the
transaction builds nothing; else in /var/lib/gpuprov, and added to DKMS's tree as built. DKMS's tree is not touched
before.
"""

from __future__ import annotations

import glob
import os
import re
import signal
import subprocess
from contextlib import contextmanager, suppress
from typing import Iterator, Sequence

from ..files import flush_to_disk
from ..packages.commands import run
from .dkms import SOURCES, TREE, Failed, Source, build_environment, find_complaints, find_dkms, forget, parse_dkms_conf
from .prebuilt import FOLDER as PACKS

WORK = "/var/lib/gpuprov/prebuild"
SHARED = "/usr/share"
ENDING = ".dkms.tar.gz"


def build(family: str, files: Sequence[str], kernels: Sequence[str]) -> str:
    """Build for each kernel; return the path of the pack. Raises Failed."""
    forget(WORK)
    clear(family)
    os.makedirs(f"{WORK}/content")
    os.makedirs(f"{WORK}/tree")
    try:
        with end_by_signals():
            for file in files:
                _unpack(family, file)
            module = find_source(files)
            _add(module)
            for kernel in kernels:
                _build(module, kernel)
            return pack_modules(family, module, kernels)
    finally:
        forget(WORK)


@contextmanager
def end_by_signals() -> Iterator[None]:
    """Convert signals to an exception, so that a lost connection ends the build and removes what it has written."""

    def end(_number: int, _frame: object) -> None:
        raise SystemExit(1)

    before = {number: signal.signal(number, end) for number in (signal.SIGHUP, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _unpack(family: str, file: str) -> None:
    content = f"{WORK}/content"
    if family == "debian":
        ran = run(["dpkg-deb", "-x", file, content])
        if ran.status:
            raise Failed(f"{file} cannot be unpacked", [ran.message, f"{file} cannot be unpacked"])
        return
    try:
        with open(file, "rb") as package:
            made = subprocess.run(["rpm2archive", "-"], stdin=package, capture_output=True, check=False)
        put = subprocess.run(["tar", "-xz", "-C", content], input=made.stdout, capture_output=True, check=False)
        words = (made.stderr + put.stderr).decode(errors="replace").split()
        failed = bool(made.returncode or put.returncode)
    except OSError as error:
        words, failed = [str(error)], True
    if failed:
        raise Failed(f"{file} cannot be unpacked", [" ".join(words), f"{file} cannot be unpacked"])


def find_source(files: Sequence[str]) -> Source:
    paths = sorted(glob.glob(f"{WORK}/content/usr/src/*/dkms.conf"))
    if not paths:
        raise Failed("no dkms.conf", [f"{' '.join(files)}: no dkms.conf"])
    module = parse_dkms_conf(paths[0])
    # A dkms.conf may say another name (nvidia in nvidia-open-570.133.20), and the pack would have it:
    # https://github.com/NVIDIA/open-gpu-kernel-modules/pull/567
    with open(paths[0], encoding="utf-8", errors="surrogateescape") as file:
        text = file.read()
    with open(paths[0], "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(re.sub(r"^PACKAGE_NAME=.*", f'PACKAGE_NAME="{module.name}"', text, flags=re.MULTILINE))
    return module


def build_aside(action: str, module: Source, *words: str) -> list[str]:
    trees = ["--dkmstree", f"{WORK}/tree", "--sourcetree", f"{WORK}/content/usr/src"]
    return ["dkms", action, *trees, *module.words, *words]


def _add(module: Source) -> None:
    ran = run(build_aside("add", module))
    if ran.status:
        raise Failed("DKMS does not take the source", ran.err.splitlines() or ran.lines)


def _build(module: Source, kernel: str) -> None:
    ran = run(build_aside("build", module, "-k", kernel), build_environment(kernel))
    tree = f"{WORK}/tree/{module.name}/{module.version}"
    if ran.status:
        logs = sorted(glob.glob(f"{tree}/**/make.log", recursive=True))
        output = (ran.out + ran.err).splitlines()
        lines = find_complaints(logs[0]) if logs else [line[:200] for line in output[-8:]]
        raise Failed("the build fails", [f"kernel {kernel}:", *lines])
    files = sorted(glob.glob(f"{tree}/{kernel}/**/nvidia*.ko*", recursive=True))
    built = [file for file in files if re.search(r"/nvidia(-current(-open)?)?[.]ko", file)]
    magic = run(["modinfo", "-F", "vermagic", built[0]]) if built else None
    made = magic.out.partition(" ")[0].strip() if magic and magic.status == 0 else ""
    if made and made != kernel:
        message = f"kernel {kernel}: DKMS built modules of kernel {made} for it, which it would refuse"
        raise Failed(message, [message])


def pack_modules(family: str, module: Source, kernels: Sequence[str]) -> str:
    name = f"{module.name}-{module.version}{ENDING}"
    pack = f"{SHARED}/{module.name}-dkms/{name}" if family == "debian" else f"{PACKS}/{name}"
    os.makedirs(os.path.dirname(pack), exist_ok=True)
    # Not compressed, which takes longer than all else here: ldtarball looks at the content, not the name (dkms 2.8 to
    # 3.2).
    plain = pack[: -len(".gz")]
    which = [word for kernel in kernels for word in ("-k", kernel)]
    ran = run(build_aside("mktarball", module, *which, "--archive", plain))
    if ran.status:
        with suppress(OSError):
            os.unlink(plain)
        raise Failed("the modules cannot be packed", ran.err.splitlines() or ran.lines)
    # A package that is configured after a loss of power would load a pack that is cut off, and fail, each time.
    flush_to_disk(plain)
    os.rename(plain, pack)
    flush_to_disk(os.path.dirname(pack))
    return pack


def read_pack(pack: str) -> Source:
    name, _, version = os.path.basename(pack)[: -len(ENDING)].rpartition("-")
    return Source(name, version)


def put_into_tree(pack: str) -> None:
    """Add the modules of the pack to the host's DKMS tree as built, so that an rpm's scriptlet, which runs dkms build,
    has nothing to do; unless DKMS has this version already: then its modules are the other flavour's, and `in_place`
    uses the pack."""
    module = read_pack(pack)
    folders = (f"{TREE}/{module.name}/{module.version}", f"{SOURCES}/{module.name}-{module.version}")
    if not any(map(os.path.exists, folders)):
        find_dkms("ldtarball", "--archive", pack)


def clear(family: str, *, damaged: bool = False) -> None:
    """Remove staged builds of interrupted runs. `damaged`: only if the pack is incomplete."""
    pattern = f"{SHARED}/nvidia*-dkms/*{ENDING}" if family == "debian" else f"{PACKS}/*{ENDING}"
    for pack in sorted(glob.glob(pattern)):
        if damaged and _is_whole(pack):
            continue
        if family != "debian" or run(["dpkg-query", "-S", pack]).status:
            take_away(family, pack)


def _is_whole(pack: str) -> bool:
    listed = run(["tar", "-tf", pack])
    return listed.status == 0 and ".ko" in listed.out and has_end_of_archive(pack)


def has_end_of_archive(pack: str) -> bool:
    """Return whether the archive has the end of a plain tar, two blocks of zeros: tar lists an archive as complete even
    if it is cut between two files."""
    # https://www.gnu.org/software/tar/manual/html_node/Standard.html
    with open(pack, "rb") as file:
        if file.read(262)[257:] != b"ustar":
            return True  # compressed, and its own end was seen
        file.seek(-1024, os.SEEK_END)
        return file.read() == bytes(1024)


def take_away(family: str, pack: str) -> None:
    """Remove the pack, and from DKMS's tree the modules whose source belongs to no package."""
    if family != "debian":
        module = read_pack(pack)
        folder = f"{SOURCES}/{module.name}-{module.version}"
        if os.path.exists(folder) and run(["rpm", "-qf", f"{folder}/dkms.conf"]).status:
            find_dkms("remove", *module.words, "--all")
            forget(folder)
    with suppress(FileNotFoundError):
        os.unlink(pack)
    if family == "debian":
        with suppress(OSError):
            os.rmdir(os.path.dirname(pack))
