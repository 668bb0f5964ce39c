"""Rebuild a kernel module for peer memory against the installed ib_core.

The module's DKMS package is rebuilt in a tree of its own and put in place only if the result has peer memory. A build
that is interrupted or fails leaves the installed modules untouched.
Check mode only reports the change.

module: The module.
kernels: Kernels to build for.
why: The reason for the build, in words.

Returns:
msg: The change made, or in check mode pending. (changed)
"""

from __future__ import annotations

import contextlib
import glob
import gzip
import lzma
import os
import re
import shutil
import signal
import subprocess
from typing import Iterator, Sequence

from ..failed import Failed
from ..files import read, write
from ..module import AnsibleModule

OPTIONS = {
    "module": {"type": "str", "choices": ["nvidia_peermem", "nv_peer_mem"], "required": True},
    "kernels": {"type": "list", "elements": "str", "required": True},
    "why": {"type": "str", "required": True},
}
DKMS, SOURCES = "/var/lib/dkms", "/usr/src"
WORK = "/var/lib/gpuprov/rebuild"
SYMBOL = "ib_register_peer_memory_client"
ENDED = ("SIGHUP", "SIGINT", "SIGTERM")


def run(module: AnsibleModule) -> None:
    name, kernels, why = (module.params[key] for key in ("module", "kernels", "why"))
    if module.check_mode:
        module.exit_json(changed=True, msg=f"would build {name} again for {why}")
    try:
        rebuild_package(name, kernels)
    except (Failed, OSError) as error:
        message = f"{name} could not be built again, the modules that were there are untouched ({why}). {error}"
        module.fail_json(
            msg=f"{message}. Fix: correct what the build says; or method dmabuf, which needs no such module"
        )
    module.exit_json(changed=True, msg=f"built {name} again for {why}")


def rebuild_package(module: str, kernels: Sequence[str]) -> None:
    """Rebuild the DKMS package that has this module, for each kernel, and install the result. Raises Failed."""
    if not shutil.which("dkms"):
        raise Failed("DKMS is not installed, so the modules came ready-made: they cannot be built again here")
    if not restore_replaced():
        raise Failed(f"modules that an earlier run was to replace cannot be put back: {WORK}/old")
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(f"{WORK}/tree")
    with end_by_signals():
        try:
            for kernel in kernels:
                _replace(module, kernel)
        finally:
            if restore_replaced():
                shutil.rmtree(WORK, ignore_errors=True)


def _replace(module: str, kernel: str) -> None:
    installed = _find(f"{DKMS}/*/*", module, kernel)
    if not installed:
        raise Failed(f"kernel {kernel}: {module} does not come from DKMS: it came ready-made, or another host built it")
    name, version = os.path.relpath(installed, DKMS).split(os.sep)[:2]
    old, new = (path.rpartition("/module/")[0] for path in (installed, build_module(module, name, version, kernel)))
    # A copy that is whole, before anything is taken away: what ends this program from here on puts it back.
    write(f"{WORK}/home", old)
    if not (_copy(old, f"{WORK}/copy") and rename_file(f"{WORK}/copy", f"{WORK}/old")):
        raise Failed(f"kernel {kernel}: {old} cannot be kept aside in {WORK}: is the file system full?")
    of = ["-m", name, "-v", version, "-k", kernel]
    _run("dkms", "uninstall", *of)
    shutil.rmtree(old, ignore_errors=True)
    if not _copy(new, old):
        raise Failed(f"kernel {kernel}: {old} cannot be replaced: is the file system full?")
    done = _run("dkms", "install", "--force", *of)
    if done.returncode:
        raise Failed(
            f"kernel {kernel}, {name}/{version}: DKMS does not install what it built: {shorten_output(done.stdout)}"
        )
    os.unlink(f"{WORK}/home")
    shutil.rmtree(f"{WORK}/old")
    shutil.rmtree(f"{DKMS}/{name}/original_module", ignore_errors=True)


def build_module(module: str, name: str, version: str, kernel: str) -> str:
    """Build the module in our own tree, and return its file."""
    aside = ["--dkmstree", f"{WORK}/tree", "--sourcetree", SOURCES, "-m", name, "-v", version]
    if not os.path.exists(f"{WORK}/tree/{name}/{version}"):
        added = _run("dkms", "add", *aside)
        if added.returncode:
            raise Failed(f"{name}/{version}: {shorten_output(added.stdout)}")
    done = _run("dkms", "build", *aside, "-k", kernel)
    if done.returncode:
        logs = glob.glob(f"{WORK}/tree/**/make.log", recursive=True)
        output = read(logs[0]) if logs else done.stdout
        errors = [line for line in output.splitlines() if re.search(r": (fatal )?error:|^ERROR: ", line)]
        message = " | ".join(line[:200] for line in errors[:8]) or shorten_output(output)
        raise Failed(f"kernel {kernel}, {name}/{version}: {message}")
    made = _find(f"{WORK}/tree/{name}/{version}", module, kernel)
    if not made or not is_built_with_peer_memory(made):
        message = f"built again without peer memory, for its build finds no {SYMBOL} in OFED's Module.symvers"
        raise Failed(f"kernel {kernel}, {name}/{version}: {message}")
    return made


def _find(tree: str, module: str, kernel: str) -> str:
    """Return the module's file among those that DKMS has built for the kernel; "" if there is none."""
    name = "nv_peer_mem.ko*" if module == "nv_peer_mem" else "nvidia*peermem.ko*"
    paths = glob.glob(f"{tree}/{glob.escape(kernel)}/**/module/**/{name}", recursive=True)
    return sorted(paths)[0] if paths else ""


def is_built_with_peer_memory(file: str) -> bool:
    """Return whether the module was built with peer memory."""
    if file.endswith(".zst"):
        text = subprocess.run(["zstd", "-dcq", file], stdin=subprocess.DEVNULL, capture_output=True, check=False).stdout
    else:
        opened = lzma.open if file.endswith(".xz") else gzip.open if file.endswith(".gz") else open
        with opened(file, "rb") as content:
            text = content.read()
    return SYMBOL.encode() in text


def restore_replaced() -> bool:
    """Restore what this run, or one that was interrupted, had begun to replace; return whether it is in place."""
    home = read(f"{WORK}/home").strip()
    if not home or not os.path.isdir(f"{WORK}/old"):
        return True
    shutil.rmtree(home, ignore_errors=True)
    os.makedirs(os.path.dirname(home), exist_ok=True)
    if not rename_file(f"{WORK}/old", home):
        return False
    name, version, kernel = os.path.relpath(home, DKMS).split(os.sep)[:3]
    return _run("dkms", "install", "--force", "-m", name, "-v", version, "-k", kernel).returncode == 0


def _copy(source: str, aim: str) -> bool:
    return _run("cp", "-a", source, aim).returncode == 0


def rename_file(source: str, aim: str) -> bool:
    return _run("mv", source, aim).returncode == 0


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )


def shorten_output(output: str) -> str:
    return " | ".join(line[:200] for line in output.splitlines()[-8:] if line.strip())


@contextlib.contextmanager
def end_by_signals() -> Iterator[None]:
    """Have signals end this process by way of `finally`."""

    def ended(_number: int, _frame: object) -> None:
        raise SystemExit(1)

    before = {name: signal.signal(getattr(signal, name), ended) for name in ENDED}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)
