"""Messages of Fabric Manager in its current or last run."""

import re
from collections.abc import Sequence

from gpuprov.capabilities.base import Context, Outcome, check, fail, ok, skip
from gpuprov.capabilities.fabric_manager.fragment import FabricManager
from gpuprov.catalog import fabric as catalogue
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.gpus import fabric
from gpuprov.hardware.topology.fabric import SWITCH_RESET, list_fatal_errors

Ctx = Context[FabricManager]
JOURNAL = f"journalctl -u {catalogue.UNIT} -n 30"
# https://github.com/NVIDIA/gpu-operator/issues/544
# fabric manager NVIDIA GPU driver interface version 535.309.01 don't match with driver version 535.309.99.
MISMATCH = re.compile(r"interface version (\S+) (?:don't|doesn't|do not|does not) match with driver version ([\d.]*\d)")


def mismatched(daemon: fabric.Daemon) -> str:
    """Return the daemon's complaint about versions in its last run, if it refused them."""
    match = next((m for line in reversed(daemon.log) if (m := MISMATCH.search(line))), None)
    return f"its log: it is of version {match[1]}, and refuses driver {match[2]}" if match else ""


@check("fabric_manager.log", fabric.DAEMON, evidence=JOURNAL)
def log(ctx: Ctx) -> Outcome:
    """The daemon's current or last run reported neither a wrong driver version nor a fatal error of an NVSwitch.
    Non-fatal errors, and GPUs that it did not find, are reported."""
    daemon = ctx.facts.get(fabric.DAEMON)
    if fatal := list_fatal_errors(daemon):
        return fail("no fatal error of an NVSwitch", f"its log: {_find_last(fatal)}", SWITCH_RESET)
    if mismatch := mismatched(daemon):
        return fail("no complaint about versions", mismatch, 'gpuprov explain "fabric manager driver version mismatch"')
    if not daemon.log:
        return skip("the journal has nothing of the daemon's present or last run")
    suffix = f"; noted: {_find_last(daemon.errors)}" if daemon.errors else ""
    return ok(
        f"no complaint about versions in {counted(len(daemon.log), 'line')}{suffix}", "no complaint about versions"
    )


def _find_last(lines: Sequence[str]) -> str:
    return f"{lines[-1][:200]}{f' (and {len(lines) - 1} more)' if lines[1:] else ''}"
