"""Events captured from real runs (ansible-core 2.19, ansible-runner 2.4), of two local hosts and one that is down."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuprov.apply.model import ApplyRun, HostOutcome
from gpuprov.apply.outcome import judge
from gpuprov.apply.text import as_text
from gpuprov.core import ended
from gpuprov.host_code.locked import BOOTED, LOST
from gpuprov.plan.bounds import SPENT
from gpuprov.plan.events import (
    AND_MORE,
    GIVING_UP,
    LONGEST,
    MOST_WARNINGS,
    REFUSING,
    STAYS_FAILED,
    Failure,
    Ledger,
    Step,
    condense,
)
from gpuprov.plan.playbook import Answer, Ended, Event
from tests.here import ROLES, play
from tests.rows import run_each


def captured(name: str) -> list[Event]:
    lines = (Path(__file__).parent / f"events_{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def fed(name: str) -> tuple[Ledger, list[Step]]:
    ledger = Ledger()
    steps = [step for event in captured(name) if (step := ledger.feed(event))]
    return ledger, steps


def test_a_rescued_failure_is_not_the_one_that_is_told() -> None:
    ledger, _ = fed("apply")
    assert ledger.hosts["a"].failure == Failure("demo", "Loop", "bad thing 7 (exit status 7)")
    assert ledger.hosts["b"].failure == Failure("demo", "Run a command", "oh no (exit status 3)")
    assert ledger.hosts["b"].changed == ["demo: Write a file"]


def failed(*steps: tuple[str, str], rescued: int) -> Ledger:
    """A host after tasks that failed (with a message) or began (without one), in order."""
    ledger = Ledger()
    for task, message in steps:
        data: Any = {"host": "a", "task": task, "role": task.partition(" : ")[0] if " : " in task else ""}
        kind = "runner_on_failed" if message else "runner_on_start"
        ledger.feed({"event": kind, "event_data": data | {"res": {"msg": message, "failed": True}}})
    stats: Any = {"processed": {"a": 1}, "failures": {"a": 1}, "rescued": {"a": rescued}}
    ledger.feed({"event": "playbook_on_stats", "event_data": stats})
    return ledger


def test_an_act_that_is_given_up_fails_for_its_own_reason() -> None:
    """failed.yml of role host is a rescue that fails again; whatever goes wrong in it is not why."""
    broke, gave_up, stays = ("dcgm : Install", "no room"), (GIVING_UP, ""), (STAYS_FAILED, "no room")
    lock, borne, words = (
        ("host : Release", "gone"),
        ("mig : Try", "busy"),
        ("mig : Give the reason", "busy; not started: x"),
    )
    rows = (
        ((broke, gave_up, stays), 1, "dcgm: Install: no room"),
        ((broke, gave_up, lock), 1, "dcgm: Install: no room"),
        ((borne, broke, gave_up, stays), 2, "dcgm: Install: no room"),
        ((borne, words, gave_up, stays), 2, "mig: Give the reason: busy; not started: x"),
    )
    for steps, rescued, told in rows:
        assert str(failed(*steps, rescued=rescued).hosts["a"].failure) == told


@pytest.mark.install
def test_a_host_whose_act_failed_stays_failed_and_its_neighbour_goes_on(tmp_path: Path) -> None:
    shutil.copytree(ROLES.parent / "playbooks" / "acts", tmp_path / "acts")
    act = next(
        task
        for task in yaml.safe_load((ROLES.parent / "playbooks" / "site.yml").read_text())[1]["tasks"]
        if "rescue" in task
    )
    broken = {"name": "Break", "ansible.builtin.command": "{{ 'false' if inventory_hostname == 'gpu1' else 'true' }}"}
    first = {"vars": {"gpuprov_act": 1}, "tasks": [{"block": [broken], "rescue": act["rescue"]}]}
    after = {"tasks": [{"name": "Next act", "ansible.builtin.debug": {"msg": "{{ inventory_hostname }} goes on"}}]}
    done = play(tmp_path, first, after, inventory="gpu1,gpu2,")
    recap = [line.split() for line in done.stdout.partition("RECAP")[2].splitlines() if line.startswith("gpu")]
    assert done.returncode == 2, done.stdout + done.stderr
    assert [(line[0], line[5]) for line in recap] == [("gpu1", "failed=1"), ("gpu2", "failed=0")]
    assert "gpu2 goes on" in done.stdout
    assert "gpu1 goes on" not in done.stdout
    ran = re.findall(r"^TASK \[(.*)\]", done.stdout.partition("TASK [Break]")[2], re.MULTILINE)
    assert (ran[1], ran[-2:]) == (f"host : {GIVING_UP}", [f"host : {STAYS_FAILED}", "Next act"]), (
        "by these names a ledger knows them"
    )
    assert "TASK [host : Release the lock of this host]" in done.stdout


@pytest.mark.install
def test_an_act_that_cannot_be_undone_gives_the_lock_back_too(tmp_path: Path) -> None:
    """The services are not to be started: gpuprov_services is not a list."""
    shutil.copytree(ROLES.parent / "playbooks" / "acts", tmp_path / "acts")
    site = yaml.safe_load((ROLES.parent / "playbooks" / "site.yml").read_text(encoding="utf-8"))
    act = next(task for task in site[2]["tasks"] if "rescue" in task)
    broken = {"name": "Break", "ansible.builtin.command": "false"}
    given = {"gpuprov_act": 2, "gpuprov_services": "{{ nothing_of_that_name }}"}
    done = play(tmp_path, {"vars": given, "tasks": [{"block": [broken], "rescue": act["rescue"]}]})
    assert done.returncode == 2, done.stdout
    assert "nothing_of_that_name" in done.stdout + done.stderr
    assert "TASK [host : Release the lock of this host]" in done.stdout
    assert "rescued=1" in done.stdout, "by which the first failure is found"


def test_an_unreachable_host_says_why_in_one_line() -> None:
    ledger, steps = fed("apply")
    told = "Failed to connect to the host via ssh: ssh: connect to host 127.0.0.1 port 1: Connection refused"
    assert ledger.hosts["c"].unreachable == told
    assert Step("unreachable", "c", told) in steps
    assert ledger.hosts["c"].failure is None


def test_what_a_module_warns_of_is_told_once_also_where_the_task_fails() -> None:
    """As ansible-runner hands it on: texts in the result, a loop's together; other modules' are Ansible's business."""
    ledger = Ledger()
    for kind, action, told in (
        ("runner_on_ok", "gpuprov_first_boot", ["the next boot\nis not counted"]),
        ("runner_on_ok", "gpuprov_command", ["the next boot is not counted", "tolerated"]),
        ("runner_on_failed", "gpuprov_packages", ["a key expires"]),
        ("runner_on_ok", "ansible.builtin.command", ["found a newer Python"]),
    ):
        data: Any = {
            "host": "a",
            "task": "Do",
            "task_action": action,
            "res": {"warnings": told, "msg": "", "changed": False},
        }
        ledger.feed({"event": kind, "event_data": data})
    told = ["the next boot is not counted", "tolerated", "a key expires"]
    assert ledger.hosts["a"].warnings == told
    outcome = HostOutcome(host="a", warnings=["from the run that is rolled back"])
    judge(outcome, ledger, Ended("ended", 2))
    assert outcome.warnings == ["from the run that is rolled back", *told]
    text = as_text(ApplyRun(run="r", hosts=[outcome]))
    assert "  warning: the next boot is not counted\n" in text, text


def test_what_a_module_made_is_kept_with_its_capability() -> None:
    ledger = Ledger()
    for role, action, result in (
        ("dcgm", "gpuprov_packages", {"changed": True, "changes": ["Inst datacenter-gpu-manager-4-core 1:4.5.3-1"]}),
        ("host", "gpuprov_files", {"changed": True, "paths": ["/etc/gpuprov/mps.json"], "units": []}),
        ("dcgm", "gpuprov_files", {"changed": False, "paths": [], "units": []}),
        ("dcgm", "ansible.builtin.copy", {"changed": True, "paths": ["/etc/x"]}),
    ):
        data: Any = {"host": "a", "role": role, "task": f"{role} : Do", "task_action": action, "res": result}
        ledger.feed({"event": "runner_on_ok", "event_data": data})
    outcome = HostOutcome(host="a")
    judge(outcome, ledger, Ended("ended", 0))
    assert [(one.capability, one.kind, one.name, one.after) for one in outcome.made] == [
        ("dcgm", "package", "datacenter-gpu-manager-4-core", "1:4.5.3-1"),
        ("host", "file", "/etc/gpuprov/mps.json", "matches the spec"),
    ]


def test_a_host_that_warns_without_end_is_told_in_few_lines() -> None:
    ledger = Ledger()
    data: Any = {
        "host": "a",
        "task": "Do",
        "task_action": "gpuprov_command",
        "res": {"warnings": [f"{n}" for n in range(50_000)]},
    }
    for _ in range(3):
        ledger.feed({"event": "runner_on_ok", "event_data": data})
    assert ledger.hosts["a"].warnings == [*map(str, range(MOST_WARNINGS)), AND_MORE]


def test_a_host_that_is_lost_is_told_with_act_and_task() -> None:
    ledger, _ = fed("apply")
    assert ledger.hosts["c"].lost == "act 1, demo: Write a file"


def test_a_host_that_does_not_come_back_from_its_reboot_failed_there() -> None:
    ledger = Ledger()
    for kind, task, module in (
        ("runner_on_failed", "Reboot the host", "ansible.builtin.reboot"),
        ("runner_on_start", GIVING_UP, "ansible.builtin.set_fact"),
        ("runner_on_failed", "Start again what was stopped", "gpuprov_clients"),
        ("runner_on_unreachable", "Release the lock", "gpuprov_lock"),
    ):
        data: Any = {"host": "a", "task": task, "task_action": module, "res": {"msg": f"{task}: no", "failed": True}}
        ledger.feed({"event": kind, "event_data": data})
    cause = ledger.hosts["a"].given_up_for
    assert cause == Failure("", "Reboot the host", "Reboot the host: no", reboot=True)


def test_a_task_whose_time_is_over_is_told_whatever_fails_after_it() -> None:
    """As ansible-core 2.19 reports it: of a task, and of an item of a loop."""
    late = {"msg": "Task failed: Timed out after 3 second(s).", "timedout": {"frame": "", "period": 3}, "failed": True}
    for result in (late, {"msg": "One or more items failed", "failed": True, "results": [{"rc": 0}, late]}):
        ledger = Ledger(7200)
        ledger.feed({"event": "playbook_on_play_start", "event_data": {"play": "Act 2, install"}})
        for task, told in (
            ("kernel : Rebuild", result),
            ("host : Give the reason", {"msg": "Timed out", "failed": True}),
        ):
            data: Any = {"host": "gpu1", "task": task, "role": task.partition(" ")[0], "res": told}
            ledger.feed({"event": "runner_on_failed", "event_data": data})
        found = ledger.hosts["gpu1"].timed_out
        assert found is not None
        assert str(found) == (
            "kernel: Rebuild: did not end: act 2 may take 7200 s on a host (--timeout), and they are over"
        )
        ledger.feed({"event": "playbook_on_stats", "event_data": {"processed": {"gpu1": 1}, "failures": {}}})
        assert ledger.hosts["gpu1"].timed_out is None, "it was borne"


def test_the_steps_are_acts_and_tasks_with_their_capability() -> None:
    _, steps = fed("apply")
    assert steps[0] == Step("act", "", "Act 1, test")
    assert Step("start", "a", "demo: Write a file") in steps
    assert Step("changed", "a", "demo: Write a file") in steps
    assert Step("failed", "b", "demo: Run a command") in steps, "why it failed is told once, in the result of the run"


def test_a_hidden_result_stays_hidden() -> None:
    ledger, _ = fed("check")
    assert ledger.hosts["a"].failure == Failure(
        "demo", "Hidden", "failed; its output is hidden, because it may hold secrets (no_log)"
    )


def test_a_failure_of_the_lock_is_told_apart() -> None:
    ledger = Ledger()
    data: Any = {"host": "a", "role": "host", "task": "host : Refuse", "task_action": "gpuprov_lock"}
    ledger.feed(
        {"event": "runner_on_failed", "event_data": data | {"res": {"msg": "a is locked by b", "gpuprov_locked": True}}}
    )
    assert ledger.hosts["a"].failure == Failure("", "Refuse", "a is locked by b", locked=True)


def test_what_ansible_says_of_no_host_is_kept() -> None:
    ledger = Ledger()
    ledger.feed({"event": "verbose", "stdout": "[ERROR]: A playbook must be a list of plays.\r\nOrigin: x"})
    assert ledger.complaint == "A playbook must be a list of plays. Origin: x"


@run_each(
    ("result", "line"),
    [
        ({"msg": "Task failed: Module failed: no such package"}, "no such package"),
        ({"msg": "non-zero return code", "rc": 100, "stderr": "E: one\nE: two\n"}, "E: two (exit status 100)"),
        ({"msg": "non-zero return code", "rc": 1, "stderr": "", "stdout": "only here"}, "only here (exit status 1)"),
        ({"msg": "non-zero return code", "rc": 1}, "exit status 1"),
        (
            {"msg": "MODULE FAILURE\nSee stdout", "module_stderr": "Traceback\nKeyError: 'x'"},
            "KeyError: 'x' (MODULE FAILURE\nSee stdout)",
        ),
        (
            {
                "msg": "Module result deserialization failed: No start of json char found",
                "module_stdout": "",
                "rc": 137,
            },
            'its program on the host was killed (SIGKILL): for want of memory ("journalctl -k" tells), or by '
            "somebody there",
        ),
        (
            {"msg": "MODULE FAILURE\nSee stdout", "module_stdout": "", "rc": -9},
            "ssh was ended by SIGKILL, on this machine: what it did there is not known",
        ),
        (
            {
                "msg": "Module result deserialization failed: x",
                "module_stdout": 'y\n{\x01z\n{"changed": true}\n',
                "rc": 0,
            },
            ended.NOISE,
        ),
        (
            {"msg": "Module result deserialization failed: x", "module_stdout": "", "rc": 255},
            "the connection was cut: what it did there is not known",
        ),
        (
            {
                "msg": "Task failed: Module failed: Module result deserialization failed: x",
                "module_stdout": "",
                "module_stderr": "Shared connection to 192.0.2.1 closed.\r\n",
                "rc": 255,
            },
            "the connection was cut: what it did there is not known",
        ),
        ({"msg": "non-zero return code", "rc": -15}, "its program on the host was ended by SIGTERM"),
        ({"msg": "non-zero return code", "rc": 143}, "its program on the host was ended by SIGTERM"),
        ({"msg": "non-zero return code", "rc": 255, "stderr": "lost"}, "lost (exit status 255)"),
        (
            {"msg": "Module result deserialization failed: x", "module_stderr": "Killed\n", "rc": 9},
            "Killed (exit status 9)",
        ),
        ({"msg": ["a", "b"]}, '["a","b"]'),
        ({"msg": "two\n  lines"}, "two lines"),
        ({}, "failed without a message"),
        (
            {
                "results": [{"msg": "fine"}, {"failed": True, "msg": "Action failed: bad"}],
                "msg": "One or more items failed",
            },
            "bad",
        ),
        ({"msg": "x" * 900}, "x" * (LONGEST - 4) + " ..."),
        (
            {
                "unreachable": True,
                "msg": "Failed to connect to the host via ssh: Traceback (most recent call last):\n"
                '  File "<stdin>", line 266, in <module>\n  import tempfile\n'
                "OSError: [Errno 5] Input/output error: '/usr/lib/python3.11'\n"
                "Shared connection to 10.0.0.7 closed.\n",
            },
            "OSError: [Errno 5] Input/output error: '/usr/lib/python3.11'",
        ),
        (
            {"msg": "Task failed: Missing sudo password"},
            "sudo had no password: none is set (ansible_become_password), or its shell there was ended as it asked",
        ),
        ({"msg": "Task failed."}, SPENT),
    ],
)
def test_a_failed_result_becomes_one_line(result: Answer, line: str) -> None:
    assert condense(result) == " ".join(line.split())


def test_bytes_that_are_no_text_do_not_end_the_report() -> None:
    told = condense({"msg": "non-zero return code", "rc": 1, "stderr": "Willkommen auf \udcc4pfel"})
    assert told == "Willkommen auf ?pfel (exit status 1)"
    told.encode()


def test_a_long_message_keeps_its_fix() -> None:
    data: Any = {"host": "gpu1", "task": "nvidia_driver : Try it", "role": "nvidia_driver",
                 "task_action": "gpuprov_packages",
            "res": {"msg": f"apt cannot install {'x ' * 1000}. Fix: release what is held"}}  # fmt: skip
    ledger = Ledger()
    ledger.feed({"event": "runner_on_failed", "event_data": data})
    (failure,) = ledger.hosts["gpu1"].failures
    assert failure.message.endswith(" ... Fix: release what is held")
    assert failure.message.startswith("apt cannot install x x")
    assert len(failure.message) <= 700


@run_each(
    ("said", "told"),
    [
        ("", "the connection was cut: ssh, its sshd or its shell there was ended"),
        ("ssh: connect to host a port 22: Connection timed out\r\n",
         "ssh: connect to host a port 22: Connection timed out"),
    ],
)  # fmt: skip
def test_a_question_that_was_cut_off_is_told_in_the_words_of_ssh(said: str, told: str) -> None:
    """Ansible's own words, as a killed shell of the host brings them about."""
    message = f'Data could not be sent to remote host "10.88.0.7". Make sure this host can be reached over ssh: {said}'
    ledger = Ledger()
    data: Any = {"host": "a", "task": "Reach the host", "res": {"msg": message, "unreachable": True}}
    ledger.feed({"event": "runner_on_unreachable", "event_data": data})
    assert ledger.hosts["a"].unreachable == told


def test_a_connection_that_only_closed_is_told_as_cut() -> None:
    """What ssh says where the shell was killed by which the host is reached."""
    said = "Task failed: Failed to connect to the host via ssh: Shared connection to 10.88.216.80 closed."
    ledger = Ledger()
    data: Any = {"host": "a", "task": "Reach the host", "res": {"msg": said, "unreachable": True}}
    ledger.feed({"event": "runner_on_unreachable", "event_data": data})
    assert ledger.hosts["a"].unreachable == "the connection was cut: ssh, its sshd or its shell there was ended"


def refuse(ledger: Ledger, action: str, message: str) -> None:
    data: Any = {
        "host": "a",
        "role": "kernel",
        "task": f"kernel : {action}",
        "task_action": action,
        "res": {"msg": message},
    }
    ledger.feed({"event": "runner_on_failed", "event_data": data})


def test_a_run_that_lost_the_host_says_so_whatever_module_was_refused_and_whatever_fails_after_it() -> None:
    said = f"this run was taken over by kim on ops2 at 2026-11-23T18:45:02Z. {LOST}. Fix: let the other run end"
    wrapped = f'Reboot command failed. Error was: \'{{"failed": true, "msg": "{said}"}}, \''
    for action, message in (("ansible.builtin.copy", said), ("ansible.builtin.reboot", wrapped)):
        ledger = Ledger()
        refuse(ledger, "ansible.builtin.command", "a role's own rescue takes care of this")
        refuse(ledger, action, message)
        refuse(ledger, "gpuprov_clients", said)
        failure = ledger.hosts["a"].failure
        assert failure == Failure("kernel", action, said, locked=True, lost=True)
        outcome = HostOutcome(host="a")
        judge(outcome, ledger, Ended("ended", 2))
        assert (outcome.state, outcome.message) == ("locked", said)


def test_a_host_that_somebody_else_has_rebooted_is_failed_and_its_lock_to_be_given_back() -> None:
    """What fails after it is refused for the same reason, the release of the lock too."""
    said = f"the host {BOOTED}. {LOST}. Fix: see who rebooted it (last -x, journalctl --list-boots), then apply again"
    ledger = failed(("kernel : Configure", said), ("Release the lock of this host", said), rescued=0)
    outcome = HostOutcome(host="a")
    judge(outcome, ledger, Ended("ended", 2))
    assert (outcome.state, outcome.task, outcome.message) == ("failed", "kernel: Configure", said)
    assert ledger.cut_off("a")
    taken = f"this run was taken over by kim on ops2 at 2. {LOST}. Fix: let the other run end"
    assert not failed(("kernel : Configure", taken), rescued=0).cut_off("a"), "the lock is another run's"


def test_the_play_for_an_inventory_without_hosts_is_no_act() -> None:
    """It stands at the end of site.yml, and Ansible announces it in every run."""
    plays = yaml.safe_load((ROLES.parent / "playbooks" / "site.yml").read_text(encoding="utf-8"))
    ledger = Ledger()
    names = [play["name"] for play in plays]
    steps = [ledger.feed({"event": "playbook_on_play_start", "event_data": {"play": name}}) for name in names]
    assert [step.text for step in steps if step] == names[:-2]
    assert tuple(names[-2:]) == REFUSING
