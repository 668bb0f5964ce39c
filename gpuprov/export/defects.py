"""Contradictions on a host: its exported spec, checked by verify on the same facts."""

from contextlib import suppress
from typing import Any

from gpuprov.capabilities import BY_NAME, CAPABILITIES, HOUSE
from gpuprov.capabilities.generated import without_spec
from gpuprov.capabilities.health import HARDWARE, watched
from gpuprov.capabilities.health.fragment import HERE as HEALTH
from gpuprov.core.safe_parse import Tree
from gpuprov.facts.probes.base import Facts, Probe, ProbeFailed
from gpuprov.fleet.specs import build_spec
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import MOMENTS, evaluate


def probes() -> tuple[Probe[Any], ...]:
    """Return the probes of these checks."""
    checks = [check for capability in (HOUSE, *CAPABILITIES) for check in capability.checks if check.moment in MOMENTS]
    return without_spec((probe for check in checks for probe in check.probes), BY_NAME)


def doubts(facts: Facts, spec: Tree) -> list[str]:
    """List likely defects of the host, one line each; consequences of another one are left out. A check that fails on a
    spec exported from the same host shows a contradiction: modules of one version and libraries of another, a
    half-installed package, a unit that should run and does not."""
    problems: list[str] = []
    for capability in CAPABILITIES:
        with suppress(ProbeFailed):
            problems += capability.doubts(facts)
    host, _ = build_spec(RawHost(name="exported", values=dict(spec)))
    results = evaluate(watched(host or HostSpec(name="exported")), facts)
    problems += [
        f"{result.check}: {result.found}; expected: {result.expected}"
        for result in results
        if result.status == "fail" and not result.follows and (result.capability != HEALTH or result.check in HARDWARE)
    ]
    return problems
