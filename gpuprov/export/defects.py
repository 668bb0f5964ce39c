"""What on a host speaks against itself: the spec that export wrote of it, judged by the checks of verify on the same facts."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from gpuprov.capabilities import BY_NAME, CAPABILITIES, HOUSE
from gpuprov.capabilities.generated import without_spec
from gpuprov.capabilities.health import HARDWARE, watched
from gpuprov.capabilities.health.fragment import HERE as HEALTH
from gpuprov.fleet import build_spec
from gpuprov.probe.base import Facts, Probe, ProbeFailed
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import MOMENTS, evaluate


def probes() -> tuple[Probe[Any], ...]:
    """What these checks read."""
    checks = [check for one in (HOUSE, *CAPABILITIES) for check in one.checks if check.moment in MOMENTS]
    return without_spec((probe for check in checks for probe in check.probes), BY_NAME)


def doubts(facts: Facts, spec: dict[str, Any]) -> list[str]:
    """What looks like a defect of the host, one line each; what only follows from another is not told.

    A check that fails on a spec that was read off the same host says that the host does not agree with itself: modules of one version
    and libraries of another, a package that is half installed, a unit that should run and does not.
    """
    told: list[str] = []
    for capability in CAPABILITIES:
        with suppress(ProbeFailed):
            told += capability.doubts(facts)
    host, _ = build_spec(RawHost(name="exported", values=dict(spec)))
    results = evaluate(watched(host or HostSpec(name="exported")), facts)
    told += [
        f"{one.check}: {one.found}; expected: {one.expected}"
        for one in results
        if one.status == "fail" and not one.follows and (one.capability != HEALTH or one.check in HARDWARE)
    ]
    return told
