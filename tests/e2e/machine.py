"""One simulated host, looked at from outside gpuprov: by dpkg, apt-mark, modinfo and the files themselves."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gpuprov.host_code.packages import lists
from gpuprov.rules import resolve
from gpuprov.simulate import container, hosts
from gpuprov.simulate.description import Description
from gpuprov.simulate.host import SimulatedHost

STATE = """
dpkg-query -W -f '${db:Status-Abbrev}${Package} ${Version}\\n' | sort | sha256sum
apt-mark showhold | sha256sum
find /etc /usr/src /lib/modules /boot -xdev -type f -not -path '*/mtab' -printf '%p %s %T@\\n' | sort | sha256sum
systemctl list-unit-files --no-legend --no-pager | sort | sha256sum
"""

FORGET_ARCHIVE = """rm -f /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources /var/cache/apt/*.bin
find /var/lib/apt/lists -maxdepth 1 -type f ! -name '127.0.0.1*' ! -name lock -delete"""
"""Takes Debian's own archive out of a host's package sources: apt reads its 60,000 packages again at each call, a
second each time. The simulated repository has the driver and all that it needs."""


@contextmanager
def fresh(described: Mapping[str, Description]) -> Iterator[dict[str, Machine]]:
    """New simulated hosts by name; they go at the end."""
    for name in described:
        container.down(name)
    try:
        yield {name: Machine(hosts.up(name, description)) for name, description in described.items()}
    finally:
        for name in described:
            container.down(name)


@dataclass
class Machine:
    """A host and what is on it."""

    host: SimulatedHost

    @property
    def name(self) -> str:
        return self.host.name

    def sh(self, script: str) -> str:
        """Standard output of a script run as root, without ssh. Raises if it fails."""
        return container.run(self.name, script)

    def write(self, path: str, text: str, mode: str = "0644") -> None:
        """Put a file there."""
        self.sh(
            f"mkdir -p {shlex.quote(path.rpartition('/')[0])}\nprintf %s {shlex.quote(text)} > {path}\nchmod {mode} "
            f"{path}"
        )

    def packages(self) -> dict[str, tuple[str, str]]:
        """(state, version) of every package that comes from the driver's source."""
        rows = self.sh("dpkg-query -W -f '${Package}|${db:Status-Abbrev}|${Version}|${source:Package}\\n'").splitlines()
        cells = [row.split("|") for row in rows]
        return {
            name: (state.strip(), version)
            for name, state, version, source in cells
            if source == "nvidia-graphics-drivers" and state[1:2] in "iUFHWt"
        }

    def versions(self) -> set[str]:
        """The driver versions of the installed set: one, if all is well."""
        return {resolve.upstream(version) for _, version in self.packages().values()}

    def held(self) -> set[str]:
        """Packages on hold."""
        return set(self.sh("apt-mark showhold").split())

    def modules(self) -> dict[str, str]:
        """Version of the NVIDIA module on disk, by kernel; empty text where a kernel has none."""
        script = (
            'for k in $(ls /lib/modules); do echo "$k $(modinfo -k "$k" -F version nvidia-current 2>/dev/null '
            '|| true)"; done'
        )
        return {row.split()[0]: " ".join(row.split()[1:]) for row in self.sh(script).splitlines()}

    def offered(self) -> list[str]:
        """Driver versions in the host's own index, the newest first."""
        index = lists.parse_madison(self.sh("apt-cache madison nvidia-kernel-dkms"))
        return sorted({resolve.upstream(v) for v in index["nvidia-kernel-dkms"]}, key=resolve.order, reverse=True)

    def receipt(self) -> dict[str, Any]:
        """What gpuprov says it applied."""
        found: dict[str, Any] = json.loads(self.sh("cat /var/lib/gpuprov/receipt.json"))
        return found

    def state(self) -> str:
        """A digest of packages, holds, units, and the files of /etc, /usr/src, /lib/modules and /boot."""
        return self.sh(STATE)

    def wait_for(self, condition: str, patience: float = 300) -> None:
        """Wait until a shell condition holds on the host."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if self.sh(f"if {condition}; then echo yes; fi").strip() == "yes":
                return
            time.sleep(0.3)
        raise AssertionError(f"{self.name}: not within {patience:g} s: {condition}\n{self.sh('ps -ef')}")

    def has_driver(self, version: str) -> None:
        """The whole driver of this version is there: the set, its modules for every kernel, and every package held."""
        assert {state for state, _ in self.packages().values()} == {"hi"}, self.packages()
        assert self.versions() == {version}, self.packages()
        assert set(self.modules().values()) == {version}, self.modules()
        assert set(self.packages()) <= self.held(), set(self.packages()) - self.held()
        assert self.sh("ls /etc/dkms/no-autoinstall 2>/dev/null || true") == ""
        assert self.sh("dpkg --audit") == ""
