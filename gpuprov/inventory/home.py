"""The folder that Ansible keeps for itself (~/.ansible), and a private one if that is impossible: no home, or a
read-only one."""

import atexit
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from gpuprov.core import temporary
from gpuprov.core.errors import GpuprovError

PREFIX = "gpuprov-ansible-"


def build_environment() -> dict[str, str]:
    """Return the environment that Ansible needs here: empty if its folder can be used, else ANSIBLE_HOME."""
    if os.environ.get("ANSIBLE_HOME") or is_usable(os.path.expanduser("~")):
        return {}
    return {"ANSIBLE_HOME": make_private_folder()}


@contextmanager
def set_environment() -> Iterator[None]:
    """Set this environment in the process while Ansible is imported: that is when Ansible makes its temporary
    folder."""
    given: Mapping[str, str] = build_environment()
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:
            del os.environ[name]


def is_usable(home: str) -> bool:
    folder = os.path.join(home, ".ansible", "tmp")
    try:
        if not os.path.isabs(home) or not os.path.isdir(home):
            return False
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


@cache
def make_private_folder() -> str:
    """Return a folder for this process, removed at its end."""
    try:
        folder = str(temporary.folder(PREFIX))
    except OSError as error:
        raise GpuprovError(str(error.strerror), "make room there, or set TMPDIR to a folder with free space") from error
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
