"""The container engine: podman or docker. Both take the same commands except for a few flags."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import shutil
import time
from contextlib import suppress

import msgspec

from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import tools
from gpuprov.simulate.engine_choice import chosen, runtime


def command(*arguments: str) -> list[str]:
    """Return the engine's command line."""
    return [chosen(), *runtime(chosen()), *arguments]


def engine(*arguments: str, stdin: str | None = None) -> str:
    """Run an engine's command and return its standard output."""
    return tools.run(command(*arguments), stdin=stdin)


def remove(container: str) -> None:
    """Kill and remove a container."""
    # podman fails where the container ends by itself just then, and succeeds at the next try:
    # https://github.com/containers/podman/issues/16142
    arguments = ("rm", "--force", *(("--time", "0") if chosen() == "podman" else ()), container)
    for pause in (0.2, 1.0):
        try:
            engine(*arguments)
        except GpuprovError as error:
            if "container state improper" not in error.message:
                raise
            time.sleep(pause)
        else:
            return
    engine(*arguments)


def systemd_flags() -> tuple[str, ...]:
    """Return flags of `run` for a container whose first process is systemd, and which restarts when it reboots."""
    # systemd needs a cgroup tree of its own, hence --privileged; the engine's default limits cannot be set everywhere.
    common = ("--privileged", "--restart=always", "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=10000:10000")
    if chosen() == "podman":
        return (*common, "--systemd=always")
    return (*common, "--cgroupns=private", "--tmpfs=/run", "--tmpfs=/run/lock", "--env=container=docker")


class Network(msgspec.Struct, frozen=True):
    """A network that a container is attached to."""

    address: str = msgspec.field(name="IPAddress", default="")
    gateway: str = msgspec.field(name="Gateway", default="")


class Settings(msgspec.Struct, frozen=True, rename="pascal"):
    networks: dict[str, Network] | None = None


class State(msgspec.Struct, frozen=True, rename="pascal"):
    running: bool = False
    status: str = ""
    pid: int = 0


class Config(msgspec.Struct, frozen=True, rename="pascal"):
    labels: dict[str, str] | None = None


class Container(msgspec.Struct, frozen=True, rename="pascal"):
    """A container as both engines describe it. Engines that still report an address at the top level report it by
    network, too."""

    name: str = ""
    image: str = ""
    state: State = State()
    config: Config = Config()
    network_settings: Settings = Settings()

    @property
    def labels(self) -> dict[str, str]:
        """Its labels; of a container without any, podman says null."""
        return self.config.labels or {}

    @property
    def networks(self) -> tuple[Network, ...]:
        """Its networks; of a container that has none, or not yet, podman says null."""
        return tuple((self.network_settings.networks or {}).values())


def inspect(*names: str) -> list[Container]:
    """Return the engine's data on these containers."""
    output = engine("inspect", "--type", "container", *names) if names else "[]"
    return msgspec.json.decode(output, type=list[Container])


def _inspect_those_left(names: list[str]) -> list[Container]:
    """Return the same, without containers that were removed in the meantime or whose removal has begun: after a killed
    removal a container stays listed, but the engine has no data on it."""
    try:
        return inspect(*names)
    except GpuprovError:
        containers: list[Container] = []
        for name in names:
            with suppress(GpuprovError):
                containers += inspect(name)
        return containers


def network(container: str) -> Network:
    """Return the container's network. Raises GpuprovError if it has none."""
    if networks := inspect(container)[0].networks:
        return networks[0]
    raise GpuprovError(f"container {container} is on no network", fix=f"gpuprov simulate down {container}")


def address_flags(container: str, label: str) -> tuple[str, ...]:
    """Return flags of `run` for an address that stays the same over restarts: podman 5 assigns another one at each
    start, podman 4 does not.

    It is derived from the container's name, in the upper half of podman's default network; addresses of `label` are
    skipped.
    """
    if chosen() != "podman":
        return ()  # docker takes an address on networks of one's own only
    subnet = ipaddress.IPv4Network(json.loads(engine("network", "inspect", "podman"))[0]["subnets"][0]["subnet"])
    half = list(subnet.subnets(prefixlen_diff=1))[1]
    taken = {attached.address for entry in labelled(label) for attached in entry.networks}
    first = int.from_bytes(hashlib.sha256(container.encode()).digest()[:8])
    for step in range(half.num_addresses - 2):
        address = str(half[1 + (first + step) % (half.num_addresses - 2)])
        if address not in taken:
            return ("--ip", address)
    raise GpuprovError(f"no address is left in {half}", fix="gpuprov simulate down --all")


def labelled(label: str) -> list[Container]:
    """Return all containers with this label, from `inspect`."""
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
