"""`gpuprov fleet work`: a result of each host, whatever ends the worker, and no green host is done twice in a run."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from gpuprov.apply import execution
from gpuprov.apply.first_look import first_look
from gpuprov.apply.model import HostOutcome
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.host import House, in_service
from gpuprov.cli import cli
from gpuprov.cli.reference import file_schema
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.fleet import specs as judging
from gpuprov.inventory import load
from gpuprov.jobs import frozen, outcome, secrets, stored, work
from gpuprov.jobs.model import HostResult, Job, Row
from gpuprov.jobs.pulse import Pulse
from gpuprov.jobs.results import LARGEST, Results, file_name, host_of
from gpuprov.jobs.tally import Tally
from gpuprov.plan import events, playbook
from gpuprov.plan.read import Pair, Reading
from gpuprov.spec.model import HostSpec
from gpuprov.verify.evaluate import Result
from gpuprov.verify.verify import Verdict, exit_code, verdict
from tests.apply import fleet as applied
from tests.jobs import stub
from tests.jobs.fleet import TIME, result
from tests.rows import run_each

NAMES = ["gpu1", "gpu2", "bad1", "gone1"]


def silent(_line: str) -> None:
    pass


def worked(path: Path, folder: Path, say: Any = silent, **options: Any) -> int:
    job = stored.load_job(path)
    chosen = work.Options(**{"run": "r1", "forks": 4, **options})
    return work.work(job, pairs_of(job), folder, chosen, Pulse(say, every=0.05))


def pairs_of(job: Job) -> Sequence[Pair]:
    return judging.judge(frozen.raw_hosts(job.hosts, job.specs), whole=False).pairs


def read(folder: Path) -> dict[str, HostResult]:
    return {
        one.host: one
        for one in (msgspec.json.decode(path.read_bytes(), type=HostResult) for path in folder.glob("*.json"))
    }


def test_each_host_has_a_result_and_each_change_a_line(tmp_path: Path) -> None:
    (path,) = stub.jobs(tmp_path, NAMES)
    lines: list[dict[str, Any]] = []
    assert worked(path, tmp_path / "r", lambda line: lines.append(json.loads(line))) == 4, "one was not reached"
    found = read(tmp_path / "r")
    assert {name: (one.state, one.verdict, one.green) for name, one in found.items()} == {
        "gpu1": ("verified", "matches", True),
        "gpu2": ("verified", "matches", True),
        "bad1": ("verified", "differs", False),
        "gone1": ("unreachable", "differs", False),
    }
    (failure,) = found["bad1"].failures
    assert (failure.check, failure.found) == ("nouveau.running", "loaded: nouveau")
    assert found["bad1"].counts["fail"] == 1
    assert "Connection refused" in found["gone1"].message
    schemas = {kind: json.loads(file_schema(kind)) for kind in ("result", "beat")}
    for file in (tmp_path / "r").iterdir():
        jsonschema.validate(json.loads(file.read_text()), schemas["result"])
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for line in lines:
        jsonschema.validate(line, schemas["beat"])
    assert (lines[0]["state"], lines[-1]["state"], lines[-1]["done"], lines[-1]["of"]) == ("started", "ended", 4, 4)
    assert {line["host"] for line in lines if "host" in line} == {*NAMES}


@pytest.mark.install
def test_it_lives_while_nothing_changes(tmp_path: Path) -> None:
    (path,) = stub.jobs(tmp_path, ["slow1"])
    lines: list[str] = []
    worked(path, tmp_path / "r", lines.append)
    assert sum('"state":"working"' in line for line in lines) > 3


def test_nobody_who_reads_the_heartbeat_is_no_end(tmp_path: Path) -> None:
    (path,) = stub.jobs(tmp_path, NAMES[:2])

    def full(_line: str) -> None:
        raise GpuprovError("standard output cannot be written")

    assert worked(path, tmp_path / "r", full) == 0
    assert len(read(tmp_path / "r")) == 2


def test_what_is_green_in_this_run_is_not_done_again(tmp_path: Path) -> None:
    (path,) = stub.jobs(tmp_path, NAMES)
    worked(path, tmp_path / "r")
    before = read(tmp_path / "r")
    assert worked(path, tmp_path / "r") == 4, "as all of its hosts say, those that were done before included"
    after = read(tmp_path / "r")
    assert [stub.calls(tmp_path, name) for name in NAMES] == [1, 1, 2, 2]
    assert after["gpu1"] == before["gpu1"]
    assert after["bad1"].ended > before["bad1"].ended
    worked(path, tmp_path / "r", run="r2")
    assert stub.calls(tmp_path, "gpu1") == 2, "another run"
    worked(path, tmp_path / "r", run="r2", act="plan", quick=True)
    assert stub.calls(tmp_path, "gpu1") == 3, "another act"
    assert read(tmp_path / "r")["gpu1"].state == "planned"


@pytest.mark.install
@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_killed_worker_leaves_whole_results_and_the_next_one_goes_on(tmp_path: Path, after: int) -> None:
    names = [f"gpu{number}" for number in range(4)] + ["slow1", "slow2"]
    (path,) = stub.jobs(tmp_path, names)
    job = stored.load_job(path)
    pairs = pairs_of(job)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        options = work.Options(run="r1", forks=1)
        work.work(job, pairs, tmp_path / "r", options, Pulse(lambda line: _say(writer, line)))
        os._exit(0)
    os.close(writer)
    seen = 0
    with open(reader) as lines:
        for line in lines:
            seen += "host" in json.loads(line)
            if seen >= after:
                break
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    left = read(tmp_path / "r")
    assert len(left) >= after
    assert worked(path, tmp_path / "r") == 0
    ended = read(tmp_path / "r")
    assert sorted(ended) == sorted(names)
    for name, one in left.items():
        assert ended[name] == one, "what was green stays as it was"
        assert stub.calls(tmp_path, name) == 1
    assert worked(path, tmp_path / "r") == 0
    assert read(tmp_path / "r") == ended


def _say(pipe: int, line: str) -> None:
    with open(os.dup(pipe), "w") as file:
        file.write(f"{line}\n")


def test_sigterm_ends_it_and_keeps_what_is_done(tmp_path: Path) -> None:
    (path,) = stub.jobs(tmp_path, ["gpu1", "slow1", "slow2"])
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        if '"gpu1"' in line:
            os.kill(os.getpid(), signal.SIGTERM)

    assert worked(path, tmp_path / "r", say, forks=1) == 130
    assert [*read(tmp_path / "r")] == ["gpu1"]
    assert '"interrupted"' in lines[-1]


@run_each("host", ["../../etc/passwd", "..", ".hidden", "a/b", "a%2Fb", "x" * 5000, "ü:[1]", "a\nb", "~", ""])
def test_a_hosts_name_is_no_path(tmp_path: Path, host: str) -> None:
    results = Results(tmp_path / "r")
    results.write(result(host))
    (file,) = (tmp_path / "r").iterdir()
    assert file.name == file_name(host)
    assert len(file.name.encode()) <= 255
    assert not file.name.startswith(".") or host == ""
    assert host_of(file.name) == host or len(host) > 200
    assert results.read(host) == result(host)
    results.close()
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_names_that_differ_have_files_that_differ() -> None:
    names = [
        "a",
        "A",
        "a b",
        "a%20b",
        "x" * 4000 + "1",
        "x" * 4000 + "2",
        "%" * 300 + "1",
        "%" * 300 + "2",
        ".a",
        "%2Ea",
    ]
    assert len({file_name(name) for name in names}) == len(names)


def test_a_folder_of_results_is_this_users(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(GpuprovError, match="everybody may write in it"):
        Results(tmp_path / "open")
    (tmp_path / "file").touch()
    with pytest.raises(GpuprovError, match="cannot take results"):
        Results(tmp_path / "file")


def test_what_lies_in_the_place_of_a_result_is_replaced_and_not_believed(tmp_path: Path) -> None:
    results = Results(tmp_path)
    elsewhere = tmp_path / "precious"
    elsewhere.write_text("precious")
    (tmp_path / "a.json").symlink_to(elsewhere)
    (tmp_path / "b.json").write_text("{" * 1000)
    os.mkfifo(tmp_path / "c.json")
    (tmp_path / "d.json").write_bytes(b" " * (LARGEST + 1))
    results.write(result("e"))
    os.rename(tmp_path / "e.json", tmp_path / "f.json")
    for host in "abcdf":
        assert results.read(host) is None
        results.write(result(host))
        assert results.read(host) == result(host)
    assert elsewhere.read_text() == "precious"


def test_a_full_disk_is_told_and_leaves_no_half_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = Results(tmp_path)
    results.write(result("a"))

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(GpuprovError, match="No space left"):
        results.write(result("a", run="r2"))
    assert results.read("a") == result("a")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_what_a_prepared_host_lacks_is_no_failure_and_proves_nothing() -> None:
    lacking = Result(
        host="a", capability="nouveau", check="nouveau.running", fields=(), status="fail", expected="x", found="y"
    )
    told = outcome.Told(run="r", job="j", fleet="f", act="prepare", started=outcome.now())
    one = outcome.of_apply(told, HostOutcome(host="a", state="prepared", results=[lacking]))
    assert (one.state, one.verdict, one.failures, one.green) == ("prepared", "", (), True)
    assert work.exit_code([one]) == 0
    blocked = outcome.of_apply(told, HostOutcome(host="a", state="blocked", results=[lacking], message="no space"))
    assert not blocked.green
    assert work.exit_code([one, blocked]) == 3


def test_a_run_that_could_be_a_path_is_refused(tmp_path: Path) -> None:
    (path,) = stub.jobs(tmp_path, ["gpu1"])
    with pytest.raises(GpuprovError, match="--run is"):
        worked(path, tmp_path / "r", run="../x")


def test_a_file_that_is_another_one_here_is_refused(tmp_path: Path) -> None:
    (path,) = stub.jobs(tmp_path, ["gpu1"])
    key = tmp_path / "key"
    key.write_text("one")
    job = replace(stored.load_job(path), files={str(key): frozen.digest_of_file(str(key))})
    work.check_files(job)
    key.write_text("two")
    with pytest.raises(GpuprovError, match="is not the file that the inventory was frozen with"):
        work.check_files(job)


def test_secrets_are_taken_again_from_an_inventory_of_the_worker(tmp_path: Path) -> None:
    (path,) = stub.jobs(tmp_path, ["gpu1"], ansible_become_password="hunter2-hunter2")
    run = CliRunner()
    words = ["fleet", "work", str(path), "--results", str(tmp_path / "r"), "--run", "r1"]
    with pytest.raises(
        GpuprovError, match="ansible_become_password is not in the job: it is a secret of gpu1"
    ) as caught:
        run.invoke(cli, words, standalone_mode=False, catch_exceptions=False)
    assert "--secrets" in caught.value.fix
    own = tmp_path / "own.yaml"
    own.write_text("all: {hosts: {gpu1: {ansible_become_password: hunter2-hunter2, ansible_user: mallory}}}")
    job = stored.load_job(path)
    known = {one.name: one for one in load([str(own)]).hosts}
    hosts = secrets.given(frozen.raw_hosts(job.hosts, job.specs), job.hosts, known)
    secrets.refuse_missing(hosts, job.hosts)
    assert hosts[0].connection["ansible_become_password"] == "hunter2-hunter2"
    assert "ansible_user" not in hosts[0].connection, "nothing but the secrets that the job names"
    assert run.invoke(cli, [*words, "--secrets", str(own)], standalone_mode=False).return_value == 0
    assert "hunter2" not in "".join(file.read_text() for file in (tmp_path / "r").iterdir())


def test_an_option_of_another_act_is_refused(tmp_path: Path) -> None:
    (path,) = stub.jobs(tmp_path, ["gpu1"])
    told = CliRunner().invoke(cli, ["fleet", "work", str(path), "--results", str(tmp_path / "r"), "--reboot"])
    assert told.exit_code == 2
    assert "--reboot goes with --act plan and apply" in told.stderr
    told = CliRunner().invoke(cli, ["fleet", "work", str(path), "--results", str(tmp_path / "r"), "--repair", "0"])
    assert (told.exit_code, "--repair goes with --act apply" in told.stderr) == (2, True)


@pytest.mark.install
def test_an_apply_is_done_and_told(tmp_path: Path) -> None:
    with applied.project(tmp_path) as state:
        (state / "same1").write_text("as wanted\n")
        pairs = [applied.pair(name) for name in ("new1", "same1", "bad1")]
        hosts = tuple(frozen._make_host(raw, "s") for raw, _ in pairs)
        job = Job(fleet="f", number=1, of=1, specs={"s": {}}, hosts=hosts, digest="j")
        options = work.Options(act="apply", run="friday", log_dir=tmp_path / "log")
        lines: list[str] = []
        assert work.work(job, pairs, tmp_path / "r", options, Pulse(lines.append)) == 3
        found = read(tmp_path / "r")
        assert {name: one.state for name, one in found.items()} == {
            "new1": "changed",
            "same1": "unchanged",
            "bad1": "failed",
        }
        assert found["new1"].green
        assert found["bad1"].failures[0].check == outcome.ENDED
        assert "this host is bad" in found["bad1"].failures[0].found
        assert next(path.name for path in (tmp_path / "log").iterdir()).endswith("-friday.log")
        assert any('"applying"' in line for line in lines)
        secret = applied.SECRET
        assert not [file for file in (tmp_path / "r").iterdir() if secret in file.read_text()]


class Killed(BaseException):
    """As a SIGKILL: nothing after it is done."""


def event(kind: str, host: str, task: str, **result: object) -> dict[str, object]:
    data = {"host": host, "task": task, "role": "kernel", "res": result}
    return {"event": f"runner_on_{kind}", "event_data": data}


def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *told: dict[str, object]) -> dict[str, HostResult]:
    """The results of an apply to four hosts that was killed after these events."""

    def run(_folder: Path, _hosts: object, _extra: object, *, on_event: Any, **_given: object) -> None:
        for one in told:
            on_event(one)
        raise Killed

    def look(one: Pair, reading: Reading, options: object, whole: Any = first_look) -> HostOutcome:
        idle = HostOutcome(host="same1", results=list(reading.results))
        return idle if one[0].name == "same1" else whole(one, reading, options)

    monkeypatch.setattr(playbook, "run", run)
    monkeypatch.setattr(execution, "first_look", look)
    monkeypatch.setattr(execution, "leave", lambda *_, **__: {})
    with applied.project(tmp_path) as state:
        (state / "same1").write_text("as wanted\n")
        pairs = [applied.pair(name) for name in ("new1", "same1", "bad1", "lost1")]
        hosts = tuple(frozen._make_host(raw, "s") for raw, _ in pairs)
        job = Job(fleet="f", number=1, of=1, specs={"s": {}}, hosts=hosts, digest="j")
        options = work.Options(act="apply", run="friday", log_dir=tmp_path / "log")
        with pytest.raises(Killed):
            work.work(job, pairs, tmp_path / "r", options, Pulse(lambda _: None))
    return read(tmp_path / "r")


@pytest.mark.install
def test_an_apply_that_is_killed_keeps_the_results_of_hosts_that_had_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One with nothing to do, one that failed, one that was lost; not the one whose end nobody knows."""
    found = killed(
        tmp_path,
        monkeypatch,
        event("ok", "new1", "Write the state", changed=True),
        event("failed", "bad1", "Refuse", msg="this host is bad. Fix: none"),
        event("failed", "bad1", events.STAYS_FAILED, msg="the act failed"),
        event("unreachable", "lost1", "Write the state", msg="timed out"),
    )
    assert {name: one.state for name, one in found.items()} == {
        "same1": "unchanged",
        "bad1": "failed",
        "lost1": "unreachable",
    }
    assert found["same1"].green
    assert "this host is bad" in found["bad1"].message


@pytest.mark.install
def test_a_host_that_has_failed_a_task_may_still_be_tidied_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "bad1" not in killed(tmp_path, monkeypatch, event("failed", "bad1", "Refuse", msg="this host is bad"))


@pytest.mark.install  # it takes seconds
def test_results_that_cannot_be_written_end_no_apply_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full for a while: what it kept from being written is written at the end."""
    refused: list[str] = []

    def write(self: Results, one: HostResult, whole: Any = Results.write) -> None:
        if len(refused) < 2:
            refused.append(one.host)
            raise GpuprovError("the folder cannot take results: no space left")
        whole(self, one)

    monkeypatch.setattr(Results, "write", write)
    with applied.project(tmp_path) as state:
        for name in ("same1", "same2", "same3"):
            (state / name).write_text("as wanted\n")
        pairs = [applied.pair(name) for name in ("same1", "same2", "same3")]
        hosts = tuple(frozen._make_host(raw, "s") for raw, _ in pairs)
        job = Job(fleet="f", number=1, of=1, specs={"s": {}}, hosts=hosts, digest="j")
        options = work.Options(act="apply", run="friday", log_dir=tmp_path / "log")
        assert work.work(job, pairs, tmp_path / "r", options, Pulse(lambda _: None)) == 0
    assert (refused, sorted(read(tmp_path / "r"))) == (["same1", "same2"], ["same1", "same2", "same3"])


def row(host: str, status: str, check: str = "kernel.sysctl") -> Result:
    return Result(host=host, capability="kernel", check=check, status=status, fields=("sysctl",))  # type: ignore[arg-type]


@run_each(
    "statuses",
    [
        {"a": ["pass"], "b": ["pass", "skip"]},
        {"a": ["pass"], "b": ["skip"]},
        {"a": ["skip"]},
        {"a": ["pass"], "b": ["n/a"]},
        {"a": ["pass", "fail"], "b": ["pass"]},
        {"a": ["unreachable"], "b": ["pass"]},
        {"a": ["error"]},
    ],
)
def test_hosts_come_to_the_same_one_by_one_as_together(statuses: dict[str, list[str]]) -> None:
    told = outcome.Told(run="r", job="j", fleet="f", act="verify", started=TIME)
    tally, rows = Tally(), [row(host, one) for host, found in statuses.items() for one in found]
    for host, found in statuses.items():
        one = outcome.of_verify(told, host, [row(host, status) for status in found])
        tally.add(one.state, one.verdict, one.counts)
    whole: Verdict = verdict(rows)
    assert (tally.verdict, tally.exit_code) == (whole, exit_code(rows))


@run_each(
    ("states", "code"),
    [
        (["changed", "failed"], 3),
        (["unreachable", "blocked"], 3),
        (["changed", "unreachable", "locked"], 4),
        (["changed", "locked"], 5),
        (["locked", "not-started"], 5),
        (["changed", "not-started"], 3),
        (["changed", "unchanged"], 0),
        (["prepared"], 0),
    ],
)
def test_exit_codes_are_those_of_apply(states: list[str], code: int) -> None:
    tally = Tally()
    for state in states:
        tally.add(state, "matches" if state in ("changed", "unchanged") else "", {"pass": 1})
    assert tally.exit_code == code


def test_a_row_is_what_the_check_said() -> None:
    one = row("a", "fail")
    assert Row.of(one).result("a") == one


def test_that_a_roll_out_has_the_host_out_is_nothing_left_open() -> None:
    """Its engine gives it back after this; of another run nobody knows."""

    def out(run: str) -> Result:
        spec = HostSpec(name="a")
        note = Output(json.dumps({"by": "slurm", "run": run, "since": TIME}))
        found = in_service.run(Context(spec, House(), Facts({"drained": note})))
        return Result(host="a", capability="host", check=in_service.id, status=found.status, fix=found.fix)

    told = outcome.Told(run="fri", job="j", fleet="f", act="verify", started=TIME)
    good = Result(host="a", capability="nouveau", check="nouveau.running", fields=("modules",), status="pass")
    one = outcome.of_verify(told, "a", [good, out("fri")])
    assert (one.green, one.counts, one.unproven) == (True, {"pass": 1}, ())
    other = outcome.of_verify(told, "a", [good, out("long-fri")])
    assert [row.check for row in other.unproven] == ["host.in_service"]
