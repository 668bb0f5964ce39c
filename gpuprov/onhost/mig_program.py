"""Has the MIG program that is installed on this host carry out what is wanted, and keeps that for its boots."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, Mapping, Sequence

from .files import ABOVE, Difference, Wanted, bring_about, differences

WANTED = "/etc/gpuprov/mig.json"
WAIT = 30
"""Seconds in which the driver's GPUs have to be there."""


def carry_out(config: Mapping[str, Any], services: Sequence[str], *, may_reset: bool) -> dict[str, Any]:
    """The program's answer: `changed`, `steps`, `problem`, `reboot`. NVML's binding lies beside it, and not with the modules."""
    command = [sys.executable, "-B", "-m", "mig", "apply", "--wanted=/dev/stdin", f"--wait={WAIT}"]
    command += [f"--services={','.join(services)}", *(["--may-reset"] if may_reset else [])]
    environment = {**os.environ, "PYTHONPATH": ABOVE}
    request = json.dumps(config).encode()
    # -m takes what lies in the current folder first: over a local connection the one that gpuprov was started in.
    done = subprocess.run(command, input=request, capture_output=True, check=False, env=environment, cwd="/")
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        message = " ".join(done.stderr.decode(errors="replace").split()[-60:])
        return {"changed": True, "steps": [], "problem": f"the MIG program ended without an answer: {message}"}
    return answer


def text(config: Mapping[str, Any]) -> str:
    """Return the contents of the file WANTED, which each boot reads."""
    return json.dumps(config, indent=4, sort_keys=True) + "\n"


def keep(config: Mapping[str, Any], *, check: bool) -> list[Difference]:
    """Have each boot bring back what is wanted. Only what came about: what was refused must not be what the next boot makes."""
    file = [Wanted(WANTED, text(config))]
    return differences(file) if check else bring_about(file)
