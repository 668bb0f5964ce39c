"""Settings that --prune puts back: what a plan shows of them, and what the host says before it is approved."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuprov.core.errors import UnreachableError
from gpuprov.facts.probes.base import Facts
from gpuprov.host_code.lasting import BOOT, DRIVER, Lasting, format_setting
from gpuprov.host_code.restore import act
from gpuprov.host_code.restore.kinds import ALREADY
from gpuprov.plan import as_text, page, settings_back
from gpuprov.plan.document import build_document
from gpuprov.plan.foresee import Foreseen
from gpuprov.plan.host_code import NO_PYTHON, HostAnswer, program, with_python
from gpuprov.plan.model import HOST, HostPlan, Item
from gpuprov.plan.read import Reading
from gpuprov.plan.settings_back import Answer, compare_settings, find_moved
from gpuprov.rules.reach import BESIDE, PLATFORM
from gpuprov.spec.model import RawHost
from gpuprov.verify.unmanaged import Unmanaged, changes_of, is_same
from tests.here import program as program_of

REBOOT = "the ECC mode of GPU 0 changes at a boot"
SYSCTL = Lasting("kernel.sysctl", "", "vm.swappiness", "1", "60", BOOT)
CPUS = [Lasting("kernel.governor", f"policy{n}", "governor", "performance", "powersave", BOOT) for n in (0, 1)]
ECC = Lasting("gpu_settings.ecc", "GPU 0", "GPU 0: ECC mode", "enabled", "disabled", DRIVER)
LINES = [*map(format_setting, (SYSCTL, *CPUS, ECC))]
LEFT = tuple(
    Unmanaged(capability=capability, kind="setting", name=name, value=value, before=before, reboot=reboot)
    for capability, (name, value, before), reboot in (
        ("kernel", SYSCTL.words, ""),
        ("kernel", CPUS[0].words, ""),
        ("gpu_settings", ECC.words, REBOOT),
    )
)
PLAN = HostPlan(
    host="gpu1",
    run={HOST: "no longer asked for: 4 settings"},
    changes=tuple(Item.of(HOST, change) for change in changes_of(LEFT)),
    reboot=True,
    reboot_reasons=(REBOOT,),
    unmanaged=LEFT,
)
FORESEEN = {"gpu1": (RawHost(name="gpu1"), Foreseen(prune={"settings": LINES}))}


@pytest.fixture(name="asked")
def fixture_asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the host was asked; `answers` are its answers."""
    asked: dict[str, Any] = {"answers": {}}

    def run(_module: object, requests: Any, *_answers: object, **_more: object) -> Any:
        asked["requests"] = {name: request for name, (_, request) in requests.items()}
        return asked["answers"]

    monkeypatch.setattr(settings_back, "run_on_hosts", run)
    return asked


def compared(asked: dict[str, Any], plan: HostPlan = PLAN, answer: HostAnswer[Answer] | None = None) -> HostPlan:
    asked["answers"] = {"gpu1": answer} if answer else {}
    (found,) = compare_settings([plan], FORESEEN, limit=9)
    return found


def test_a_plan_shows_each_setting_and_the_value_it_gets_again(asked: dict[str, Any]) -> None:
    plan = compared(asked, answer=HostAnswer(Answer()))
    assert (plan, asked["requests"]) == (PLAN, {"gpu1": {"settings": LINES}})
    text = as_text([plan], width=0)
    assert "vm.swappiness: 1 -> 60" in text
    assert "governor: performance -> powersave" in text
    assert f"reboot: yes, but it needs permission (reboot: if-needed, or apply --reboot): {REBOOT}" in text
    assert "3 settings" in text.splitlines()[-1]
    drawn = page.render([plan])
    assert "vm.swappiness" in drawn
    (host,) = build_document([plan]).hosts
    assert [(one.name, one.before, one.after) for one in host.settings] == [one.words for one in (SYSCTL, CPUS[0], ECC)]
    unpruned = msgspec.structs.replace(PLAN, run={}, changes=(), reboot=False, reboot_reasons=())
    assert "kernel: vm.swappiness = 1 (before: 60), governor = performance (before: powersave)" in as_text([unpruned])


def test_what_others_changed_since_stays_with_the_reason(asked: dict[str, Any]) -> None:
    changed = "changed by others since it was applied: it is 10"
    stays = {LINES[0]: changed, LINES[1]: changed, LINES[3]: ALREADY}
    plan = compared(asked, answer=HostAnswer(Answer(stays)))
    assert [one.stays for one in plan.unmanaged] == [changed, "", ALREADY], "one of two policies is put back"
    assert [one.name for one in plan.changes] == ["governor"]
    assert (plan.reboot, plan.reboot_reasons) == (False, ())
    assert f"kernel: vm.swappiness = 1 (before: 60) ({changed})" in as_text([plan])
    assert is_same(plan.unmanaged, LEFT), "the receipt has the same"


CHANGED = "changed by others since it was applied: it is 10"


@pytest.mark.parametrize(
    ("approved", "answer", "moved"),
    [
        ({}, HostAnswer(Answer()), []),
        ({LINES[0]: CHANGED}, HostAnswer(Answer({LINES[0]: CHANGED})), []),
        (
            {},
            HostAnswer(Answer({LINES[0]: CHANGED})),
            [f"vm.swappiness: the plan puts back 60; now apply leaves it ({CHANGED})"],
        ),
        (
            {LINES[3]: ALREADY},
            HostAnswer(Answer()),
            [f"GPU 0: ECC mode: the plan leaves it ({ALREADY}); now apply puts back disabled"],
        ),
        ({}, HostAnswer(problem="no python3"), ["settings that would be put back: no python3"]),
    ],
)
def test_a_saved_plan_is_compared_with_the_settings_of_now(
    approved: dict[str, str], answer: HostAnswer[Answer], moved: list[str], asked: dict[str, Any]
) -> None:
    plan = compared(asked, answer=HostAnswer(Answer(approved)))
    asked["answers"] = {"gpu1": answer}
    raw, foreseen = FORESEEN["gpu1"]
    readings = {"gpu1": Reading(Facts({}), (), foreseen=msgspec.structs.replace(foreseen, unmanaged=LEFT))}
    assert find_moved({"gpu1": raw}, 9, [plan], readings) == ({"gpu1": moved} if moved else {})


def test_an_unanswered_question_is_no_change_where_the_plan_says_so(asked: dict[str, Any]) -> None:
    plan = compared(asked, answer=HostAnswer(problem="no python3"))
    raw, foreseen = FORESEEN["gpu1"]
    readings = {"gpu1": Reading(Facts({}), (), foreseen=msgspec.structs.replace(foreseen, unmanaged=LEFT))}
    assert find_moved({"gpu1": raw}, 9, [plan], readings) == {}
    assert find_moved({}, 9, [plan], readings) == {}


@pytest.mark.parametrize("lost", [True, False])
def test_a_host_that_was_not_read_is_not_asked(asked: dict[str, Any], lost: bool) -> None:
    plan = compared(asked, answer=HostAnswer(Answer()))
    del asked["requests"]
    raw, foreseen = FORESEEN["gpu1"]
    gone = Reading(Facts({}), (), lost=UnreachableError("gone"), foreseen=foreseen)
    assert find_moved({"gpu1": raw}, 9, [plan], {"gpu1": gone} if lost else {}) == {}
    assert "requests" not in asked


def test_without_an_answer_the_plan_says_so(asked: dict[str, Any]) -> None:
    plan = compared(asked, answer=HostAnswer(problem="no python3"))
    assert (plan.changes, plan.unpredicted) == (PLAN.changes, ("settings that would be put back: no python3",))


@pytest.mark.parametrize("more", [{"run": {"kernel": "x"}}, {"host": "gpu2"}])
def test_a_host_that_puts_nothing_back_is_not_asked(asked: dict[str, Any], more: dict[str, Any]) -> None:
    plan = msgspec.structs.replace(PLAN, **more)
    assert compared(asked, plan) == plan
    assert "requests" not in asked


def test_a_host_without_a_new_python_says_so(tmp_path: Path) -> None:
    """As EL 7 and EL 8, whose own is 2.7 and 3.6."""
    program_of(tmp_path, "python3", "exit 1\n")
    command = with_python("print(1)", {}).replace(BESIDE, "").replace(PLATFORM, "")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (127, "", NO_PYTHON)


@pytest.mark.install
def test_the_program_that_a_host_is_sent_answers() -> None:
    missing = format_setting(Lasting("kernel.sysctl", "", "vm.no_such_name", "1", "60", BOOT))
    command = with_python(program(act.__name__), {"settings": [missing]})
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert msgspec.json.decode(done.stdout, type=Answer).stays == {missing: "it cannot be read: the host has none"}
