"""A crash of gpuprov itself while it judges one host of ten is that host's error; the nine others get what they would
get."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gpuprov import capabilities, plan
from gpuprov.accept.hosts import prepare
from gpuprov.accept.model import Finding
from gpuprov.apply.execution import _Execution, apply
from gpuprov.apply.model import Options
from gpuprov.capabilities import nouveau
from gpuprov.core.errors import DEFECT
from gpuprov.export import export
from gpuprov.facts.collect.gather import HostFacts, gather
from gpuprov.facts.probes.base import Facts, Output, Probe
from gpuprov.fleet import specs as fleet
from gpuprov.fleet.specs import Fleet
from gpuprov.hardware.topology import command, document
from gpuprov.plan.decide import PlanOptions
from gpuprov.plan.events import Ledger
from gpuprov.report import specs
from gpuprov.spec.model import RawHost
from gpuprov.verify.evaluate import JUDGED
from gpuprov.verify.verify import exit_code, verify

BAD = "gpu05"
NAMES = [f"gpu{number:02}" for number in range(10)]
WORDS = re.compile(r" broke: TypeError: boom at [\w/]+\.py:\d+$")


def crash(*_: Any, **__: Any) -> Any:
    raise TypeError("boom")


def hosts() -> list[RawHost]:
    return [
        RawHost(name=name, values={"nouveau": {}, "persistence": {}}, connection={"ansible_connection": "local"})
        for name in NAMES
    ]


def facts(name: str) -> Facts:
    """Facts of a host on which every probe printed nothing, and the planted one its name."""
    found = HostFacts({"planted": Output(name)})
    vars(found)["name"] = name
    return found


def gathered(asked: Sequence[tuple[RawHost, Any]], **_: Any) -> dict[str, Facts]:
    return {raw.name: facts(raw.name) for raw, _probes in asked}


def each(asked: Sequence[tuple[RawHost, Any]], on_done: Callable[[str, Facts], None], **_: Any) -> None:
    for raw, _probes in asked:
        on_done(raw.name, facts(raw.name))


@pytest.fixture(autouse=True)
def _no_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in ("gpuprov.verify.verify", "gpuprov.plan.read"):
        monkeypatch.setattr(sys.modules[room], "gather_each", each)
    monkeypatch.setattr(sys.modules["gpuprov.export"], "gather", gathered)


def planted(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    """The capability nouveau with something else in it, wherever capabilities are looked up."""
    mine = replace(nouveau.CAPABILITY, **changed)
    listed = tuple(mine if one.name == "nouveau" else one for one in capabilities.CAPABILITIES)
    for room in ("gpuprov.capabilities", "gpuprov.fleet.specs", "gpuprov.export"):
        monkeypatch.setattr(sys.modules[room], "CAPABILITIES", listed)
    monkeypatch.setitem(capabilities.BY_NAME, "nouveau", mine)


def judged() -> Fleet:
    return fleet.judge(hosts())


def with_a_broken_check(monkeypatch: pytest.MonkeyPatch) -> None:
    old = nouveau.CAPABILITY.checks[0]
    run = lambda ctx: crash() if ctx.host.name == BAD else old.run(ctx)  # noqa: E731
    planted(monkeypatch, checks=(replace(old, run=run), *nouveau.CAPABILITY.checks[1:]))


def with_a_broken_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = Probe("planted", ":", lambda output: crash() if output.text == BAD else output.text)
    old = nouveau.CAPABILITY.checks[0]

    def run(ctx: Any) -> Any:
        ctx.facts.get(probe)
        return old.run(ctx)

    planted(monkeypatch, checks=(replace(old, run=run, probes=(probe,)), *nouveau.CAPABILITY.checks[1:]))


def with_a_broken_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, rules=lambda spec, _fragment: crash() if spec.name == BAD else ())


@pytest.mark.parametrize("plant", [with_a_broken_check, with_a_broken_parser, with_a_broken_rule])
def test_verify_plan_and_apply(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = judged().pairs
    before = verify(pairs)
    plans = {one.host: one for one in plan.plan(pairs, PlanOptions(exact=False))}
    plant(monkeypatch)
    found = judged()
    results = verify(found.pairs)
    mine = [one for one in results if DEFECT in one.fix]
    assert {(one.host, one.status) for one in mine} == {(BAD, "error")}
    assert all(WORDS.search(one.found) for one in mine), mine
    assert all(re.search(r"report it with this line \(gpuprov \d.*, Python 3\..*, gpuprov\b", one.fix) for one in mine)
    assert exit_code(results) == 1
    assert [one for one in results if one.host != BAD] == [one for one in before if one.host != BAD]
    assert len(results) in (len(before), len(before) + 1)
    after = {one.host: one for one in plan.plan(found.pairs, PlanOptions(exact=False))}
    assert {name: one for name, one in after.items() if name != BAD} == {
        name: one for name, one in plans.items() if name != BAD
    }
    assert after[BAD].differs
    assert DEFECT in str(after[BAD].blocked) + str(after[BAD].unpredicted) or any(
        WORDS.search(one) for one in after[BAD].unpredicted
    )


def test_a_broken_rule_is_told_by_check(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert specs.show_check(judged, form="text", verbose=False) == 0
    assert capfd.readouterr().out == "10 hosts valid\n"
    with_a_broken_rule(monkeypatch)
    assert specs.show_check(judged, form="text", verbose=False) == 2
    assert capfd.readouterr().out == f"9 hosts valid, 1 not judged ({BAD})\n"
    assert specs.show_check(judged, form="json", verbose=False) == 2
    told = json.loads(capfd.readouterr().out)
    assert (told["valid"], len(told["hosts"]), len(told["problems"])) == (False, 10, 1)
    assert WORDS.search(told["problems"][0]["message"])


def test_a_broken_rule_across_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, fleet_rules=crash)
    found = judged()
    assert all(WORDS.search(spec.defects[0][0]) for _, spec in found.pairs)
    assert {one.check for one in verify(found.pairs) if DEFECT in one.fix} == {JUDGED}


def test_apply_leaves_the_host_alone_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for broken in (False, True):
        if broken:
            monkeypatch.setattr(sys.modules["gpuprov.plan.planning"], "decide", decided)
        else:
            with_a_broken_rule(monkeypatch)
        with pytest.raises(Confirmed) as asked:
            apply(judged().pairs, Options(), confirm=refuse)
        plans = {one.host: one for one in asked.value.args[0]}
        assert [name for name in NAMES if plans[name].blocked] == [BAD]
        assert all(plans[name].run for name in NAMES if name != BAD)


class Confirmed(Exception):
    """Raised in place of an answer, with the plans."""


def refuse(plans: Any) -> bool:
    raise Confirmed(plans)


def decided(pair: Any, *given: Any, **named: Any) -> Any:
    from gpuprov.plan.decide import decide

    return crash() if pair[0].name == BAD else decide(pair, *given, **named)


def test_a_broken_decision_blocks_the_host_in_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["gpuprov.apply.first_look"], "decide", decided)
    monkeypatch.setattr(_Execution, "roll", lambda self, work: self.__dict__.update(worked=work))
    run = apply(judged().pairs, Options(yes=True))
    states = {one.host: one.state for one in run.hosts}
    assert states.pop(BAD) == "blocked"
    assert set(states.values()) == {"not-started"}
    assert run.exit_code == 3


def test_export(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, export=lambda found: crash() if vars(found)["name"] == BAD else nouveau.Nouveau())
    found = export(hosts())
    entries = found.inventory["all"]["hosts"]
    assert [name for name in NAMES if "nouveau" not in entries[name]["gpuprov"]] == [BAD]
    (note,) = (note for note in found.notes if DEFECT in note)
    assert note.startswith(f"{BAD}: not exported: nouveau: the export of nouveau broke: TypeError")


def test_topology(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "read_and_told", lambda found: crash() if vars(found)["name"] == BAD else found)
    monkeypatch.setattr(command, "find_crossed", lambda _: {})
    monkeypatch.setattr(command, "list_findings", lambda *_: ())
    monkeypatch.setattr(document, "build_host", lambda *_: {"gpus": []})
    monkeypatch.setattr(command, "format_text", lambda *_, **__: "text")
    monkeypatch.setattr(command, "draw_svg", lambda *_: "picture")
    code, _ = command.show({name: facts(name) for name in NAMES}, as_json=True)
    told = json.loads(capfd.readouterr().out)
    assert (code, len(told["hosts"]), list(told["unread"])) == (1, 9, [BAD])
    assert DEFECT in told["unread"][BAD]


def test_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys.modules["gpuprov.accept.hosts"], "_make_host", lambda raw, *_: crash() if raw.name == BAD else raw.name
    )
    findings: list[Finding] = []
    found = prepare(judged().pairs, {name: facts(name) for name in NAMES}, findings)
    assert list(found) == [name for name in NAMES if name != BAD]
    assert [(one.host, one.status, DEFECT in one.fix) for one in findings] == [(BAD, "error", True)]


def test_an_event_that_cannot_be_read_is_its_hosts_failure() -> None:
    ledger = Ledger()
    broken: Any = {"host": BAD, "res": ["no", "mapping"]}
    ledger.feed({"event": "runner_on_ok", "event_data": broken})
    ledger.feed({"event": "runner_on_ok", "event_data": {"host": "gpu01", "res": {"changed": True}, "task": "t"}})
    assert "the reader of Ansible's events broke: " in ledger.hosts[BAD].defect
    assert (ledger.hosts["gpu01"].changed, ledger.hosts["gpu01"].defect) == (["t"], "")


def test_what_breaks_before_or_after_a_host_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = Probe("one", "echo 1", lambda output: output.text)
    asked = [(raw, (probe,)) for raw in hosts()]
    monkeypatch.setattr(sys.modules["gpuprov.facts.collect.gather"], "split", broken_for_one())
    found = gather(asked)
    wrong = [name for name, one in found.items() if not isinstance(one, Facts)]
    assert len(wrong) == 1
    assert "the reader of what the host printed broke: TypeError" in str(found[wrong[0]])
    strange = msgspec_replace(
        asked[5][0], connection={"ansible_connection": "local", "ansible_port": 1, "ansible_become": Strange()}
    )
    found = gather([*asked[:5], (strange, (probe,)), *asked[6:]])
    assert [name for name, one in found.items() if not isinstance(one, Facts)] == [BAD]
    assert "the connection to the host broke: TypeError: boom" in str(found[BAD])


class Strange:
    def __str__(self) -> str:
        raise TypeError("boom")


def msgspec_replace(raw: RawHost, **changed: Any) -> RawHost:
    import msgspec

    return msgspec.structs.replace(raw, **changed)


def broken_for_one() -> Any:
    from gpuprov.facts.collect.script import split

    def rows() -> Iterator[bool]:
        yield True
        while True:
            yield False

    first = rows()
    return lambda data: crash() if next(first) else split(data)
