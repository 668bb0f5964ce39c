"""Container engines of every generation: what becomes of each configuration, replayed from what real programs said.

`record.py` plays the cases with containerd 1.6, 1.7, 2.1 and 2.3 and NVIDIA's own nvidia-ctk. Here the same decisions
are taken again from the recorded outputs; one that differs from the recorded one needs a new recording.
"""

from __future__ import annotations

import json
import lzma
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpuprov.capabilities.container_toolkit.registration import DONE, NOTHING, register
from gpuprov.rules import engine_output, engines
from tests.engines.cases import Case, every

pytestmark = pytest.mark.install  # every configuration of every generation: seconds of arithmetic

DATA = Path(__file__).parent / "data"


@cache
def tapes() -> dict[str, Any]:
    """What was recorded, by the case's name."""
    read = json.loads(lzma.decompress((DATA / "tapes.json.xz").read_bytes()))
    texts: list[str] = read["texts"]

    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            return texts[value["text"]] if list(value) == ["text"] else {key: whole(one) for key, one in value.items()}
        return [whole(one) for one in value] if isinstance(value, list) else value

    told: dict[str, Any] = whole(read["tapes"])
    return told


class Recorded:
    """A host that answers as the real one did, as long as it is asked the same."""

    def __init__(self, tape: list[Any]) -> None:
        self.tape, self.changed = iter(tape), False

    def _next(self, *asked: Any) -> list[Any]:
        found: list[Any] = next(self.tape)
        assert found[: len(asked)] == list(asked), f"record again: {found[: len(asked)]} was asked, now {asked}"
        return found

    def read(self) -> str:
        return str(self._next("read")[1])

    def restore(self) -> None:
        self._next("restore")
        self.changed = True

    def back(self) -> None:
        self.changed = False

    def write(self, files: dict[str, str]) -> None:
        self._next("write", files)

    def configure(self, command: list[str]) -> tuple[int, str, dict[str, str]]:
        _, _, status, error, produced = self._next("configure", command)
        return status, error, produced


ENDED: dict[str, str] = {}


def ended(case: Case) -> str:
    """What becomes of a case now."""
    if case.name not in ENDED:
        host = Recorded(tapes()[case.name]["tape"])
        ENDED[case.name] = register(host, case.engine, case.default, case.drop_ins)
        assert not list(host.tape), case.name
        assert host.changed == (ENDED[case.name] == DONE), f"{case.name}: what is refused is as it was"
    return ENDED[case.name]


def test_every_configuration_gets_the_runtime_or_a_right_refusal() -> None:
    for case in every():
        end = ended(case)
        assert (case.refused in end) if case.refused else end in (DONE, NOTHING), f"{case.name}: {end}"


def states(case: Case) -> list[engine_output.Engine]:
    """Each state of the engine that was read."""
    return [engine_output.parse(entry[1])[case.engine] for entry in tapes()[case.name]["tape"] if entry[0] == "read"]


def test_a_runtime_is_seen_exactly_where_the_daemon_has_it() -> None:
    for case in every():
        if case.engine != "containerd":
            continue
        for engine in states(case):
            config = engines.configuration("containerd", engine)
            path = engines.registered("containerd", config).path
            # The dump's own words, whichever name the CRI plugin has in this generation.
            there = "runtimes.nvidia.options]" in engine.dump.replace("'", "").replace('"', "")
            assert bool(path) == there, case.name


def test_the_runtime_of_every_accepted_configuration_is_of_a_type_that_runs_its_program() -> None:
    """nvidia-ctk 1.17.8 copies a runtime without a type, and containerd then creates no container."""
    kinds = set()
    for case in every():
        if case.engine == "docker" or ended(case) not in (DONE, NOTHING):
            continue
        last = states(case)[-1]
        kind = str(
            engines.at(engines.runtimes(case.engine, last), "runtimes", engines.NAME, "runtime_type", default="")
        )
        kinds.add(f"{case.engine} {'1' if engines.has_old_shims(case.engine, last) else '2'} {kind}")
    assert kinds == {
        "containerd 1 io.containerd.runtime.v1.linux",  # with `Runtime`, which that type runs
        *("containerd 1 io.containerd.runc.v2", "containerd 2 io.containerd.runc.v2", "crio 2 oci"),
    }


def test_files_are_known_where_the_dump_tells_patterns_only() -> None:
    for case in every():
        if case.engine != "containerd":
            continue
        first = states(case)[0]
        assert set(first.files) == {path for path, text in case.files.items()}, case.name
        if case.files:
            late = replace(first, active="active", started=499.0)
            assert engines.in_force("containerd", late, case.default), case.name


def comments(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines() if line.strip().startswith("#")}


def test_comments_and_imports_of_the_site_survive() -> None:
    kept = False
    for case in every():
        main = engines.MAIN["containerd"]
        if case.engine != "containerd" or ended(case) != DONE or main not in case.files or not case.drop_ins:
            continue
        before, after = (state.files[main].text for state in (states(case)[0], states(case)[-1]))
        if engines.first_version("containerd", states(case)[0]):
            continue  # nvidia-ctk writes such a file whole
        assert comments(before) <= comments(after), case.name
        old, new = tomllib.loads(before), tomllib.loads(after)
        assert set(old.get("imports", [])) <= set(new.get("imports", [])), case.name
        assert {**new, "imports": 0, "version": 0} == {**old, "imports": 0, "version": 0}, case.name
        kept |= bool(comments(before))
    assert kept


def test_a_default_that_is_not_wanted_goes_and_nothing_else_with_it() -> None:
    seen = set()
    for case in every():
        first = states(case)[0]
        if case.default or case.refused or ended(case) != DONE:
            continue
        last = states(case)[-1]
        if engines.registered(case.engine, engines.configuration(case.engine, first)).default != engines.NAME:
            continue
        seen.add(case.generation)
        told = engines.registered(case.engine, engines.configuration(case.engine, last))
        assert told.default in ("runc", "crun"), case.name
        assert told.path, case.name
    assert seen == {case.generation for case in every()}


def test_the_tapes_are_of_these_cases_and_small() -> None:
    assert set(tapes()) == {case.name for case in every()}
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 100_000


def test_nvidias_own_pairs_lose_nothing() -> None:
    """Before and after of the tables that NVIDIA tests its tool with: what it registers is seen, and nothing counts as
    lost."""
    pairs = json.loads((DATA / "nvidia-pairs.json").read_text(encoding="utf-8"))
    refused = []
    for pair in pairs:
        name, before, after = pair["engine"], pair["before"], pair["after"]
        found = engines.registered(name, after)
        wanted = found.path in engines.PROGRAMS and (found.default == engines.NAME) == pair["default"]
        if not wanted or engines.lost(name, before, after):
            refused.append(
                f"{pair['why']}: {'no runtime nvidia' if not found.path else engines.lost(name, before, after)}"
            )
    assert refused == ["docker, no runtime asked: no runtime nvidia"]
