"""Keeping of checkpoints: after an apply, green hosts keep the spec that was applied, with the resulting versions."""

import contextlib
from collections.abc import Collection, Iterable, Sequence

import msgspec

from gpuprov import __version__
from gpuprov.capabilities import BY_NAME
from gpuprov.checkpoints.choose import find_current
from gpuprov.checkpoints.program import on_hosts
from gpuprov.core.errors import UnreachableError
from gpuprov.facts.collect import gather
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.host import house
from gpuprov.facts.probes.host.checkpoints import CHECKPOINTS
from gpuprov.fleet.specs import build_spec, with_site
from gpuprov.host_code.fence import Owner
from gpuprov.host_code.kept_files import Checkpoint, Request
from gpuprov.plan.host_lock import of_host
from gpuprov.plan.read import Pair, Reading
from gpuprov.render import digests
from gpuprov.spec.model import HostSpec, RawHost


def is_kept(reading: Reading) -> bool:
    """True if the host is at the checkpoint that it was at when verify was last green."""
    try:
        checkpoints, receipt = reading.facts.get(CHECKPOINTS), reading.facts.get(house.RECEIPT)
    except ProbeFailed:
        return True  # nobody knows: nothing is written
    now = find_current(checkpoints, receipt)
    return now is not None and now is checkpoints.last


def keep(pairs: Sequence[Pair], owner: Owner, pace: Pace | None = None) -> dict[str, str]:
    """Write a checkpoint of the run on each host. Returns the problem, by host, of those where it failed."""
    run = str(owner["run"])
    versioned = {raw.name: _list_versioned(spec) for raw, spec in pairs}
    probes_by_host = [
        (raw, tuple(dict.fromkeys(probe for name in versioned[raw.name] for probe in BY_NAME[name].export_probes)))
        for raw, _ in pairs
    ]
    gathered = gather([entry for entry in probes_by_host if entry[1]], pace=pace)
    requests: dict[str, tuple[RawHost, Request]] = {}
    problems: dict[str, str] = {}
    for raw, spec in pairs:
        facts = gathered.get(raw.name, Facts({}))
        if isinstance(facts, UnreachableError):
            problems[raw.name] = facts.message
            continue
        exact = pin_versions(raw, spec, facts)
        made = [digests(each) for each in (spec, exact[1])]
        checkpoint: Checkpoint = {"schema": 1, "gpuprov_version": __version__, "spec": exact[0].values, "digests": made}
        requests[raw.name] = (
            raw,
            {"action": "keep", "run": run, "owner": of_host(owner, raw.name), "checkpoint": checkpoint},
        )
    answers = on_hosts(requests, pace)
    return problems | {name: answer.problem for name, answer in answers.items() if answer.problem is not None}


def pin_versions(raw: RawHost, spec: HostSpec, facts: Facts) -> Pair:
    """Pin the versions that the host has in its spec: a branch, or any, is too vague to come back to."""
    values = dict(raw.values)
    for name, version in _read_versions(spec, facts):
        block = values.get(name)
        tried = {**values, name: {**(block if isinstance(block, dict) else {}), "version": version}}
        if build_spec(msgspec.structs.replace(raw, values=tried))[0] is not None:
            values = tried
    exact = msgspec.structs.replace(raw, values=msgspec.to_builtins(values))
    built = build_spec(exact)[0]
    return (exact, with_site(built, exact)) if built else (raw, spec)


def _read_versions(spec: HostSpec, facts: Facts) -> Iterable[tuple[str, str]]:
    for name in _list_versioned(spec):
        with contextlib.suppress(ProbeFailed):
            exported = BY_NAME[name].export(facts)
            if version := getattr(exported, "version", ""):
                yield name, version


def _list_versioned(spec: HostSpec) -> Collection[str]:
    """List the capabilities whose spec names a version."""
    return [name for name, block in spec.capabilities.items() if hasattr(block, "version")]
