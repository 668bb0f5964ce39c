"""gpuprov on a host: the wheels that a bundle names, chosen for a Python of this host, and unpacked into a separate
folder.

A wheel is a zip archive whose root can be imported
(https://packaging.python.org/en/latest/specifications/binary-distribution-format/); gpuprov does not need its scripts,
so neither pip nor venv is required on the host.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
import zipfile
import zlib
from typing import Callable, Iterable, NamedTuple, Sequence

from .bundle import Wheel
from .limits import FILES, ROOM, UNPACKED
from .refused import Refused

CANDIDATES = ("python3", "python3.14", "python3.13", "python3.12", "python3.11")
PROBE = """import json, os, platform, sys
print(json.dumps([sys.version_info[:2], platform.machine(), os.confstr("CS_GNU_LIBC_VERSION") or ""]))"""
_NAME = re.compile(r"(?P<name>[^-]+)-[^-]+(-[0-9][^-]*)?-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl")
_OLD = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_BLOCK = 1 << 20
AGAIN = "build the wheels again, and make the bundle again; nothing was left on the host"


class Python(NamedTuple):
    """An interpreter of this host."""

    program: str
    version: tuple[int, int]
    machine: str
    glibc: tuple[int, int]


def find(wheels: Sequence[Wheel], least: tuple[int, int], program_name: str = "") -> tuple[Python, list[Wheel]]:
    """Return the first Python that is new enough and has a wheel of each package, with these wheels. Raises Refused."""
    why = []
    for name in [program_name] if program_name else CANDIDATES:
        program = shutil.which(name)
        python = query_python(program) if program else None
        if python is None:
            why += [f"{name} does not start"] if program or program_name else []
        elif python.version < least:
            why.append(f"{name} is {python.version[0]}.{python.version[1]}")
        else:
            chosen, missing = choose(wheels, python)
            if not missing:
                return python, chosen
            why.append(
                f"for {name} ({python.version[0]}.{python.version[1]}, {python.machine}) no wheel of "
                f"{', '.join(missing[:5])} fits"
            )
    message = f"gpuprov and ansible-core need Python {least[0]}.{least[1]} or newer, with wheels for it"
    fix = (
        "install one (python3.12 on EL 9), name it as `python` in pull.json, or put its wheels into the folder of "
        "--wheels"
    )
    raise Refused(
        f"this host has no Python that can do it: {'; '.join(why) or 'there is none'}. {message}",
        f"{fix}; nothing was changed",
    )


def query_python(program: str) -> Python | None:
    try:
        ran = subprocess.run(
            [program, "-I", "-c", PROBE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30, check=True
        )
        version, machine, libc = json.loads(ran.stdout.decode())
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    numbers = re.fullmatch(r"glibc (\d+)\.(\d+).*", libc)
    glibc = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    return Python(program, (version[0], version[1]), machine, glibc)


def choose(wheels: Iterable[Wheel], python: Python) -> tuple[list[Wheel], list[str]]:
    """Return one wheel of each package, the most specific that fits; and the packages without a fitting one."""
    best: dict[str, tuple[int, Wheel]] = {}
    names = set()
    for wheel in sorted(wheels, key=lambda item: str(item["name"])):
        parts = _NAME.fullmatch(wheel["name"])
        name = parts["name"].lower().replace("_", "-") if parts else str(wheel["name"])
        names.add(name)
        rank = rate_wheel(parts["python"], parts["abi"], parts["platform"], python) if parts else 0
        if rank and (name not in best or rank >= best[name][0]):
            best[name] = (rank, wheel)
    return [best[name][1] for name in sorted(best)], sorted(names - set(best))


def rate_wheel(tags: str, abi: str, platforms: str, python: Python) -> int:
    """Return 0 if it does not fit; more for a wheel for this very Python."""
    own_tag = f"cp{python.version[0]}{python.version[1]}"
    if not any(rate_platform(tag, python) for tag in platforms.split(".")):
        return 0
    for tag in tags.split("."):
        known = re.fullmatch(r"(cp|py)3(\d*)", tag)
        minor = int(known[2] or 0) if known else 1000
        if tag == own_tag and abi in (own_tag, "none", "abi3"):
            return 3
        if minor <= python.version[1] and "abi3" in abi.split("."):
            return 2
        if minor <= python.version[1] and abi == "none" and tag.startswith("py"):
            return 1
    return 0


def rate_platform(tag: str, python: Python) -> bool:
    if tag in ("any", f"linux_{python.machine}"):
        return True
    known = re.fullmatch(r"(manylinux(?:1|2010|2014)|manylinux_(\d+)_(\d+))_" + re.escape(python.machine), tag)
    if not known:
        return False
    needed = (int(known[2]), int(known[3])) if known[2] else _OLD[known[1]]
    return needed <= python.glibc


def make_folder(state: str, python: Python, chosen: Sequence[Wheel]) -> str:
    """Return the folder of the chosen wheels, which is named after its contents."""
    text = json.dumps([python.version, [wheel["sha256"] for wheel in chosen]])
    return os.path.join(state, f"gpuprov-{hashlib.sha256(text.encode()).hexdigest()[:16]}")


def install(place: str, chosen: Sequence[Wheel], fetch: Callable[[Wheel], bytes], try_it: Callable[[str], str]) -> None:
    """Write the wheels into the folder, completely or not at all. Each is compared with the manifest before it is
    opened.

    try_it: returns why the unpacked code does not start, or "". Raises Refused.
    """
    above = os.path.dirname(place)
    clear(above)
    fresh = tempfile.mkdtemp(prefix=".new-", dir=above)
    try:
        remaining, count = UNPACKED, FILES
        for wheel in chosen:
            data = fetch(wheel)
            if len(data) != wheel["size"] or hashlib.sha256(data).hexdigest() != wheel["sha256"]:
                raise Refused(
                    f"{wheel['name']} is not the file that the bundle names",
                    "copy the folder of gpuprov bundle to the server again",
                )
            free = os.statvfs(fresh)
            remaining, count = unpack(
                data, fresh, wheel["name"], min(remaining, free.f_bavail * free.f_frsize - ROOM), count
            )
        if complaint := try_it(fresh):
            raise Refused(f"gpuprov of the bundle does not start on this host: {complaint}", AGAIN)
        os.rename(fresh, place)
    except OSError as error:
        raise Refused(
            f"the wheels cannot be unpacked into {above}: {error.strerror}",
            "make room, or fix the disk; nothing was left",
        ) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def clear(above: str, but: str = "") -> None:
    """Remove leftovers of a killed run; with `but`, older folders, too."""
    for name in os.listdir(above):
        if name.startswith(".new-") or (but and name.startswith("gpuprov-") and name != os.path.basename(but)):
            shutil.rmtree(os.path.join(above, name), ignore_errors=True)


def unpack(data: bytes, place: str, name: str, most: int, files: int) -> tuple[int, int]:
    """Unpack one wheel: plain files below the folder, no more bytes than `most`. Return what is left of both limits."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > files:
                raise Refused(f"{name} holds more than {files} files", AGAIN)
            if (size := sum(entry.file_size for entry in members)) > most:
                raise Refused(
                    f"{name} has {size} bytes when it is unpacked; there is room for {max(most, 0)}",
                    f"make room; or {AGAIN}",
                )
            for member in members:
                to = find_target(member, place, name)
                if to:
                    most -= copy_member(archive, member, to, name)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, EOFError, ValueError, RuntimeError) as error:
        raise Refused(f"{name} is not a wheel: {str(error)[:200]}", AGAIN) from None
    return most, files - len(members)


def find_target(member: zipfile.ZipInfo, place: str, name: str) -> str:
    """Return the path of a member of a wheel; "" for folders and for files that imports do not need."""
    kind = stat.S_IFMT(member.external_attr >> 16)
    parts = member.filename.split("/")
    odd = member.filename.startswith("/") or "\\" in member.filename or "\0" in member.filename or ".." in parts
    if odd or "" in parts[:-1] or "." in parts or kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        what = "a link or a device" if kind not in (0, stat.S_IFREG, stat.S_IFDIR) else "a name that leaves its folder"
        raise Refused(f"{name} holds {member.filename[:100]!r}, {what}", AGAIN)
    if member.is_dir():
        return ""
    if parts[0].endswith(".data"):
        if parts[1:2] not in (["purelib"], ["platlib"]):
            return ""
        parts = parts[2:]
    return os.path.join(place, *parts)


def copy_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, to: str, name: str) -> int:
    os.makedirs(os.path.dirname(to), mode=0o755, exist_ok=True)
    done = 0
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with archive.open(member) as source, os.fdopen(os.open(to, flags, 0o644), "wb") as file:
        while block := source.read(_BLOCK):
            done += len(block)
            if done > member.file_size:
                raise Refused(f"{name} holds {member.filename[:100]!r}, which is longer than its header says", AGAIN)
            file.write(block)
    return done
