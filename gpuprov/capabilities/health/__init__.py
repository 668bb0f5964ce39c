"""`health`: what to monitor on a host in production, and whether it is fit for work."""

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from gpuprov.capabilities.base import LOADED, Capability, Check, Outcome, not_asked, skip
from gpuprov.capabilities.driver import explain_absent_driver
from gpuprov.capabilities.health import (
    clocks,
    cuda,
    firmware,
    gpus,
    links,
    log,
    machine,
    nics,
    processes,
    rates,
    wiring,
)
from gpuprov.capabilities.health.fragment import HERE, REMOVED, Ctx, Health, is_driver_removed
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus.gpu_health import GPU_HEALTH
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.kernel.kernel_log import seconds
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Problem, SpecError

HARDWARE = wiring.HARDWARE
WITHOUT_DRIVER = (system.CONTAINER, nvidia.DRIVER, GPU_HEALTH)


def rules(_host: HostSpec, block: Health) -> Iterable[Problem]:
    try:
        seconds(block.since)
    except ValueError as error:
        message = f"health.since is {block.since}: {error}"
        yield Problem(
            path=(HERE, "since"), message=message, fix="allowed: boot, 24h, 7d, 2026-11-20T14:02, not in the future"
        )


def watched(spec: HostSpec, since: str | None = None) -> HostSpec:
    """Return the spec with a `health` block, the default block if it has none; `since` replaces its own value. Raises
    SpecError."""
    block = spec.capabilities.get(HERE) or Health()
    if since is not None:
        values = {**msgspec.to_builtins(block), "since": since}
        try:
            block = msgspec.convert(values, Health)
        except msgspec.ValidationError as error:
            fix = "allowed: boot, a span (90m, 24h, 7d) or a time (2026-11-20T14:02)"
            raise SpecError([Problem(path=(), message=f'--since is "{since}"', fix=fix)]) from error
    changed = msgspec.structs.replace(spec, capabilities={**spec.capabilities, HERE: block})
    if since is not None and (wrong := list(rules(changed, block))):  # type: ignore[arg-type]
        problems = [
            msgspec.structs.replace(problem, path=(), message=problem.message.replace("health.since", "--since"))
            for problem in wrong
        ]
        raise SpecError(problems)
    return changed


PRESUPPOSES: dict[str, tuple[str, ...]] = {
    "gpus": LOADED,
    "environment": ("host.environment",),
    **dict.fromkeys(("xid", "programs", "sxid", "pcie_errors", "rdma_log", "kernel"), ("health.kernel_log",)),
    "pcie_links": ("topology.pcie",),
    "nvlinks": ("topology.nvlinks", "health.gpus", *LOADED),
    "port_state": ("rdma.ports", "rdma.rate"),
    "fabric": (
        *(
            f"fabric_manager.{name}"
            for name in ("active", "registered", "subnet_manager", "log", "imex_alive", "imex_fabric")
        ),
        *LOADED,
    ),
    "recovery": ("health.gpus", "health.xid", *LOADED),
    **dict.fromkeys(
        (
            "compute_mode",
            "ecc_mode",
            "ecc_errors",
            "remapped_rows",
            "retired_pages",
            "slowdown",
            "temperature",
            "power",
            "clocks",
            "nvlink_errors",
            "pcie_replays",
            "firmware",
            "processes",
            "cuda",
        ),
        ("health.gpus", *LOADED),
    ),
}
CHECKS = (
    *(*log.CHECKS, *gpus.CHECKS, *clocks.CHECKS, *processes.CHECKS),
    *(*cuda.CHECKS, *links.CHECKS, *firmware.CHECKS, *nics.CHECKS, *rates.CHECKS, *wiring.CHECKS, *machine.CHECKS),
)


def _ask_of_driver(each: Check) -> Check:
    """Return a check that presupposes a loaded driver as one that nobody asks where the spec removes the driver, and
    that proves nothing in a container whose machine has none loaded, if no GPU answers."""
    if not {*LOADED} <= {*PRESUPPOSES.get(each.id.partition(".")[2], ())}:
        return each

    def run(ctx: Ctx) -> Outcome:
        if is_driver_removed(ctx.host):
            return not_asked(REMOVED)
        state, container = ctx.facts.known(GPU_HEALTH), ctx.facts.known(system.CONTAINER)
        silent = state is not None and state.present and state.complaint
        reason = explain_absent_driver(ctx.facts) if silent and container else ""
        return skip(reason) if reason else each.run(ctx)

    return replace(each, probes=tuple(dict.fromkeys((*each.probes, *WITHOUT_DRIVER))), run=run)


CAPABILITY = Capability(
    name=HERE,
    summary="errors of GPUs, links and kernel of a host in work, and whether it is fit for work; read, never changed",
    fragment=Health,
    checks=tuple(map(_ask_of_driver, CHECKS)),
    rules=rules,
    driverless=True,
    needs_gpu=True,
    shown_by="tests/e2e/test_health.py",
    presupposes=PRESUPPOSES,
    sets_up=False,
)
