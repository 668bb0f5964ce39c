"""How the role registers the runtime, step by step, on a host that is real or recorded. Standard library and gpuprov's filters only.

The tasks of roles/container_toolkit/tasks/configure say the same in Ansible; tests/e2e/test_engines.py runs those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from gpuprov.shared import engine_files, engine_output, engines

FILES = {
    "docker": ["/etc/docker/daemon.json"],
    "containerd": ["/etc/containerd/config.toml", engines.DROP_IN],
    "crio": ["/etc/crio/crio.conf", "/etc/crio/crio.conf.d/99-nvidia.toml"],
}
DONE, NOTHING = "accepted", "nothing to do"


class Host(Protocol):
    """What the role does to a host."""

    def read(self) -> str:
        """The output of the probe."""

    def restore(self) -> None:
        """The engine's files as they were at the start, without NVIDIA's drop-in file."""

    def write(self, files: dict[str, str]) -> None:
        """Put these texts there."""

    def configure(self, command: list[str]) -> tuple[int, str, dict[str, str]]:
        """Run nvidia-ctk: its exit status, what it says, and the files of the engine that are there now."""


def register(host: Host, name: str, default: bool, drop_ins: bool = True) -> str:
    """What becomes of it: DONE, NOTHING, or why it is refused."""
    engine = engine_output.parse(host.read())[name]
    if why := engines.refused(name, engine):
        return why
    if not engines.differences(name, engine, default):
        return NOTHING
    told = _attempt(host, name, default, drop_ins, "file")
    if name != "docker" and told.startswith("lost"):
        told = _attempt(host, name, default, drop_ins, "command")
    return told


def _attempt(host: Host, name: str, default: bool, drop_ins: bool, source: str) -> str:
    host.restore()
    read: Callable[[], engines.Engine] = lambda: engine_output.parse(host.read())[name]  # noqa: E731
    before = read()
    if seed := engines.seed(name, before):
        host.write({FILES[name][0]: seed})
        before = read()
    status, error, produced = host.configure(engines.command(before, name, default, drop_ins, source))
    if status:
        return f"nvidia-ctk: {error}"
    originals = {path: file["text"] for path, file in before["files"].items()}
    host.write(engine_files.finished(produced, name, originals, default, engines.ordinary(name, before)))
    after = read()
    filters: dict[str, Any] = engines.FilterModule().filters()
    if lost := filters["gpuprov_engine_lost"](before, after, name):
        return f"lost: {', '.join(lost)}"
    wrong = engines.differences(name, after, default)
    return "; ".join(wrong) or DONE
