"""The sysfs of a simulated container, laid out in a folder by the container's own program, for probes to read: no
container is run."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TypeVar

import pytest

from gpuprov.facts.probes.base import Facts, Output, Probe
from gpuprov.simulate.description import Description
from gpuprov.simulate.parts.silicon_files import bus_container as program
from gpuprov.simulate.parts.silicon_files import tree

T = TypeVar("T")
NAME = "gpu01"


class SysfsHost:
    """`/sys` is `self.sys`, and the host's other files are below `self.root`."""

    def __init__(self, folder: Path, description: Description, patch: pytest.MonkeyPatch) -> None:
        self.root, self.sys = folder / "root", folder / "run" / "sys"
        self.faults = folder / "faults"
        for made in (self.root, self.sys, self.faults, folder / "hung" / program.DEVICES):
            made.mkdir(parents=True, exist_ok=True)
        (folder / "sysfs.json").write_bytes(tree.make_file(NAME, description))
        places = {
            "RUN": folder / "run",
            "TREE": self.sys,
            "WRITTEN": folder / "run" / "sys.json",
            "TOLD": folder / "sysfs.json",
            "FAULTS": self.faults,
            "ETC": self.root,
            "SYS": folder / "hung",
            "SHOW": "true",
        }
        for name, place in places.items():
            patch.setattr(program, name, place)
        self.run("boot")

    def run(self, verb: str, word: str = "nvidia") -> None:
        """The program, as `silicon` and faults call it."""
        program.main(verb, word)

    def plant(self, name: str, parameter: str = "0") -> None:
        (self.faults / name).write_text(f"{parameter}\n")
        self.run("reload")

    def heal(self, name: str) -> None:
        (self.faults / name).unlink()
        self.run("reload")

    def output(self, probe: Probe[T]) -> Output:
        """What the probe's script prints where /sys is this one."""
        script = probe.script.replace("/sys/", f"{self.sys}/")
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
        return Output(done.stdout, done.returncode, done.stderr)

    def read(self, probe: Probe[T]) -> T:
        return probe.parse(self.output(probe))

    def facts(self, *probes: Probe[object], **texts: str) -> Facts:
        """Of these probes, read here; and of others, by their name."""
        read = {probe.name: self.output(probe) for probe in probes}
        return Facts(read | {name: Output(text) for name, text in texts.items()})

    def files(self) -> dict[str, bytes | str]:
        """Every file and link, by path."""
        return {
            str(path.relative_to(self.sys)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
            for path in self.sys.rglob("*")
            if path.is_symlink() or path.is_file()
        }
