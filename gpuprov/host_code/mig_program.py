"""Runs the MIG program installed on this host, and keeps the layout for its boots."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Sequence, TypedDict

from .files import ABOVE, Difference, Wanted, bring_about, list_differences
from .json_members import Json

WANTED = "/etc/gpuprov/mig.json"
# Seconds within which the driver's GPUs have to appear.
WAIT = 30


class Answer(TypedDict, total=False):
    """The program's answer: see `mig.apply.Judged.answer`."""

    changed: bool
    steps: list[str]
    problem: str
    reboot: bool


def carry_out(config: Json, services: Sequence[str], *, may_reset: bool) -> Answer:
    """Return the program's answer. NVML's binding is beside the program, and
    not with the modules."""
    command = [sys.executable, "-B", "-m", "mig", "apply", "--wanted=/dev/stdin", f"--wait={WAIT}"]
    command += [f"--services={','.join(services)}", *(["--may-reset"] if may_reset else [])]
    environment = {**os.environ, "PYTHONPATH": ABOVE}
    request = json.dumps(config).encode()
    # -m takes what lies in the current folder first: over a local connection the one that gpuprov was started in.
    done = subprocess.run(command, input=request, capture_output=True, check=False, env=environment, cwd="/")
    try:
        answer: Answer = json.loads(done.stdout)
    except ValueError:
        message = " ".join(done.stderr.decode(errors="replace").split()[-60:])
        return {"changed": True, "steps": [], "problem": f"the MIG program ended without an answer: {message}"}
    return answer


def format_config(config: Json) -> str:
    """Return the contents of the file WANTED, which each boot reads."""
    return json.dumps(config, indent=4, sort_keys=True) + "\n"


def keep(config: Json, *, check: bool) -> list[Difference]:
    """Keep the layout for each boot. Only what was actually done: the next boot must not apply a refused layout."""
    file = [Wanted(WANTED, format_config(config))]
    return list_differences(file) if check else bring_about(file)
