"""The container engine: podman or docker. Both take the same commands but for a few flags."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import shutil
from contextlib import suppress
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
    """The same of those that nobody has removed in the meantime, or begun to: what a killed process was removing stays listed, and
    the engine knows nothing of it."""
    try:
        return inspect(*names)
    except GpuprovError:
        found: list[dict[str, Any]] = []
        for name in names:
            with suppress(GpuprovError):
                found += inspect(name)
        return found


def network(container: str) -> dict[str, str]:
    """A container's IPAddress and Gateway; the engines that still tell them at the top level tell them by network, too."""
    networks: dict[str, dict[str, str]] = inspect(container)[0]["NetworkSettings"]["Networks"]
    return next(iter(networks.values()))


def address_flags(container: str, label: str) -> tuple[str, ...]:
    """Flags of `run` for an address that stays the same over restarts: podman 5 gives another one at each start, podman 4 does not.

    It is drawn by the container's name from the upper half of podman's default network; those of `label` are passed over.
    """
    if chosen() != "podman":
        return ()  # docker takes an address on networks of one's own only
    subnet = ipaddress.IPv4Network(json.loads(engine("network", "inspect", "podman"))[0]["subnets"][0]["subnet"])
    half = list(subnet.subnets(prefixlen_diff=1))[1]
    taken = {one["IPAddress"] for entry in labelled(label) for one in entry["NetworkSettings"]["Networks"].values()}
    first = int.from_bytes(hashlib.sha256(container.encode()).digest()[:8])
    for step in range(half.num_addresses - 2):
        address = str(half[1 + (first + step) % (half.num_addresses - 2)])
        if address not in taken:
            return ("--ip", address)
    raise GpuprovError(f"no address is left in {half}", hint="gpuprov simulate down --all")


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
