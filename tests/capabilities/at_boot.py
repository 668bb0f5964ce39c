"""The programs of units that set something at each boot, run from the folder that they have on a host, with its places
elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from gpuprov.host_code import at_boot

SOURCE = Path(str(at_boot.__file__)).parent


def run(
    root: Path,
    package: str,
    modules: Iterable[str],
    here: Callable[[str], str],
    *words: str,
    env: Mapping[str, str],
    before: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run the last of the modules, with nothing beside it but the others. `before`: Python that runs first; `here`
    moves places."""
    folder = root / "lib" / package
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*modules, "__init__"):
        text = (SOURCE / f"{name}.py").read_text(encoding="utf-8").replace(":/usr/sbin:/sbin", "")
        (folder / f"{name}.py").write_text(here(text), encoding="utf-8")
    main = f"{package}.{[*modules][-1]}"
    start = f"import runpy, sys\n{before}\nsys.argv[0] = '{main}'\nrunpy.run_module('{main}', run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-S", "-B", "-c", start, *words],
        env={**env, "PYTHONPATH": str(folder.parent)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def stand_in(folder: Path, programs: Mapping[str, str]) -> dict[str, str]:
    """An environment in which these programs are found first; each is a script, or the body of a shell's."""
    folder.mkdir(exist_ok=True)
    for name, body in programs.items():
        (folder / name).unlink(missing_ok=True)  # a link would lead the text into the machine's own program
        (folder / name).write_text(body if body.startswith("#!") else f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}


def shell(script: str, env: Mapping[str, str] | None = None) -> str:
    """What a shell prints of a script."""
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, timeout=60, env=env)
    return done.stdout
