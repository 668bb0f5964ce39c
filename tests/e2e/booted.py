"""QEMU machines with kernels and GRUB of their own, and gpuprov on all of them at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gpuprov.simulate import hosts, inventory
from gpuprov.simulate.description import Description

PATIENCE = 2400.0  # seconds for one command: a reboot of an emulated machine takes minutes, and an apply may do two


@dataclass(frozen=True)
class Booted:
    """Machines of one description."""

    names: Sequence[str]
    folder: Path

    def sh(self, script: str) -> str:
        """Standard output of a script run as root on the first one."""
        return hosts.run(self.names[0], script)

    def gpuprov(self, command: str, spec: dict[str, Any], *words: str, **site: object) -> tuple[int, Any]:
        """Exit code and JSON with this spec for all; of `verify` the results. `site`: more variables of the
        inventory."""
        told = yaml.safe_load((self.folder / "inventory.yaml").read_text(encoding="utf-8"))
        told["all"]["vars"] = {"gpuprov": spec, **site}
        place = self.folder / f"{command}.yaml"
        place.write_text(yaml.safe_dump(told), encoding="utf-8")
        ran = subprocess.run(
            [sys.executable, "-m", "gpuprov", command, "--json", *words, str(place)],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        print(command, spec, ran.returncode, ran.stdout, ran.stderr)
        assert ran.stdout, ran.stderr
        told = json.loads(ran.stdout)
        return ran.returncode, told["results"] if command == "verify" else told


@contextmanager
def booted(folder: Path, description: Description, *names: str, tag: str | None = None) -> Iterator[Booted]:
    """Fresh machines, or copies of what `machine.freeze` kept under the tag; they go at the end."""
    try:
        inventory.write(
            [hosts.up(name, description, tag=tag) for name in names], folder / "inventory.yaml", description
        )
        yield Booted(names, folder)
    finally:
        for name in names:
            hosts.down(name)
