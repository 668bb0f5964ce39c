"""What is fed with mutated texts: each with how a case is made, and how it is judged. A judge raises what is not
allowed."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random
from types import ModuleType
from typing import Any

from gpuprov.core import safe_parse, sanitize
from gpuprov.facts.collect import reasons, script
from gpuprov.facts.collect.unreached import without_host
from gpuprov.facts.probes.acceptance import outputs
from gpuprov.facts.probes.base import UNREADABLE, Output, ProbeFailed
from gpuprov.host_code import machine, openpgp, sources, texts
from gpuprov.plan.events import Ledger
from gpuprov.rules import certificates, package_lists
from tests import public_keys
from tests.fuzz import corpus, mutate

DECLARED = (ProbeFailed, *UNREADABLE, outputs.Unreadable)
"""What a parser may raise for an output that it does not read; one place makes ProbeFailed of it."""


OURS = ("path", "key_path", "own_name")
"""Functions that take gpuprov's own words, and no host's."""


@dataclass(frozen=True)
class Target:
    """`make` draws a case, `judge` takes it. `share`: its part of all cases, by weight."""

    name: str
    make: Callable[[Random], Any]
    judge: Callable[[Any], object]
    share: float = 1.0


def allowing(read: Callable[[Any], object], *errors: type[Exception]) -> Callable[[Any], object]:
    """A reader that may raise these, and nothing else. MemoryError and RecursionError are never among them."""

    def judge(case: Any) -> object:
        try:
            return read(case)
        except errors:
            return None

    return judge


def _of_texts(name: str, read: Callable[[Any], object], seeds: tuple[str, ...], words: tuple[str, ...] = ()) -> Target:
    def make(random: Random) -> str:
        return mutate.text(random, seeds, words)

    return Target(name, make, allowing(read, *DECLARED))


def _probes() -> list[Target]:
    found = []
    for name, probe in corpus.probes().items():
        seeds, words = corpus.seeds(corpus.home()[name], name), corpus.words(probe.script)

        def make(random: Random, seeds: tuple[str, ...] = seeds, words: tuple[str, ...] = words) -> Output:
            error = mutate.text(random, seeds) if random.random() < 0.1 else ""
            status = random.choice((0, 0, 0, 0, 1, 2, 126, 127, 255, -1))
            return Output(mutate.text(random, seeds, words), status, error)

        found.append(Target(f"probe.{name}", make, allowing(probe.parse, *DECLARED), 2.0))
    return found


def name_kind(parameter: inspect.Parameter) -> str:
    """Return a parameter's annotation, which is a text where its module postpones annotations."""
    kind = parameter.annotation
    return kind if isinstance(kind, str) else str(getattr(kind, "__name__", kind))


def functions(module: ModuleType) -> dict[str, tuple[Callable[..., object], list[Any]]]:
    """The public readers of a module: functions whose first argument is a text or an output, with what stands for the
    others."""
    stand_ins = {"int": 2, "str": "x", "bool": False}
    found: dict[str, tuple[Callable[..., object], list[Any]]] = {}
    for name, function in vars(module).items():
        if name.startswith("_") or not inspect.isfunction(function) or function.__module__ != module.__name__:
            continue
        wanted = [one for one in inspect.signature(function).parameters.values() if one.default is one.empty]
        kinds = [name_kind(one) for one in wanted]
        if kinds and kinds[0] in ("str", "Output") and all(kind in stand_ins for kind in kinds[1:]):
            found[name] = (function, [stand_ins[kind] for kind in kinds[1:]])
    return found


def _functions() -> list[Target]:
    found = []
    for module in corpus.modules():
        short = module.__name__.rpartition(".")[2]
        for name, (function, others) in functions(module).items():
            wraps = name_kind(next(iter(inspect.signature(function).parameters.values()))) == "Output"

            def read(
                text: str, function: Callable[..., object] = function, others: list[Any] = others, wraps: bool = wraps
            ) -> object:
                return function(Output(text) if wraps else text, *others)

            if short != "base":
                found.append(_of_texts(f"{short}.{name}", read, corpus.seeds(short)))
    return found


@cache
def _texts() -> tuple[str, ...]:
    texts = [
        "a: 1",
        '{"a": [1, 2.5, "x"]}',
        '[a.b]\nc = [1, "x"]\n',
        "a: &a [1]\nb: *a",
        "0-3,8",
        "- {a: b}\n- |\n  text\n",
    ]
    return (
        *texts,
        *(text for name in ("kubernetes", "container_toolkit", "imex", "mig") for text in corpus.seeds(name)),
    )


def _readers() -> list[Target]:
    keys = tuple(path.read_text(errors="replace") for path in corpus.TESTS.rglob("*.asc")) or (
        "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQ==\n",
    )
    keys += tuple(value for value in vars(public_keys).values() if isinstance(value, str) and "BEGIN" in value)

    def prose(random: Random) -> str:
        return mutate.text(random, _texts())

    def binary(random: Random) -> bytes:
        return mutate.text(random, keys).encode() if random.random() < 0.5 else random.randbytes(random.randrange(200))

    def stream(random: Random) -> bytes:
        marker = "0123456789abcdef01234567"
        body = f"gpuprov-begin {marker} 0\n{marker}>a\nx\n{marker}<0\n{marker}!a\n{marker}.\n"
        data = mutate.text(random, (body,)).encode(errors="replace")
        place = random.randrange(len(data) + 1)
        return data[:place] + random.randbytes(random.choice((0, 0, 1, 5))) + data[place:]

    def answer(random: Random) -> Any:
        """What a module answers, with bytes of a host in it."""
        found = mutate.data(
            random, {"msg": "x", "diff": [{"before": "a\n", "after": "b\n"}], "facts": {"a": ["x", 1, None]}}
        )
        return [
            found,
            {random.randbytes(4).decode(errors="surrogateescape"): random.randbytes(9)},
            chr(random.randrange(0xD800, 0xE000)),
        ]

    def travels(case: Any) -> None:
        json.dumps(texts.make_readable(case), ensure_ascii=False).encode()

    def machines(random: Random) -> dict[str, str]:
        words = ("9f0c1b1e pid:[4026531836]", "9f0c1b1e pid:[4026532001]", " ", "9f0c1b1e")
        return {f"gpu{number}": mutate.text(random, words) for number in range(6)}

    def by_name(case: dict[str, str]) -> None:
        again = machine.find_duplicates(case)
        assert all(case[name].split() and case[name] == case[other] for name, other in again.items())
        assert len(machine.list_warnings(case)) == len({*again.values()})

    def event(random: Random) -> Any:
        first = {
            "event": "runner_on_failed",
            "event_data": {"host": "a", "task": "t", "role": "r", "res": {"msg": "x", "rc": 1, "results": [{}]}},
        }
        last = {
            "event": "playbook_on_stats",
            "event_data": {"processed": {"a": 1}, "failures": {"a": 1}, "rescued": {"a": 0}},
        }
        return mutate.data(random, random.choice((first, last)))

    def feed(case: Any) -> None:
        event: Any = case
        if isinstance(case, dict) and isinstance(case.get("event_data") or {}, dict):
            ledger = Ledger()
            ledger.feed(event)

    login = reasons.Login(user="u", become_user="root", sudo="sudo", key="", key_trouble="", kind="ssh")
    made = [
        Target("reading.yaml", prose, allowing(safe_parse.parse_yaml, ValueError)),
        Target("reading.json", prose, allowing(safe_parse.parse_json, ValueError)),
        Target("reading.toml", prose, allowing(safe_parse.parse_toml, ValueError)),
        Target("reading.numbers", lambda random: mutate.text(random, ("0-3,8", "7")),
               allowing(safe_parse.parse_numbers, ValueError)),
        Target("openpgp.keys", binary, allowing(openpgp.parse_keys, ValueError)),
        Target("openpgp.judge", binary, allowing(openpgp.judge, ValueError)),
        Target("certificates.identity", binary, allowing(certificates.identity, ValueError)),
        Target("gather.split", stream, allowing(script.split, ValueError)),
        Target("gather.reason", stream, lambda case: reasons.reason(login, case, case[::-1], 1)),
        Target("gather.without_host", prose, lambda case: without_host(case, ("gpu01", case[:20]))),
        Target("plan.events", event, feed),
        Target("onhost.readable", answer, travels),
        Target("onhost.machine", machines, by_name),
        Target("shown.cleaned", prose, lambda case: sanitize.cleaned(case, "ascii").encode("ascii")),
    ]  # fmt: skip
    for module in (package_lists, sources):
        short = module.__name__.rpartition(".")[2]
        seeds = tuple(text for name in ("packages", "repositories", "precompiled") for text in corpus.seeds(name))
        for name, (function, others) in functions(module).items():
            if name in OURS:
                continue
            read = lambda text, function=function, others=others: function(text, *others)  # noqa: E731
            made.append(_of_texts(f"{short}.{name}", read, seeds))
    return made


@cache
def targets() -> tuple[Target, ...]:
    """All of them; what needs hosts, specs, inventories or command lines stands in `whole`, what is read of files in
    `files`."""
    from tests.fuzz.beside import beside
    from tests.fuzz.control import control
    from tests.fuzz.files import files
    from tests.fuzz.whole import whole

    return (*_probes(), *_functions(), *_readers(), *files(), *beside(), *control(), *whole())
