"""Real engines and the real nvidia-ctk over scratch files, in a mount namespace of its own: run by `record.py` as root.

Standard input: {programs, script, cases}; standard output: for each case its tape, and what became of it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gpuprov.capabilities.container_toolkit.registration import FILES, register

FOLDERS = ("/etc/containerd", "/etc/docker", "/etc/crio")


class Real:
    """A host whose engine is this one, with a tape of what happened."""

    def __init__(self, name: str, script: str, environment: dict[str, str], files: dict[str, str]) -> None:
        self.name, self.script, self.environment, self.files = name, script, environment, files
        self.tape: list[Any] = []
        self.restore(taped=False)

    def read(self) -> str:
        done = subprocess.run(
            ["sh", "-c", self.script], capture_output=True, text=True, env=self.environment, check=True
        )
        # Of no engine but this one, and without what differs from run to run.
        kept, mine = ["@clock 2000.0 1000.0"], False
        for line in done.stdout.splitlines():
            if line.startswith("@engine "):
                mine = line == f"@engine {self.name}"
            if line.startswith("@file "):
                line = f"{line.rpartition(' ')[0]} 500.0"
            if line.startswith("@unit "):
                line = "@unit active|enabled|10000000"
            if mine:
                kept.append(line)
        text = "\n".join(kept) + "\n"
        self.tape.append(["read", text])
        return text

    def restore(self, taped: bool = True) -> None:
        for folder in map(Path, FOLDERS):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        self._put(self.files)
        if taped:
            self.tape.append(["restore"])

    def back(self) -> None:
        self.restore(taped=False)

    def write(self, files: dict[str, str]) -> None:
        self._put(files)
        self.tape.append(["write", files])

    def _put(self, files: dict[str, str]) -> None:
        for path, text in files.items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text, encoding="utf-8")

    def configure(self, command: list[str]) -> tuple[int, str, dict[str, str]]:
        Path(FILES[self.name][-1]).parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment, check=False)
        error = done.stderr.partition("\n")[0].rpartition("msg=")[2]
        found = {path: Path(path).read_text(encoding="utf-8") for path in FILES[self.name] if Path(path).exists()}
        self.tape.append(["configure", command, done.returncode, error, found])
        return done.returncode, error, found


def main() -> None:
    asked = json.load(sys.stdin)
    scratch = tempfile.mkdtemp(prefix="gpuprov-engines-")
    shutil.copytree("/etc", f"{scratch}/etc", symlinks=True, ignore_dangling_symlinks=True)
    subprocess.run(["mount", "--bind", f"{scratch}/etc", "/etc"], check=True)
    told = []
    for case in asked["cases"]:
        folder = Path(tempfile.mkdtemp(dir=scratch))
        for name, program in case["programs"].items():
            (folder / name).symlink_to(program)
        if case["engine"] != "containerd":
            program = {"docker": "dockerd", "crio": "crio"}[case["engine"]]
            (folder / program).write_text(
                f"#!/bin/sh\n[ \"$1\" = --version ] && echo '{program} version {case['version']}'\n"
            )
            (folder / program).chmod(0o755)
        environment = {**os.environ, "PATH": f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin"}
        host = Real(case["engine"], asked["script"], environment, case["files"])
        end = register(host, case["engine"], case["default"], case["drop_ins"])
        told.append({"end": end, "tape": host.tape})
    subprocess.run(["umount", "/etc"], check=True)
    shutil.rmtree(scratch)
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
