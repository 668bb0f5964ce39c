"""The container engine: podman or docker. Both take the same commands but for a few flags."""

from __future__ import annotations

import json
import shutil
from typing import Any

from gpuprov.errors import GpuprovError
from gpuprov.simulate import tools
from gpuprov.simulate.engine_choice import chosen, runtime


def command(*arguments: str) -> list[str]:
    """The engine's command line."""
    return [chosen(), *runtime(chosen()), *arguments]


def engine(*arguments: str, stdin: str | None = None) -> str:
    """Standard output of an engine's command."""
    return tools.run(command(*arguments), stdin=stdin)


def systemd_flags() -> tuple[str, ...]:
    """Flags of `run` for a container whose first process is systemd, and which comes up again when it reboots."""
    # systemd needs a cgroup tree of its own, hence --privileged; the engine's default limits cannot be set everywhere.
    common = ("--privileged", "--restart=always", "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=10000:10000")
    if chosen() == "podman":
        return (*common, "--systemd=always")
    return (*common, "--cgroupns=private", "--tmpfs=/run", "--tmpfs=/run/lock", "--env=container=docker")


def inspect(*names: str) -> list[dict[str, Any]]:
    """What the engine knows of these containers."""
    found: list[dict[str, Any]] = json.loads(engine("inspect", "--type", "container", *names)) if names else []
    return found


def _inspect_those_left(names: list[str]) -> list[dict[str, Any]]:
    """The same of those that another process has not removed in the meantime."""
    try:
        return inspect(*names)
    except GpuprovError:
        left = set(engine("ps", "--all", "--quiet").split())
        return inspect(*(name for name in names if name in left))


def network(container: str) -> dict[str, str]:
    """A container's IPAddress and Gateway; the engines that still tell them at the top level tell them by network, too."""
    networks: dict[str, dict[str, str]] = inspect(container)[0]["NetworkSettings"]["Networks"]
    return next(iter(networks.values()))


def labelled(label: str) -> list[dict[str, Any]]:
    """All containers with this label, as `inspect` tells."""
    if shutil.which(chosen()) is None:
        return []
    return _inspect_those_left(engine("ps", "--all", "--quiet", "--filter", f"label={label}").split())


def write(container: str, archive: bytes) -> None:
    """Unpack a tar archive over a container's root."""
    tools.feed(
        command("exec", "--interactive", container, "tar", "-C", "/", "-xpf", "-"),
        archive,
        f"{container}: writing files",
    )
