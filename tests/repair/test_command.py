"""A run over several hosts: the plan, the question, the budget, the report, the tickets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuprov.capabilities.health.firmware import BASELINE
from gpuprov.core import terminal
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.collect.unreached import Unreached
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host.hardware import Firmware
from gpuprov.fleet.policy.in_memory import InMemory
from gpuprov.host_page.read import ReadHost
from gpuprov.repair import chain, command, ticket
from gpuprov.repair.document import build_document
from gpuprov.repair.hosts import Answer, Judged, ReachedHosts
from gpuprov.repair.model import HostRepair, Options, Repaired, Try
from gpuprov.repair.text import as_text
from gpuprov.report.document import as_json
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import Result
from gpuprov.verify.fitness import fitness
from tests.capabilities.health_host import GSP, log
from tests.commands import run_main
from tests.hardware.topology.machines import H100
from tests.repair.fake_hosts import FakeHost, FakeHosts, passed, plan
from tests.repair.test_planning import machine
from tests.repair.test_planning import read as read_facts


class Fleet(FakeHosts):
    """With facts that a plan can be made from."""

    def judge(self, names: Any) -> dict[str, Judged]:
        facts = read_facts(machine(H100, 0), repairs="")
        return {name: (results, facts) for name, (results, _) in super().judge(names).items()}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "SETTLING", {"reset": 0.0, "reboot": 0.0})


def pairs(*names: str) -> list[tuple[RawHost, HostSpec]]:
    return [(RawHost(name=name), HostSpec(name=name)) for name in names]


def run(hosts: dict[str, FakeHost], **options: Any) -> tuple[Repaired, Fleet, list[str]]:
    fleet, shown = Fleet(hosts), list[str]()
    values: dict[str, Any] = {"run": "r1", "yes": True, **options}
    done = command.run(pairs(*hosts), fleet, Options(**{"reboot": True, **values}), shown.append)
    return done, fleet, shown


def states(done: Repaired) -> dict[str, str]:
    return {host.host: host.state for host in done.hosts}


def test_hosts_that_are_fit_are_left_alone() -> None:
    done, fleet, shown = run({"gpu1": FakeHost(well=True)})
    assert (states(done), done.exit_code, fleet.calls, shown) == ({"gpu1": "fit"}, 0, [], [])
    assert "gpu1: fit for work: nothing to repair" in as_text(done)


def test_one_at_a_time_and_the_first_that_is_given_up_stops_the_run() -> None:
    done, fleet, _ = run({"gpu1": FakeHost(), "gpu2": FakeHost(ends=""), "gpu3": FakeHost()})
    assert states(done) == {"gpu1": "repaired", "gpu2": "given up", "gpu3": "not started"}
    assert done.stopped == "1 failed in all, --max-fail is 0: gpu2; 1 not started"
    assert done.exit_code == 3
    assert fleet.calls.count("take") == 2


def test_a_host_that_stays_out_takes_its_place_in_the_budget() -> None:
    hosts = {f"gpu{number}": FakeHost(ends="" if number < 3 else "reset") for number in range(1, 6)}
    done, _, _ = run(hosts, max_out="2", max_fail="5")
    assert list(states(done).values()) == ["given up", "given up", "not started", "not started", "not started"]
    assert "at most 2 may be out at once" in done.stopped
    assert "gpu[1:2]" in done.stopped or "gpu1, gpu2" in done.stopped


@pytest.mark.parametrize(
    ("answers", "state", "left"),
    [
        ({"take": Answer(problem="no route", silent=True)}, "unreachable", "repaired"),
        ({"take": Answer(locked={"holder": None, "id": "x"})}, "locked", "repaired"),
        ({"reset": Answer(problem="another run", lost=True)}, "locked", "not started"),
        ({"take": Answer(holders=("python3",))}, "refused", "not started"),
        ({"look": Answer(holders=("python3",))}, "refused", "repaired"),
    ],
    ids=["not reached", "another run has it", "its lock is lost midway", "in use by now", "in use when planned"],
)
def test_only_a_host_that_was_begun_or_refused_costs_the_budget(
    answers: dict[str, Answer], state: str, left: str
) -> None:
    done, _, _ = run({"gpu1": FakeHost(ends="", answers=answers), "gpu2": FakeHost()})
    assert states(done) == {"gpu1": state, "gpu2": left}


def test_a_host_that_its_scheduler_did_not_take_back_costs_the_budget() -> None:
    back = Try(act="return", at="", seconds=1.0, problem="no controller")
    kept = HostRepair(plan=plan(), state="unreachable", tries=(back,))
    assert command._judge(kept) == "failed"


@pytest.mark.parametrize(("total", "max_out", "batch"), [(4, "50%", 2), (400, "1%", 4), (4, "1%", 1)])
def test_a_share_is_one_of_the_inventory(total: int, max_out: str, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    begin = InMemory.begin

    def note(self: InMemory) -> tuple[str, ...]:
        names = begin(self)
        sizes.append(len(names))
        return names

    monkeypatch.setattr(InMemory, "begin", note)
    run({f"gpu{number}": FakeHost() for number in range(4)}, max_out=max_out, total=total)
    assert sizes[0] == batch


@pytest.mark.parametrize(("option", "value"), [("max_out", "0"), ("max_out", "many"), ("max_fail", "-1")])
def test_a_budget_that_is_none_is_refused_before_a_host_is_read(option: str, value: str) -> None:
    with pytest.raises(GpuprovError, match=f"--{option.replace('_', '-')}"):
        run({"gpu1": FakeHost()}, **{option: value})


@pytest.mark.parametrize("is_check", [True, False])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "command"}, "--by command needs the site's command"),
        ({"by": "slurm", "command": "true"}, "slurm takes no command"),
        ({"command": "true"}, "--command goes with --by command"),
        ({"by": "slurm", "context": "x"}, "--by slurm does not use kubectl"),
        ({"drain": False, "by": "slurm"}, "--no-drain asks no scheduler: --by would do nothing"),
        ({"drain": False, "wait": 0.0}, "--wait would do nothing"),
        ({"drain": False, "poll": 10.0}, "--poll would do nothing"),
        ({"drain": False, "context": "x", "wait": 5.0}, "--context and --wait would do nothing"),
    ],
)
def test_options_that_contradict_are_refused_before_a_host_is_read(
    options: dict[str, Any], message: str, is_check: bool
) -> None:
    with pytest.raises(GpuprovError, match=message):
        run({"gpu1": FakeHost(ends="unread")}, check=is_check, **options)


def test_check_shows_the_plan_and_does_nothing() -> None:
    done, fleet, shown = run({"gpu1": FakeHost(), "gpu2": FakeHost(action="drain")}, check=True)
    assert (states(done), fleet.calls) == ({"gpu1": "planned", "gpu2": "given up"}, ["look"])
    text = as_text(done)
    assert shown == []
    assert "gpu1: not fit for work until its GPUs are reset\n  because   health.recovery [reset]" in text
    assert "gpu2: given up: no reset and no reboot repairs it" in text
    assert done.exit_code == 3


@pytest.mark.parametrize(("by", "state", "code"), [("", "refused", 3), ("slurm", "planned", 1)])
def test_a_host_in_use_is_refused_when_planned_unless_it_is_drained_first(by: Any, state: str, code: int) -> None:
    in_use = {"look": Answer(holders=("python3 (pid 7, kim)",))}
    done, _, _ = run({"gpu1": FakeHost(answers=in_use)}, check=True, by=by)
    assert (states(done), done.exit_code) == ({"gpu1": state}, code)
    assert "in use" in as_text(done)
    assert "python3 (pid 7, kim)" in as_text(done)


def test_what_needs_hands_is_not_touched() -> None:
    done, fleet, shown = run({"gpu1": FakeHost(action="return")})
    assert (states(done), fleet.calls, shown) == ({"gpu1": "given up"}, [], [])
    assert done.hosts[0].message == "no reset and no reboot repairs it"


def test_nobody_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[str] = []

    def refuse(question: str) -> bool:
        questions.append(question)
        return False

    monkeypatch.setattr(terminal, "confirm", refuse)
    with pytest.raises(GpuprovError, match="nothing was done"):
        run({"gpu1": FakeHost()}, yes=False)
    assert questions == ["Repair 1 host?"]


def test_a_host_that_does_not_answer_the_look_is_left_out() -> None:
    lost = Answer(problem="no route", silent=True)
    done, _, _ = run({"gpu1": FakeHost(answers={"look": lost}), "gpu2": FakeHost()})
    assert states(done) == {"gpu1": "unreachable", "gpu2": "repaired"}
    assert done.exit_code == 4


def test_the_machine_of_gpuprov_is_reset_and_not_rebooted() -> None:
    here = {"look": Answer(here=True)}
    done, fleet, _ = run({"gpu1": FakeHost(answers=here, action="reboot", ends="reboot")})
    assert (states(done), fleet.calls) == ({"gpu1": "given up"}, ["look"])
    assert "machine that gpuprov runs on" in done.hosts[0].message


def test_a_defect_costs_its_host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(chain.Chain):
        def run(self) -> Any:
            if self._plan.host == "gpu1":
                raise ZeroDivisionError("x")
            return super().run()

    monkeypatch.setattr(command, "Chain", Broken)
    done, _, _ = run({"gpu1": FakeHost(), "gpu2": FakeHost()}, max_fail="1", max_out="2")
    assert states(done) == {"gpu1": "given up", "gpu2": "repaired"}
    assert "ZeroDivisionError" in done.hosts[0].message


def test_a_folder_that_takes_no_ticket_is_refused_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "inventory.yaml").write_text("all: {hosts: {gpu1: {gpuprov: {health: {}}}}}\n")
    monkeypatch.setattr(command, "run", lambda *_: pytest.fail("it was begun"))
    words = ("repair", str(tmp_path / "inventory.yaml"), "--yes", "--ticket-dir", str(tmp_path / "file" / "x"))
    assert run_main(monkeypatch, *words) == 2
    assert "--ticket-dir FOLDER names another folder" in capsys.readouterr().err


@pytest.mark.parametrize("reached", [True, False])
def test_a_ticket_is_a_page_and_a_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reached: bool) -> None:
    facts = read_facts(machine(H100, 0), kernel_log=log(GSP))

    def read(raw: RawHost, spec: HostSpec) -> ReadHost:
        return ReadHost(
            raw=raw, spec=spec, results=[], facts=facts if reached else Unreached(raw.name, "no route", "see")
        )

    monkeypatch.setattr(ticket, "read_host", read)
    name = "../gpu<x>1"
    done, _, _ = run({name: FakeHost(ends="")})
    ticket.write_tickets(pairs(name), done, tmp_path / "tickets")
    page, document = sorted((tmp_path / "tickets").iterdir())
    assert {page.suffix, document.suffix} == {".html", ".json"}
    assert {path.stat().st_mode & 0o777 for path in (page, document)} == {0o600}
    assert done.hosts[0].ticket == (str(page), str(document))
    text = page.read_text()
    for words in (
        "What was found and tried",
        "health.recovery",
        "reset",
        "reboot",
        "then not fit",
        "given up",
        "GPU 1",
    ):
        assert words in text, words
    assert "<x>" not in text.partition("</head>")[2]
    report = json.loads(document.read_text())
    assert [tried["act"] for tried in report["hosts"][0]["tries"]] == ["reset", "reboot"]
    assert report["hosts"][0]["plan"]["whole"]
    (host,) = report["hosts"]
    assert bool(host["machine"]) == bool(host["cards"]) == bool(host["kernel_log"]) == reached
    if reached:
        assert host["cards"][0]["serial"]
        assert "Xid (PCI:0000:19:00): 119" in host["kernel_log"][0]
    assert str(page) in as_text(done)


def test_the_document_says_what_the_text_says() -> None:
    done, _, _ = run({"gpu1": FakeHost(), "gpu2": FakeHost(well=True)})
    report = json.loads(as_json(build_document(done)))
    assert (report["verb"], report["exit_code"], report["summary"]["states"]) == (
        "repair",
        0,
        {"repaired": 1, "fit": 1},
    )
    assert report["summary"]["sentence"] in as_text(done)


def test_a_record_is_refused_and_a_pipe_cannot_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "inventory.yaml").write_text("all: {hosts: {gpu1: {gpuprov: {nouveau: {}}}}}")
    monkeypatch.chdir(tmp_path)
    assert run_main(monkeypatch, "repair", "inventory.yaml", "--from", "x.gz") == 2
    assert "a record cannot be repaired" in capsys.readouterr().err
    assert run_main(monkeypatch, "repair", "inventory.yaml") == 2
    assert "repair asks before it changes anything" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("versions", "names", "first", "later"),
    [
        ("old new new", "gpu1 gpu2 gpu3", "not until driver and firmware are updated", "yes"),
        ("new new new", "gpu1 gpu2 gpu3", "yes", "yes"),
        ("old", "gpu1", "yes", "yes"),
    ],
)
def test_firmware_is_compared_as_health_compares_it(
    monkeypatch: pytest.MonkeyPatch, versions: str, names: str, first: str, later: str
) -> None:
    """Also when one host alone is read again: the others are what they were. Without others, nothing is compared."""
    known = dict(zip(names.split(), versions.split(), strict=True))

    def verify_each(pairs: Any, note: Any, **_: Any) -> None:
        for raw, _spec in pairs:
            board = Firmware(kind="adapter", board="A", names=("A",), address="0", version=known[raw.name])
            row = Result(host=raw.name, capability="health", check=BASELINE, status="n/a", firmware=(board,))
            note(raw.name, [passed(raw.name), row], Facts({}))

    monkeypatch.setattr("gpuprov.repair.hosts.verify_each", verify_each)
    hosts = ReachedHosts([(RawHost(name=name), HostSpec(name=name)) for name in known], Options(run="r1"))
    judged = hosts.judge([*known])
    fits = [str(fitness(judged[name][0])[0]) for name in known]
    assert fits[0].startswith(first)
    assert set(fits[1:]) <= {"yes"}
    known["gpu1"] = "new"
    (again,) = fitness(hosts.judge(["gpu1"])["gpu1"][0])
    assert again.fit == later


@pytest.mark.install
def test_a_host_is_reached_as_the_inventory_says() -> None:
    """This machine, by its own shell: the program arrives, runs, and its answer is understood; nothing is changed."""
    raw = RawHost(name="here", connection={"ansible_connection": "local"})
    hosts = ReachedHosts([(raw, HostSpec(name="here"))], Options(run="r1"))
    results, facts = hosts.judge(["here"])["here"]
    assert facts is not None
    assert {"health.xid", "health.recovery"} <= {result.check for result in results}
    answer = hosts.act("look", plan("here"))
    assert not answer.silent
    assert answer.boot or answer.problem
    assert hosts.get_reboot_limit("here") == 1800.0
