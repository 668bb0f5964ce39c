"""Steps of a change of a container engine on this host: keep and restore its files, run nvidia-ctk, write texts, reload
the daemon.

The order of the steps is decided on the controller by `capabilities/container_toolkit/registration.py`: it reads TOML,
for which older hosts' Pythons have no parser.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import subprocess
import tempfile
from typing import Callable, Mapping, Sequence

from . import files, rootless
from .failed import Failed
from .json_members import Json
from .systemd import systemctl

BACKUP = "/var/lib/gpuprov/container_toolkit"
# File beside the backups from before the last change: digests of the files after the change.
WRITTEN = "written.json"


def read(script: str) -> dict[str, Json]:
    """Return the probe's answer."""
    done = subprocess.run(["sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    return {"text": done.stdout.decode(errors="replace")}


def keep(engine: str, paths: Sequence[str]) -> dict[str, Json]:
    """Back up the engine's files. Raises Failed for a file that could not be restored exactly."""
    for path in filter(os.path.exists, paths):
        with open(path, "rb") as file:
            _refuse_bytes(path, file.read())
    new = f"{get_place(engine)}.new"
    shutil.rmtree(new, ignore_errors=True)
    os.makedirs(new)
    for path in filter(os.path.exists, paths):
        _copy(path, new + path)
    shutil.rmtree(get_place(engine), ignore_errors=True)
    os.rename(new, get_place(engine))
    return {}


def begin(engine: str, paths: Sequence[str]) -> dict[str, Json]:
    """Restore the kept files, without NVIDIA's drop-in file (each path but the first), and create their folders."""
    _put_back(engine, paths)
    for path in paths[1:]:
        files.remove(path)
    os.makedirs(os.path.dirname(paths[-1]), mode=0o755, exist_ok=True)
    return {}


def run(argv: Sequence[str], paths: Sequence[str]) -> dict[str, Json]:
    """Run nvidia-ctk; return its exit status, its first error, and the resulting files."""
    done = subprocess.run(list(argv), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return {"status": done.returncode, "error": find_complaint(done.stderr), "texts": read_texts(paths)}


def write(texts: Mapping[str, str]) -> dict[str, Json]:
    """Write these files, each with its present mode."""
    for path, text in texts.items():
        mode = stat.S_IMODE(os.stat(path).st_mode) if os.path.exists(path) else 0o644
        files.write(os.path.realpath(path), text, mode)
    return {}


def settled(engine: str, paths: Sequence[str]) -> dict[str, Json]:
    """Record the digests of the changed files."""
    files.write(os.path.join(get_place(engine), WRITTEN), json.dumps(compute_digests(paths)))
    return {}


def back(engine: str, paths: Sequence[str], unless_changed: bool) -> dict[str, Json]:
    """Restore the kept files. `unless_changed`: not if somebody has changed them since the change they were kept for,
    or if nothing was kept. Return whether it was done."""
    if unless_changed:
        try:
            known = json.loads(files.read(os.path.join(get_place(engine), WRITTEN)) or "{}")
        except ValueError:
            known = {}
        if known != compute_digests(paths):
            return {"back": False}
    _put_back(engine, paths)
    return {"back": True}


def tell(verb: str, unit: str) -> dict[str, Json]:
    """Reload or restart the daemon, even one that failed too often."""
    if verb == "restart":
        systemctl("reset-failed", "--", unit)
    status, _, error = systemctl(verb, "--", unit)
    return {"status": status, "error": error}


def own(user: str) -> dict[str, Json]:
    """Return a user's own docker configuration."""
    account = rootless.find_account(user)
    text = rootless.read(account)
    _refuse_bytes(account.file, text.encode("utf-8", "surrogateescape"))
    return {"path": account.file, "text": text}


def run_on_copy(argv: Sequence[str], text: str) -> dict[str, Json]:
    """Run nvidia-ctk on a copy of this text: it runs as root, and the file is a user's."""
    with tempfile.TemporaryDirectory(prefix="gpuprov-ctk-") as folder:
        path = os.path.join(folder, "daemon.json")
        if text:
            files.write(path, text)
        done = subprocess.run([*argv, f"--config={path}"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return {"status": done.returncode, "error": find_complaint(done.stderr), "text": files.read(path)}


def write_own(user: str, text: str) -> dict[str, Json]:
    """Have the user write this text, and reload the user's daemon."""
    rootless.write(rootless.find_account(user), text)
    return {"reloaded": rootless.reload(user)}


# Each step is complete in itself: the connection may end between any two.
STEPS: dict[str, Callable[..., dict[str, Json]]] = {
    step.__name__: step for step in (read, keep, begin, run, write, settled, back, tell, own, run_on_copy, write_own)
}


def get_place(engine: str) -> str:
    return os.path.join(BACKUP, engine)


def _put_back(engine: str, paths: Sequence[str]) -> None:
    for path in paths:
        kept = get_place(engine) + path
        if os.path.exists(kept):
            _copy(kept, path)
        else:
            files.remove(path)


def _copy(path: str, to: str) -> None:
    """Copy with mode, owner and times; a link is followed, and a link at the destination is kept."""
    os.makedirs(os.path.dirname(to), exist_ok=True)
    shutil.copy2(path, to)
    state = os.stat(path)
    os.chown(to, state.st_uid, state.st_gid)


def _refuse_bytes(path: str, content: bytes) -> None:
    """Refuse bytes that are not UTF-8: TOML and JSON are UTF-8, and data passing through Ansible has to be."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Failed(f"{path}: line {line} has a byte that is not UTF-8 (0x{content[error.start]:02x})") from error


def read_texts(paths: Sequence[str]) -> dict[str, str]:
    texts = {}
    for path in paths:
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="surrogateescape") as file:
            texts[path] = file.read()
    return texts


def compute_digests(paths: Sequence[str]) -> dict[str, str]:
    texts = read_texts(paths)
    return {path: hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest() for path, text in texts.items()}


def find_complaint(output: bytes) -> str:
    """Return nvidia-ctk's error message; its whole output is in one line of its log."""
    return output.decode(errors="replace").strip().partition("\n")[0].rpartition("msg=")[2]
