"""States of the step driver_modules, one function each; they raise Failed or packages.Refused."""

from __future__ import annotations

import errno
import os
import re
from typing import Any, Callable, Dict, Mapping, Sequence

from ..packages import choice
from ..packages.model import Settings
from . import aside, in_place, signing
from .dkms import Failed

Asked = Mapping[str, Any]
Answer = Dict[str, Any]
# The rpm package of a program; Debian's g++ has the same name.
COMPILERS = {"g++": "gcc-c++", "gcc": "gcc", "cc": "gcc", "make": "make"}


def build_aside(family: str, params: Asked, check: bool) -> Answer:
    """Build and pack the modules; return the path of the archive."""
    if check:
        return {"changed": False, "pack": ""}
    files = choice.choose_manager(Settings(params["lock_timeout"], tuple(params["without"]))).files(
        params["built_from"]
    )
    try:
        pack = aside.build(family, files, params["kernels"])
    except Failed as error:
        output = " | ".join((error.lines or [str(error)])[-9:])
        raise Failed(
            f"the kernel modules of {params['version']} ({params['flavour']}) could not be built; the driver that "
            f"was there is untouched. {output}. Fix: {_fix(family, output)}"
        ) from error
    if family != "debian":
        aside.put_into_tree(pack)
    return {"changed": False, "pack": pack}


def _fix(family: str, output: str) -> str:
    # /bin/sh: line 1: g++: command not found
    absent = re.search(r"([^ /]+): command not found", output)
    if not absent:
        return (
            "another version (gpuprov catalog drivers), the other kernel_modules, or a kernel that this one builds for"
        )
    name = absent[1]
    package = name if (family, name) == ("debian", "g++") else COMPILERS.get(name, f"the package of {name}")
    return f"install {package}, and apply again"


def install_built(family: str, params: Asked, check: bool) -> Answer:
    """Install the modules of a DKMS package. In check mode the package may be missing: the transaction before it was
    not done."""
    target = params["package"], params["module"], params["flavour"], params["kernels"]
    if check:
        try:
            return make_answer(in_place.list_kernels_without(family, *target))
        except Failed:
            return make_answer([])
    try:
        kernels = in_place.install(family, *target, params["pack"])
    except Failed as error:
        raise describe_failed_build(error) from error
    finally:
        clear(family, params, check)
    return make_answer(kernels, sign_modules(params))


def install_registered(_family: str, params: Asked, check: bool) -> Answer:
    """Install the modules that NVIDIA's installer registered."""
    if check:
        return make_answer([])
    try:
        kernels = in_place.register(params["version"], params["flavour"], params["kernels"])
    except Failed as error:
        raise describe_failed_build(error) from error
    return make_answer(kernels, sign_modules(params))


def install_linked(family: str, params: Asked, check: bool) -> Answer:
    """Install the modules of precompiled packages."""
    if check:
        return make_answer([])
    try:
        return make_answer(in_place.link_precompiled(family, params["version"], params["packages"], params["kernels"]))
    except Failed as error:
        raise Failed(
            f"the precompiled modules are not in place: {error}. Fix: find what else puts modules there (modinfo -n "
            "nvidia), or nvidia_driver.build dkms"
        ) from error


def clear(family: str, params: Asked, check: bool) -> Answer:
    """Remove modules that were built in the staging area."""
    if params["pack"] and not check:
        aside.take_away(family, params["pack"])
    return {"changed": False}


ACTIONS: dict[str, Callable[[str, Asked, bool], Answer]] = {
    "aside": build_aside,
    "dkms": install_built,
    "runfile": install_registered,
    "precompiled": install_linked,
    "cleared": clear,
}


def describe_failed_build(error: Failed) -> Failed:
    fix = "remove that kernel, or choose a version that builds for it"
    if os.strerror(errno.ENOSPC) in str(error):
        fix = "df -h /tmp /var /boot; df -i /tmp /var, and free space; the kernel and the driver may fit"
    elif os.strerror(errno.EROFS) in str(error):
        fix = (
            "findmnt -no OPTIONS -T /tmp; findmnt -no OPTIONS -T /var, and mount them rw; the kernel and the "
            "driver may fit"
        )
    return Failed(f"the kernel modules could not be built: {error}. Fix: {fix}")


def sign_modules(params: Asked) -> list[str]:
    if not params["serial"]:
        return []
    keys = params["key_file"], params["certificate_file"]
    try:
        return signing.sign_all(params["version"], params["serial"], *keys, params["kernels"])
    except Failed as error:
        raise Failed(
            f"the kernel modules could not be signed: {error}. Fix: install the kernel's headers, which have "
            "sign-file, and apply again"
        ) from error


def make_answer(kernels: Sequence[str], signed: Sequence[str] = ()) -> Answer:
    """Return `changed`, and the changes, as a difference."""
    lines = [f"installed for {kernel}" for kernel in kernels] + [f"signed for {kernel}" for kernel in signed]
    answer = {"changed": bool(lines), "kernels": list(kernels), "signed": list(signed)}
    return {**answer, "diff": {"prepared": "".join(f"{line}\n" for line in lines)}} if lines else answer
