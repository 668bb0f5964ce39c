"""Generation of the files that let containers find the current GPUs of this host: links in /dev/char, and one CDI
specification."""

from __future__ import annotations

import contextlib
import filecmp
import glob
import os
import re
import shutil
import stat
import subprocess
import tempfile
from typing import NamedTuple, Sequence

from .failed import Failed

SPECIFICATION = "nvidia.yaml"
# Directories in which engines look for specifications.
DIRECTORIES = ("/var/run/cdi", "/etc/cdi")
# The first device file that CUDA opens, and that no kernel creates: a specification generated without it provides GPUs
# on which no program runs. https://github.com/NVIDIA/nvidia-container-toolkit/issues/50
UVM = "/dev/nvidia-uvm"
# The command that creates it. With --load-kernel-modules, which fails if one of the driver's modules is missing, it
# loads them first. The toolkit's own unit does so from 1.20 on.
NODES = "nvidia-ctk --quiet system create-device-nodes --control-devices"
MAKE_UVM = f"[ -e {UVM} ] || {NODES} --load-kernel-modules || {NODES}"
# Variables with which the site configures nvidia-ctk; the toolkit's unit uses them at each boot, too.
# https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/deployments/systemd/nvidia-cdi-refresh.env
SETTINGS = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
LINKS = ["nvidia-ctk", "--quiet", "system", "create-dev-char-symlinks", "--create-all"]
DEVICES, BY_NUMBER = "/dev/nvidia*", "/dev/char"
# Exit status of nvidia-smi if a GPU's infoROM is corrupted; it still lists the GPUs.
CORRUPTED_INFOROM = 14


class Ran(NamedTuple):
    """A program's exit status and the last lines of its error output; 127 if there is no such program."""

    status: int
    message: str


def settle(directory: str, *, check: bool) -> list[str]:
    """Create the links, and the specification in this directory only. Return the changes, in check mode the pending
    ones. Raises Failed."""
    return [*link_devices(check), *write_specification(directory, check)]


def list_unlinked() -> list[str]:
    """List NVIDIA's device files without a link in /dev/char: systemd takes them from containers at a daemon-reload."""
    missing = []
    for path in sorted(glob.glob(DEVICES)):
        state = os.stat(path)
        number = f"{os.major(state.st_rdev)}:{os.minor(state.st_rdev)}"
        if stat.S_ISCHR(state.st_mode) and not os.path.exists(os.path.join(BY_NUMBER, number)):
            missing.append(path)
    return missing


def link_devices(check: bool) -> list[str]:
    missing = list_unlinked()
    ran = _run(LINKS) if missing and not check else Ran(0, "")
    if ran.status:
        raise Failed(f"nvidia-ctk system create-dev-char-symlinks failed: {ran.message}")
    return [f"{BY_NUMBER}: linked {' '.join(missing)}"] if missing else []


def write_specification(directory: str, check: bool) -> list[str]:
    listed = _run(["nvidia-smi", "-L"]).status
    if listed == 0 and not check:
        _run(["sh", "-c", MAKE_UVM])
    changed = []
    if listed in (0, CORRUPTED_INFOROM) and _generate(os.path.join(directory, SPECIFICATION), check):
        changed.append(f"{os.path.join(directory, SPECIFICATION)}: made anew")
    other_files = [os.path.join(folder, SPECIFICATION) for folder in DIRECTORIES if folder != directory]
    for path in other_files if listed == 0 else ():
        if os.path.lexists(path):
            changed.append(f"{path}: removed, which engines would take too")
            if not check:
                os.unlink(path)
    return changed


def _generate(path: str, check: bool) -> bool:
    """Replace the specification by the one that nvidia-ctk would write now; return whether it differs."""
    with tempfile.TemporaryDirectory(prefix="gpuprov-cdi-") as folder:
        made = os.path.join(folder, SPECIFICATION)  # the name's ending decides the format
        ran = _run(["nvidia-ctk", "--quiet", "cdi", "generate", f"--output={made}"], **read_settings())
        if ran.status and check:
            return not os.path.exists(path)
        if ran.status:
            raise Failed(f"nvidia-ctk cdi generate failed: {ran.message}")
        if os.path.isfile(path) and filecmp.cmp(made, path, shallow=False):
            return False
        if not check:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            shutil.copyfile(made, f"{path}.new")
            os.chmod(f"{path}.new", 0o644)
            os.replace(f"{path}.new", path)
        return True


def read_settings() -> dict[str, str]:
    """Return NVIDIA's variables in the site's file, as systemd reads them."""
    values = {}
    with contextlib.suppress(OSError), open(SETTINGS, encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, value = line.strip().partition("=")
            # NVIDIA_CTK_CDI_GENERATE_DEVICE_NAME_STRATEGIES="uuid"
            if re.match(r"NVIDIA_CTK_[A-Z_]+\Z", name):
                values[name] = re.sub(r"""\A(["'])(.*)\1\Z""", r"\2", value.strip())
    return values


def _run(argv: Sequence[str], **more: str) -> Ran:
    environment = {**os.environ, **more}
    try:
        done = subprocess.run(list(argv), stdin=subprocess.DEVNULL, capture_output=True, env=environment, check=False)
    except FileNotFoundError:
        return Ran(127, f"{argv[0]} is not there")
    lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
    return Ran(done.returncode, " ".join(lines[-3:]))
