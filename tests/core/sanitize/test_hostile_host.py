"""A host whose every string holds escape sequences, changes of direction and rich's markup: none of it reaches a person
raw."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import unescape
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
import yaml

from gpuprov import apply as applying
from gpuprov.accept import model as accepted
from gpuprov.accept import show as acceptance
from gpuprov.accept.maps import maps
from gpuprov.accept.page import page as accept_page
from gpuprov.accept.picture import document
from gpuprov.apply.log import Log
from gpuprov.apply.model import ApplyRun, HostOutcome
from gpuprov.apply.outcome import judge
from gpuprov.apply.page import render as apply_page
from gpuprov.core import terminal
from gpuprov.core.errors import GpuprovError, UnreachableError
from gpuprov.core.sanitize import hides
from gpuprov.facts.collect.unreached import Unreached
from gpuprov.facts.probes.base import Facts, Output, Probe, T
from gpuprov.hardware.topology import command as drawn
from gpuprov.plan.events import Ledger, Step
from gpuprov.plan.playbook import Ended
from gpuprov.plan.show import Terminal
from gpuprov.rehearse import Rehearsal, Rehearsed
from gpuprov.rehearse.model import Step as Act
from gpuprov.rehearse.page import render_page as rehearse_page
from gpuprov.report import html, junit
from gpuprov.report.document import as_json
from gpuprov.simulate import __main__ as simulate
from gpuprov.simulate import hosts
from gpuprov.spec.model import RawHost
from gpuprov.verify import Result
from tests.capabilities.asking import good
from tests.commands import run_main

EVIL = "\x1b]0;OWNED\x07\x1b[2J\x9b31m\u202e[red]x[/red][link=http://x.test]y[/link]\x1b[32mPASS\x1b[0m\x00\x7f\u200b"
MARK = "OWNED"
"""What is left of it for people to see; a test that does not find it shows nothing."""
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.\d", re.IGNORECASE)
"""What a parser has taken for the address of a PCI function has this form."""
SPEC = {
    "gpu": {"model": "H100-SXM5-80GB", "count": 8},
    "nouveau": {},
    "nvidia_driver": {"version": "580"},
    "persistence": {},
    "fabric_manager": {},
    "rdma": {"fabric": "infiniband"},
    "kernel": {"sysctl": {"vm.swappiness": 10}, "command_line": {"iommu": "pt"}},
    "container_toolkit": {"runtimes": ["docker"]},
    "mps": {},
    "dcgm": {},
    "topology": {},
    "pcie": {},
}


def spoiled(value: Any) -> Any:
    """The value with every string in it made hostile."""
    if isinstance(value, str):
        return value if ADDRESS.fullmatch(value) else f"{value}{EVIL}"
    if isinstance(value, msgspec.Struct):
        fields = {name: spoiled(getattr(value, name)) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **fields)
    if isinstance(value, Mapping):
        return type(value)({spoiled(key): spoiled(one) for key, one in value.items()})  # type: ignore[call-arg]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(spoiled(one) for one in value))
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value)(spoiled(one) for one in value)
    return value


class Hostile(Facts):
    """What a host tells that is right but for the strings of some probes; of all where none is named."""

    def __init__(self, outputs: dict[str, Output], probes: frozenset[str] = frozenset()) -> None:
        super().__init__(outputs)
        self.probes = probes

    def get(self, probe: Probe[T]) -> T:
        fact = super().get(probe)
        return spoiled(fact) if not self.probes or probe.name in self.probes else fact


def outputs() -> dict[str, Output]:
    return {name: text if isinstance(text, Output) else Output(text) for name, text in good().items()}


def gathered(asked: Sequence[tuple[RawHost, Any]], **_: Any) -> dict[str, Facts | UnreachableError]:
    """`evil` answers, `some` with what is not about its platform, `gone` cannot be reached; all of them in words."""
    usual = frozenset(outputs()) - {"os_release", "platform", "login", "container", "nvidia_functions"}
    answers: dict[str, Facts | UnreachableError] = {
        "evil": Hostile(outputs()),
        "some": Hostile(outputs(), usual),
        "bare": Hostile({name: Output(EVIL, 1, EVIL) for name in outputs()}),
        "gone": Unreached("gone", f"refused {EVIL}", f"ask {EVIL}"),
    }
    return {raw.name: answers[raw.name] for raw, _ in asked}


def each(
    asked: Sequence[tuple[RawHost, Any]], on_done: Callable[[str, Facts | UnreachableError], None], **_: Any
) -> None:
    for name, answer in gathered(asked).items():
        on_done(name, answer)


@pytest.fixture(autouse=True)
def read(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("gpuprov.verify.verify", "gpuprov.plan.read"):
        monkeypatch.setattr(import_module(place), "gather_each", each)
    for place in ("gpuprov.export", "gpuprov.facts.collect"):
        monkeypatch.setattr(import_module(place), "gather", gathered)


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    file = tmp_path / "inventory.yaml"
    names: dict[str, object] = {name: {} for name in ("evil", "some", "bare", "gone")}
    file.write_text(yaml.safe_dump({"all": {"hosts": names, "vars": {"gpuprov": SPEC}}}))
    return file


class Said:
    """What a command printed."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def all(self) -> str:
        return self.out + self.err


@pytest.fixture
def gpuprov(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str | Path) -> Said:
        return Said(run_main(monkeypatch, *map(str, words)), *capsys.readouterr())

    return run


def strings(value: Any) -> Iterator[str]:
    """Every string in plain data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from strings(one)


@pytest.mark.parametrize(
    "words", ["verify", "verify -v", "plan --quick", "plan --quick -v", "verify --json", "plan --quick --json"]
)
def test_nothing_raw_reaches_the_terminal(gpuprov: Any, inventory: Path, words: str) -> None:
    said = gpuprov(*words.split(), inventory)
    assert MARK in said.out
    assert not hides(said.all)
    if "--json" in words:
        assert any(EVIL in one for one in strings(json.loads(said.out))), "JSON holds what the host said"


def test_nothing_raw_reaches_the_pages(gpuprov: Any, inventory: Path, tmp_path: Path) -> None:
    gpuprov("verify", inventory, "--junit", tmp_path / "r.xml", "--html", tmp_path / "r.html")
    for name in ("r.xml", "r.html"):
        text = (tmp_path / name).read_text()
        assert MARK in unescape(text)
        assert not hides(text)
    ElementTree.fromstring((tmp_path / "r.xml").read_text())


def test_export_notes_and_yaml(gpuprov: Any, inventory: Path, tmp_path: Path) -> None:
    said = gpuprov("export", inventory)
    assert MARK in said.err
    assert not hides(said.all)
    yaml.safe_load(said.out)
    gpuprov("export", inventory, "-o", tmp_path / "out.yaml")
    assert not hides((tmp_path / "out.yaml").read_text())
    assert not hides(gpuprov("export", inventory, "--json").all)


def test_topology_and_its_picture(gpuprov: Any, inventory: Path, tmp_path: Path) -> None:
    for host in ("evil", "some", "bare", "gone"):
        said = gpuprov("topology", host, inventory, "--svg", tmp_path / f"{host}.svg")
        assert not hides(said.all)
        assert MARK in said.all or host == "some"
    facts = gathered([(RawHost(name="some"), ())])
    _, picture = drawn.show(facts, as_json=False)
    pictures = [path.read_text() for path in tmp_path.glob("*.svg")]
    assert pictures
    for text in [picture, *pictures]:
        assert not hides(text)
        ElementTree.fromstring(text)


def test_what_a_user_pastes(gpuprov: Any, inventory: Path) -> None:
    for words in (("explain", EVIL), ("catalog", "gpus", EVIL), ("verify", inventory, "--only", EVIL),
                  ("plan", inventory, "-l", EVIL),
                  (EVIL,), ("verify", EVIL), ("check", inventory, f"--{EVIL}"),
                  ("mig", "fit", "--gpu", EVIL, "1g.10gb")):  # fmt: skip
        said = gpuprov(*words)
        assert said.status == 2, words
        assert not hides(said.all), words
        assert ("PASS" if words[0] == "explain" else MARK) in said.err, words  # explain leaves out the title


def test_a_bug_in_gpuprov_tells_what_a_host_said_cleaned(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError(EVIL)
    except ValueError as error:
        terminal.crash(type(error), error, error.__traceback__)
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert MARK in said
    assert not hides(said)


def locked() -> ApplyRun:
    """A run of one host whose lock another holds, with a name of its own making, told by Ansible."""
    task = {"host": "evil", "task": f"host : {EVIL}", "role": "host", "task_action": "gpuprov_lock"}
    event: Any = {
        "event": "runner_on_failed",
        "event_data": {**task, "res": {"msg": f"locked by {EVIL}", "gpuprov_locked": True}},
    }
    ledger = Ledger()
    step = ledger.feed(event)
    assert step
    with Terminal().applying(["evil"], "applying") as shown:
        shown(step)
        shown(Step("act", "", EVIL))
        shown(Step("changed", "evil", EVIL))
    outcome = HostOutcome(host="evil", ran={"kernel": EVIL})
    judge(outcome, ledger, Ended("ended", 2))
    assert outcome.state == "locked"
    return ApplyRun(run="1", hosts=[outcome], stopped=EVIL)


def test_the_locks_message_and_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    run = locked()
    for text in (applying.as_text(run, verbose=True), as_json(applying.build_document(run))):
        terminal.result(text)
    terminal.progress(EVIL)
    terminal.warning(EVIL)
    terminal.error(GpuprovError(EVIL, EVIL))
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert MARK in text
        assert not hides(text)


def test_the_preview_of_apply(
    inventory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuprov.fleet.specs import load_fleet

    monkeypatch.setattr("click.confirm", lambda *_a, **_k: False)
    monkeypatch.setattr("gpuprov.apply.first_look._must_stop", lambda *_: False)
    pairs = load_fleet([str(inventory)], None).pairs
    with pytest.raises(GpuprovError, match="not confirmed"):
        applying.apply(pairs, applying.Options(), Terminal(), confirm=applying.command.confirm)
    said = capsys.readouterr().err
    assert MARK in said
    assert not hides(said)


def test_the_log_of_a_run_is_for_reading(tmp_path: Path) -> None:
    with Log(tmp_path, "1", [f"secret{EVIL}"]) as log:
        log.write(f"{EVIL}\r\nsecret{EVIL} next")
    text = log.path.read_text()
    assert MARK in text
    assert not hides(text)
    assert "secret" not in text


def test_live_progress_takes_no_markup_and_no_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    monkeypatch.setenv("COLUMNS", "800")

    screen = Console(file=io.StringIO(), force_terminal=True, width=800, color_system=None)
    progress = terminal.Progress([f"gpu{EVIL}"], EVIL)
    progress.update(f"gpu{EVIL}", EVIL)
    screen.print(progress._picture())
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "[red]x[/red][link=http://x.test]y[/link]" in text
    assert MARK in text
    assert not hides(text)


def test_pages_of_any_result() -> None:
    one = Result(host=EVIL, capability=EVIL, check=EVIL, fields=(EVIL,), status="fail", expected=EVIL, found=EVIL,
                 evidence=EVIL, fix=EVIL, reboot=EVIL)  # fmt: skip
    found = accepted.Finding(host=EVIL, check=EVIL, status="fail", found=EVIL, expected=EVIL, fix=EVIL, evidence=EVIL)
    outcome = accepted.Outcome(run=EVIL, hosts=(EVIL,), findings=[found], notes=[EVIL])
    step = Act(name="apply", verdict="failed", told=EVIL, details=(EVIL,))
    rehearsed = Rehearsed(run=EVIL, rehearsals=[Rehearsal(name=EVIL, hosts=(EVIL,), notes=(EVIL,), steps=[step])])
    undone = HostOutcome(host=EVIL, state="failed", task=EVIL, message=EVIL, fix=EVIL, changed=[EVIL])
    run = ApplyRun(run=EVIL, hosts=[undone], stopped=EVIL)
    for text in (
        junit.render([one]),
        html.render([one], EVIL),
        accept_page(outcome),
        rehearse_page(rehearsed),
        apply_page(run),
        document(maps(outcome)),
    ):
        assert not hides(text)
    assert not hides(acceptance.as_text(outcome, verbose=True))


def test_simulated_hosts_are_shown_as_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hosts, "run", lambda *_: f"{EVIL}\nmore\n")
    monkeypatch.setattr(hosts, "logs", lambda *_: EVIL)
    for words in (["run", "h", "true"], ["logs", "h"]):
        assert simulate.main(words) == 0
    assert simulate.main(["fault", "h", EVIL]) == 2
    with pytest.raises(SystemExit):
        simulate.main(["list", EVIL])
    said = capsys.readouterr()
    assert "more\n" in said.out
    for text in (said.out, said.err):
        assert MARK in text
        assert not hides(text)
