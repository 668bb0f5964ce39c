"""Reads hosts as they would be after their package sources are added: the source's index decides what waits for it, as
it does for apply once the source is there."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from gpuprov.core.errors import GpuprovError
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.collect.script import compose
from gpuprov.facts.probes.base import Facts, Probe
from gpuprov.host_code import look, streams
from gpuprov.plan.exact import Answer
from gpuprov.plan.foresee import Foreseen, Text, foresee, moves_of, question
from gpuprov.plan.host_code import run_on_hosts
from gpuprov.plan.read import Pair, Reading, probes_for
from gpuprov.play.preflight import judging
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import Result, evaluate


def read_ahead(
    waiting: Mapping[str, tuple[Pair, Reading, Foreseen]],
    only: frozenset[str] | None,
    *,
    limit: float,
    pace: Pace | None = None,
    on_done: Callable[[str], None] | None = None,
) -> dict[str, Reading]:
    """Return the readings for planning these hosts again. waiting: the host, its reading, and its predicted changes,
    with the keys of its sources. limit: seconds for one host."""
    scripts = dict[tuple[Probe[Any], ...], str]()
    requests = dict[str, tuple[RawHost, look.Request]]()
    for name, ((raw, spec), _, foreseen) in waiting.items():
        probes = tuple(probes_for(spec, only=only))
        script = scripts.get(probes) or scripts.setdefault(probes, compose(probes))
        requests[name] = raw, {**question(foreseen), "sources": list(foreseen.sources.values()), "reading": script}
    answers = run_on_hosts(look, requests, Answer, limit=limit, pace=pace, on_done=on_done)
    return {
        name: decide_ahead(
            pair[1], reading, foreseen, answers[name].answer or Answer(problem=answers[name].problem), only
        )
        for name, (pair, reading, foreseen) in waiting.items()
    }


def decide_ahead(
    spec: HostSpec, reading: Reading, foreseen: Foreseen, answer: Answer, only: frozenset[str] | None
) -> Reading:
    """Return the reading updated by a host's answer; without an answer, items that wait for a source still wait."""
    refused = {
        name: trial.refused for name, trial in zip(foreseen.sources, answer.sources, strict=False) if trial.refused
    }
    if answer.problem:
        refused = dict.fromkeys(foreseen.sources, f"its package source could not be tried: {answer.problem}")
    sources = {name: block for name, block in foreseen.sources.items() if name not in refused}
    unknown = {**foreseen.unknown, **refused}
    kept = msgspec.structs.replace(foreseen, sources=sources, unknown=unknown)
    if not sources:
        return msgspec.structs.replace(reading, foreseen=kept)
    try:
        facts = judging.facts_of(streams.unpack_streams(answer.printed))
    except (GpuprovError, ValueError) as error:
        reason = f"what waits for its package source could not be decided: {getattr(error, 'message', error)}"
        unknown |= dict.fromkeys(sources, reason)
        return msgspec.structs.replace(reading, foreseen=msgspec.structs.replace(kept, unknown=unknown))
    later = foresee(spec, facts, (), only)
    results = tuple(_judge_again(spec, facts, reading.results, later, only))
    later = msgspec.structs.replace(
        later,
        sources=sources,
        texts={name: (*_list_texts(foreseen, name), *each) for name, each in later.texts.items()},
        unknown={**later.unknown, **refused},
        moves=moves_of(later.packages, results),
    )
    return msgspec.structs.replace(reading, results=results, foreseen=later)


def _list_texts(foreseen: Foreseen, name: str) -> Iterable[Text]:
    """Return the texts that would be written for a source in the second reading."""
    files = foreseen.sources.get(name, {}).get("files", ())
    return [text for text in foreseen.texts.get(name, ()) if text.path in files]


def _judge_again(
    spec: HostSpec, facts: Facts, results: Iterable[Result], foreseen: Foreseen, only: frozenset[str] | None
) -> Iterable[Result]:
    """Return the results; preflight checks of capabilities are evaluated again, as each role does when the sources are
    there: with the driver that the run installs, except for the driver's own checks. Everything else is as on the
    host."""
    every = frozenset(spec.capabilities if only is None else only)
    own = frozenset((judging.DRIVER,)) & every
    runs = [(spec, own), (judging.with_driver(spec, foreseen.driver["coming"]["version"]), every - own)]
    anew = {result.check: result for host, of in runs for result in evaluate(host, facts, only=of, stops=True)}
    return [
        anew.get(result.check, result) if result.stops and result.capability in every else result for result in results
    ]
