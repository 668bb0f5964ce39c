"""Decides from a host's spec and its probes' output why apply must leave it alone, and otherwise what each role has to
do."""

import contextlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from gpuprov.capabilities import BY_NAME, receipts
from gpuprov.capabilities.base import Context
from gpuprov.catalog.drivers.any import group_patterns_by_family
from gpuprov.core.errors import GpuprovError, defect
from gpuprov.facts.collect.gather import HostFacts
from gpuprov.facts.collect.script import compose, split
from gpuprov.facts.probes.base import Facts, Probe, ProbeFailed
from gpuprov.host_code import bundle
from gpuprov.host_code.packages.other_driver import ComingOption, Option
from gpuprov.spec.model import HostSpec
from gpuprov.verify import images
from gpuprov.verify.evaluate import Result, evaluate, probes_of

DRIVER = "nvidia_driver"


class Verdict(msgspec.Struct, frozen=True):
    """`refusals`: reasons why nothing may be changed, each with its fix. `desired`: by capability, the state that its
    role brings about. `resources`: the resulting resources on the host, as named in the receipt; only known after the
    installation."""

    refusals: tuple[str, ...]
    desired: dict[str, dict[str, Any]]
    resources: dict[str, list[str]] = {}


def script(spec: HostSpec, only: Collection[str], *, preflight: bool) -> str:
    """Return the script that reads the input for `judge` with the same arguments from the host."""
    probes: list[Probe[Any]] = [*probes_of(spec, only=only, stops=True)] if preflight else []
    for name in _list_requested(spec, only):
        if declaration := BY_NAME[name].desired:
            probes += (probe.of(spec) for probe in declaration.probes)
        if not preflight:
            probes += (probe.of(spec) for probe in receipts.probes(BY_NAME[name]))
    return compose({probe.name: probe for probe in probes}.values())


def facts_of(streams: bytes) -> Facts:
    """Return the facts from both output streams of the script. Raises GpuprovError if it did not complete."""
    outputs = split(streams)
    if outputs is None and bundle.MISSING.encode() in streams:
        raise GpuprovError(bundle.MISSING, bundle.FIX)
    if outputs is None:
        raise GpuprovError("reading the host was cut off", "apply again; gpuprov verify shows what it says")
    return HostFacts(outputs)


def judge(
    spec: HostSpec,
    facts: Facts,
    only: Collection[str],
    *,
    preflight: bool,
    run: Collection[str] | None = None,
    drains: bool = False,
    image: bool = False,
) -> Verdict:
    """Judge the host. `preflight`: also check the conditions for changing anything. `only`: only these capabilities.
    `run`: those that are applied in this run, if they are more. `drains`: there is a drain command, so that processes
    using the GPUs are no reason to stop; the roles that need the GPUs free run it, and check again. `image`: an image,
    of which the first boot judges the hardware."""
    together = frozenset(only if run is None else run)
    results = evaluate(spec, facts, only=only, stops=True, run=together) if preflight else []
    if image:
        results = [result for result in results if not images.waits(result.check, result.moment, stops=result.stops)]
    refusals = [refusal(result) for result in results if result.refuses and not (drains and result.drained)]
    desired: dict[str, dict[str, Any]] = {}
    resources: dict[str, list[str]] = {}
    for name in () if refusals else _list_requested(spec, only):
        capability, context = BY_NAME[name], Context(spec, spec.capabilities[name], facts, together)
        try:
            if declaration := capability.desired:
                desired[name] = msgspec.to_builtins(declaration.make(context))
            if not preflight:
                with contextlib.suppress(ProbeFailed):  # a list that cannot be made stops no apply
                    resources[name] = receipts.entries(capability, context, desired.get(name, {}))
                    resources[name] += receipts.settings(capability, context).lines
        except ProbeFailed as error:
            refusals.append(f"{name}: {error}. Fix: {error.fix or 'see on the host why it cannot be read'}")
        except Exception as error:
            refusals.append("; ".join(defect(f"what {name} brings about", error)))
    return Verdict(tuple(refusals), desired, resources)


def driver(desired: Mapping[str, Mapping[str, Any]]) -> Option:
    """Return how to recognise packages of a driver on a host, as gpuprov_packages takes it: their names, and the driver
    that this run installs."""
    made = desired.get(DRIVER, {})
    trial = made.get("tasks", {}).get("try", {})
    coming: ComingOption = {
        "version": made.get("version", ""),
        "runfile": bool(made.get("runfile")),
        "install": trial.get("install", []),
        "remove": trial.get("remove", []),
        "pin": made.get("pin", {}),
        "stream": made.get("stream", ""),
    }
    return {"names": group_patterns_by_family(), "coming": coming}


def with_driver(spec: HostSpec, version: str) -> HostSpec:
    """Return the spec for judging capabilities after the driver: with the version that this run installs, if it
    installs one."""
    block = spec.capabilities.get(DRIVER)
    if not block or version in ("", getattr(block, "version", "")):
        return spec
    return msgspec.structs.replace(
        spec, capabilities={**spec.capabilities, DRIVER: msgspec.structs.replace(block, version=version)}
    )


def waiting(desired: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return, by capability, the items that wait for a package source which another role adds (`base.Desired`)."""
    return {name: made["later"] for name, made in desired.items() if made.get("later")}


def refusal(result: Result) -> str:
    """Describe a check that forbids the run, in one line."""
    expected = f" (expected: {result.expected})" if result.expected else ""
    return f"{result.check}: {result.found}{expected}" + (f". Fix: {result.fix}" if result.fix else "")


def _list_requested(spec: HostSpec, only: Collection[str]) -> Iterable[str]:
    return [name for name in spec.capabilities if name in only]
