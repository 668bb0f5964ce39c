"""What a host answers to what is foreseen, in its plan."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuprov import plan as planning
from gpuprov.host_code import repository_key, sources
from gpuprov.plan import exact
from gpuprov.plan.exact import Answer, Source, SourceFile, Transaction, with_answer
from gpuprov.plan.foresee import Foreseen, Keys, Text, request, with_keys
from gpuprov.plan.host_code import HostAnswer
from gpuprov.plan.model import HostPlan, Item
from gpuprov.resources import Difference, Packages
from gpuprov.spec.model import RawHost
from gpuprov.verify.evaluate import Result
from tests.rows import run_each

RUN = {"nvidia_driver": "fails: packages"}
DRIVER = Packages(of="580.1", install=("nvidia-driver=580.1-1",), is_driver=True)
PLAN = HostPlan(host="gpu1", run=RUN)


def answered(*rows: str, plan: HostPlan = PLAN, refused: str = "", other: bool = False, **more: Any) -> HostPlan:
    """A plan of one transaction, to which the host answers this."""
    trial = Transaction(rows, refused, other)
    foreseen = Foreseen(packages={"nvidia_driver": (DRIVER,)}, moves=more.pop("moves", {}))
    return with_answer(plan, foreseen, Answer(transactions=(trial,), **more))


def test_packages_are_what_the_package_manager_would_move() -> None:
    """With what comes along, and in the place of what the checks know of the same capability."""
    told = Item(kind="package", name="nvidia-driver", before="535.1-1", after="newest")
    other = Item(kind="package", name="datacenter-gpu-manager", after="4.1")
    plan = answered(
        *("Inst nvidia-driver 580.1-1", "Inst libnvidia-cfg1:i386 580.1-1", "Remv nvidia-legacy", "hold nvidia-driver"),
        "complete 580.1",
        plan=msgspec.structs.replace(PLAN, changes=(told, other)),
        moves={"nvidia_driver": frozenset((told,))},
        installed={"nvidia-driver": "535.1-1", "nvidia-legacy": "340.1"},
    )
    assert [(one.name, one.before, one.after) for one in plan.section("package")] == [
        ("complete 580.1", "", ""),
        ("libnvidia-cfg1:i386", "", "580.1-1"),
        ("nvidia-driver", "535.1-1", "580.1-1"),
        ("nvidia-legacy", "340.1", "removed"),
        ("datacenter-gpu-manager", "", "4.1"),
    ]
    assert [(one.name, one.after) for one in plan.section("hold")] == [("nvidia-driver", "held")]


def test_what_the_package_manager_refuses_blocks_the_host_where_its_versions_are_known() -> None:
    refused = "apt cannot install 580.1: held. Fix: release it"
    plan = msgspec.structs.replace(PLAN, versions={"nvidia_driver": "580.1"})
    found = answered(plan=plan, refused=refused)
    assert found.unpredicted == ()
    told = planning.as_text([found], width=200)
    assert "gpu1: blocked by nvidia_driver.resolvable: apt cannot install 580.1: held." in told
    assert "  fix: release it\n" in told
    assert told.endswith("1 host: 1 blocked by nvidia_driver.resolvable; nothing was changed")
    assert planning.build_document([found]).exit_code == 1
    # Where no version was found in the host's own lists, the source is still to come.
    later = answered(refused=refused)
    assert (later.blocked, later.unpredicted) == ((), (f"nvidia_driver: {refused}",))


def test_packages_of_another_driver_block_a_host_whatever_its_preflight_knows() -> None:
    """persistence names no version beforehand, and the packages that would come are in the answer."""
    told = (
        "the host's driver is of NVIDIA's runfile (x), and with y apt would install packages of another, "
        "libcuda1 1. Fix: leave it"
    )
    foreseen = Foreseen(packages={"persistence": (Packages(of="nvidia-persistenced", judge=True),)})
    found = with_answer(PLAN, foreseen, Answer(transactions=(Transaction((), told, True),))).blocked
    assert [(one.check, one.fix) for one in found] == [("persistence.offered", "leave it")]
    assert "packages of another, libcuda1 1" in found[0].found


def test_a_host_whose_package_manager_gives_no_answer_keeps_what_its_checks_tell() -> None:
    told = Item(kind="package", name="nvidia-driver", after="580.1-1")
    foreseen = Foreseen(packages={"nvidia_driver": (DRIVER,)}, moves={"nvidia_driver": frozenset((told,))})
    plan = with_answer(msgspec.structs.replace(PLAN, changes=(told,)), foreseen, Answer(problem="dpkg is broken"))
    assert plan.changes == (told,)
    assert plan.unpredicted == ("what the host's package manager would do: dpkg is broken",)
    assert "    what the host's package manager would do: dpkg is broken" in planning.as_text([plan], width=0)


def test_files_are_told_with_the_differences_of_their_texts() -> None:
    texts = (
        Text("/etc/new.conf", "a\nb\n", "absent"),
        Text("/etc/old.conf", "a\nc\n", "another text"),
        Text("/etc/same.sources", "x\n", ""),
        Text("/etc/long.conf", "a\n", "another text"),
    )
    program = Difference("/usr/local/lib/gpuprov/mig/act.py", "absent")
    files: dict[str, tuple[Difference, ...]] = {"kernel": (program,)}
    source = Source("", (SourceFile("/etc/apt/sources.list.d/gpuprov-nvidia.sources", "", "Types: deb\n"),))
    plan = with_answer(
        PLAN,
        Foreseen(texts={"kernel": texts}, files=files, sources={"nvidia_driver": {"url": "https://mirror.example"}}),
        Answer(texts={"/etc/old.conf": "a\nb\n", "/etc/same.sources": "x\n"}, sources=(source,)),
    )
    assert [(one.name, one.before, one.diff.splitlines()[3:]) for one in plan.diffs] == [
        ("/etc/new.conf", "absent", ["+a", "+b"]),
        ("/etc/old.conf", "", [" a", "-b", "+c"]),
        ("/etc/long.conf", "another text", []),
        ("/etc/apt/sources.list.d/gpuprov-nvidia.sources", "absent", ["+Types: deb"]),
    ]
    assert [(one.name, one.before) for one in plan.section("file")] == [(program.path, "absent")]
    assert "4 files" not in planning.as_text([plan])
    assert "5 files" in planning.as_text([plan])


def test_a_source_that_the_host_cannot_use_is_told() -> None:
    foreseen = Foreseen(sources={"nvidia_driver": {"url": "https://mirror.example"}})
    plan = with_answer(PLAN, foreseen, Answer(sources=(Source("this host cannot use it. Fix: the URL", ()),)))
    assert plan.unpredicted == ("nvidia_driver: this host cannot use it. Fix: the URL",)


def test_a_host_where_nothing_is_left_to_ask_is_not_asked() -> None:
    assert request(Foreseen(unknown={"mig": "NVML lists no GPU"})) == {}
    assert with_answer(PLAN, Foreseen(unknown={"mig": "NVML lists no GPU"}), Answer()).unpredicted == (
        "mig: NVML lists no GPU",
    )


def test_a_blocked_host_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two names of one machine are found when all hosts are read; what was foreseen of the second is void."""
    asked: list[str] = []

    def run(_module: Any, requests: Any, _form: Any, **_options: Any) -> dict[str, HostAnswer[Answer]]:
        asked.extend(requests)
        return {name: HostAnswer(Answer(transactions=(Transaction(("Inst a 1",), "", False),))) for name in requests}

    monkeypatch.setattr(exact, "run_on_hosts", run)
    foreseen = Foreseen(packages={"nvidia_driver": (DRIVER,)})
    second = HostPlan(
        host="gpu2", blocked=(Result(host="gpu2", capability="host", check="host.machine", status="fail"),)
    )
    raws = {name: (RawHost(name=name), foreseen) for name in ("gpu1", "gpu2")}
    plans = exact.complete([PLAN, second], raws, limit=1)
    assert (asked, plans[1]) == (["gpu1"], second)
    assert [one.name for one in plans[0].changes] == ["a"]


def test_the_driver_is_not_guarded_against_itself() -> None:
    """Packages of others are judged by the driver that this run brings."""
    beside = Packages(of="DCGM", install=("datacenter-gpu-manager-4-core",))
    asked = request(
        Foreseen(packages={"nvidia_driver": (DRIVER,), "dcgm": (beside,)}, driver={"names": {"debian": {}}})
    )
    assert [one["driver"] for one in asked["transactions"]] == [{}, {"names": {"debian": {}}}]


@run_each("told", ['{"transactions": [{}]}', '{"texts": {"/etc/x": 5}}', "[]", '{"problem": 1}'])
def test_an_answer_of_another_form_is_none(told: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(told, type=Answer)


@run_each("row", ["", " ", "Inst", "hold", "Remv ", "x y z", "Inst \x1b[2J \u202e"])
def test_rows_of_any_form_break_no_plan(row: str) -> None:
    assert planning.as_text([answered(row, "Inst nvidia-smi 580.1-1")], width=0).count("nvidia-smi") == 1


def test_a_text_that_no_host_should_send_is_not_compared() -> None:
    texts = (Text("/etc/old.conf", "a\n", "another text"),)
    told = Answer(texts={"/etc/old.conf": "b\n" * 1_000_000})
    (change,) = with_answer(PLAN, Foreseen(texts={"kernel": texts}), told).diffs
    assert (change.before, change.diff) == ("another text", "")


def test_a_key_is_asked_for_once_for_all_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that says nothing holds each question up for half a minute."""
    tried: list[str] = []

    def fail(url: str) -> bytes:
        tried.append(url)
        raise OSError("no answer")

    monkeypatch.setattr(repository_key, "fetch_over_https", fail)
    block: sources.Source = {
        "of": "the site",
        "url": "https://mirror.example",
        "key_url": "https://mirror.example/k",
        "fingerprint": "AB" * 20,
    }
    keys: Keys = {}
    found = [with_keys(Foreseen(sources={"nvidia_driver": block}), keys) for _ in range(3)]
    assert tried == ["https://mirror.example/k"]
    assert {one.unknown["nvidia_driver"][:40] for one in found} == {"the site: this machine could not fetch t"}
    assert [request(one) for one in found] == [{}, {}, {}]


def test_the_order_of_a_package_manager_changes_no_plan() -> None:
    """apt lists the packages of one transaction in an order that differs from run to run."""
    rows = ["Inst libcuda1 535.1-1", "hold libcuda1", "Inst nvidia-smi 535.1-1", "Remv glx-diversions"]
    assert answered(*rows) == answered(*reversed(rows))
