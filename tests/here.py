"""Ansible's plays on the machine that runs the tests, with gpuprov's roles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

ROLES = Path(__file__).parent.parent / "roles"
PLUGINS = ROLES.parent / "plugins"


def commands() -> list[str]:
    """Return the command line of each process; not from ps, which a small machine lacks."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(file.read_text(encoding="utf-8", errors="replace").replace("\0", " ").strip())
    return found


def play(
    folder: Path,
    *plays: dict[str, Any],
    inventory: str = "gpu1,",
    extra: dict[str, Any] | None = None,
    check: bool = False,
    alone: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run plays with this working folder; return ansible-playbook's output and exit status.

    `alone`: with no process visible but its own; simulated hosts that run beside it hold their own GPUs. It needs root.

    The folder comes first in PATH, and is $STATE: stand-ins for programs are in it. Python is that of the tests, unless
    `extra`, which overrides every other variable, names another (None: Ansible's own choice).
    """
    facts = {"ansible_python_interpreter": sys.executable, **(extra or {})}
    facts = {name: value for name, value in facts.items() if value is not None}
    (folder / "play.json").write_text(
        json.dumps([{"name": "Play", "hosts": "all", "gather_facts": False, **one} for one in plays]), encoding="utf-8"
    )
    return subprocess.run(
        [
            *(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] if alone else []),
            str(Path(sys.executable).with_name("ansible-playbook")),
            *("-i", inventory, "-c", "local", "-e", json.dumps(facts), "play.json"),
            *(["--check"] if check else []),
        ],
        cwd=folder,
        env={
            **os.environ,
            "ANSIBLE_ROLES_PATH": str(ROLES),
            "ANSIBLE_LIBRARY": str(PLUGINS / "modules"),
            "ANSIBLE_ACTION_PLUGINS": str(PLUGINS / "action"),
            "ANSIBLE_MODULE_UTILS": str(PLUGINS / "module_utils"),
            "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
            "ANSIBLE_NOCOLOR": "1",
            "STATE": str(folder),
            "PATH": f"{folder}:{os.environ['PATH']}",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def moved(folder: Path, *paths: str) -> Path:
    """Make plays in this folder use gpuprov's modules with these host paths moved below the folder. Returns the
    folder."""
    utils = folder / "module_utils" / "gpuprov_host_code"
    utils.mkdir(parents=True)
    whole = PLUGINS / "module_utils" / "gpuprov_host_code"
    for file in whole.rglob("*.py"):
        (utils / file.relative_to(whole)).parent.mkdir(exist_ok=True)
        text = file.read_text(encoding="utf-8")
        for path in paths:
            text = text.replace(f'"{path}', f'"{folder}{path}')
        (utils / file.relative_to(whole)).write_text(text, encoding="utf-8")
    return folder


def program(folder: Path, name: str, text: str) -> None:
    """Write a stand-in for a program, for `play`; never through a link to the machine's own."""
    (folder / name).unlink(missing_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
    (folder / name).chmod(0o755)
