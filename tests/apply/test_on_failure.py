"""Which hosts go back by themselves, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gpuprov.apply import on_failure, page
from gpuprov.apply.model import AppliedItem, ApplyRun, HostOutcome, Options
from gpuprov.apply.text import as_text
from gpuprov.fleet.drain import in_play
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import Result, ResultStatus


def result(status: ResultStatus, reboot: str = "") -> Result:
    return Result(host="h", capability="kernel", check="kernel.sysctl", status=status, reboot=reboot)


def outcomes() -> list[HostOutcome]:
    changed, red = ["a task"], [result("fail")]
    return [
        HostOutcome(host="failed", state="failed", changed=changed, results=red),
        HostOutcome(host="red", state="changed", changed=changed, results=red),
        HostOutcome(host="silent", state="failed", changed=changed, results=red),
        HostOutcome(host="green", state="changed", changed=changed, results=[result("pass")]),
        HostOutcome(host="idle", state="unchanged", results=red),
        HostOutcome(host="refused", state="failed", results=red),
        HostOutcome(host="waits", state="changed", changed=changed, results=[result("fail", "a new kernel")]),
        HostOutcome(host="gone", state="unreachable", changed=changed),
    ]


def applied(monkeypatch: pytest.MonkeyPatch, back: list[HostOutcome], **fields: Any) -> tuple[ApplyRun, list[str]]:
    """The run, and the hosts that were rolled back; `silent` does not ask for it."""
    asked: list[str] = []

    def rollback(hosts: Sequence[RawHost], options: Options, *_: Any, last: bool) -> ApplyRun:
        asked.extend(raw.name for raw in hosts)
        assert (options.yes, options.run, last) == (True, "r-back", True)
        return ApplyRun(run="s", act="rollback", hosts=back)

    first = msgspec.structs.replace(ApplyRun(run="r", hosts=outcomes()), **fields)
    monkeypatch.setattr("gpuprov.apply.execution.apply", lambda *_args, **_more: first)
    monkeypatch.setattr("gpuprov.apply.rollback.rollback", rollback)
    pairs = [
        (
            RawHost(name=one.host, connection={"host_kubernetes_node": "n1"}),
            HostSpec(name=one.host, on_failure="nothing" if one.host == "silent" else "rollback"),
        )
        for one in first.hosts
    ]
    return on_failure.apply(pairs, Options(run="r")), asked


def test_who_was_changed_and_is_red_goes_back_and_stays_red(monkeypatch: pytest.MonkeyPatch) -> None:
    back = [
        HostOutcome(host="failed", state="changed", results=[result("pass")], rolled_back="rolled back to one"),
        HostOutcome(host="red", state="blocked", message="no checkpoint"),
    ]
    run, asked = applied(monkeypatch, back)
    assert asked == ["failed", "red"]
    assert run.exit_code == 3
    told = {one.host: one.rolled_back for one in run.hosts if one.rolled_back}
    assert told == {"failed": "rolled back to one; verify is green", "red": "not rolled back: blocked: no checkpoint"}
    assert "  rolled back to one; verify is green" in as_text(run)
    assert "<p>rolled back to one; verify is green</p>" in page.render(run)


def test_what_the_rollback_took_back_is_no_longer_called_done(monkeypatch: pytest.MonkeyPatch) -> None:
    done = AppliedItem(capability="kernel", kind="file", name="/etc/x", before="absent", after="written", state="done")
    first = [msgspec.structs.replace(one, items=[done] if one.host == "failed" else []) for one in outcomes()]
    back = [
        HostOutcome(host="failed", state="changed", results=[result("pass")], rolled_back="rolled back", items=[done]),
        HostOutcome(host="red", state="blocked", message="no checkpoint"),
    ]
    run, _ = applied(monkeypatch, back, hosts=first)
    text = as_text(run)
    assert "  kernel: taken back\n    + /etc/x: absent -> written\n" in text
    assert "1 taken back" in text.splitlines()[-1]


def test_what_is_red_after_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    back = [
        HostOutcome(host="failed", state="changed", results=[result("fail")], rolled_back="rolled back to one"),
        HostOutcome(
            host="red", state="changed", results=[result("fail", "a module")], rolled_back="rolled back to one"
        ),
    ]
    told = {one.host: one.rolled_back for one in applied(monkeypatch, back)[0].hosts}
    assert told["failed"] == "rolled back to one; verify is not green: kernel.sysctl"
    assert told["red"] == "rolled back to one, and waits for a reboot: a module"


def test_what_was_rolled_back_waits_for_no_reboot_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its command line was taken back, and the last line still said that it waits for the reboot which had failed."""
    waits = HostOutcome(host="h", state="failed", changed=["a task"], results=[result("fail", "a command line")])
    good = HostOutcome(host="h", state="changed", results=[result("pass")], rolled_back="rolled back to one")
    run, _ = applied(monkeypatch, [good], hosts=[waits])
    assert as_text(run).splitlines()[-1].startswith("1 host: 1 failed; of these 1 rolled back; ")
    assert "reboot required" not in as_text(run)
    assert run.exit_code == 3
    again = msgspec.structs.replace(good, results=[result("fail", "a module")])
    run, _ = applied(monkeypatch, [again], hosts=[msgspec.structs.replace(waits, rolled_back="", undone=False)])
    assert "waiting for a reboot" in as_text(run)


@pytest.mark.parametrize(
    ("back", "says", "not_"),
    [
        (HostOutcome(host="h", state="changed", results=[result("pass")]), "see the log", "cordoned"),
        (
            HostOutcome(host="h", state="failed", fix=f"x; {in_play.stays('n1', 'r-back')}"),
            "--run r-back",
            "undrain HOST INVENTORY --by kubernetes --run r;",
        ),
        (HostOutcome(host="h", state="blocked", fix="no checkpoint"), "--run r", "r-back"),
        (
            HostOutcome(host="h", state="changed", results=[result("pass")], fix="node n1 was not looked at"),
            "--run r",
            "r-back",
        ),
    ],
)
def test_what_is_said_of_the_node_is_what_holds_after_it(
    monkeypatch: pytest.MonkeyPatch, back: HostOutcome, says: str, not_: str
) -> None:
    fix = f"see the log; {in_play.stays('n1', 'r')}"
    red = HostOutcome(host="h", state="failed", changed=["a task"], results=[result("fail")], fix=fix)
    run, _ = applied(monkeypatch, [back], hosts=[red])
    assert says in run.hosts[0].fix
    assert not_ not in run.hosts[0].fix


def test_nobody_goes_back_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    assert applied(monkeypatch, [], interrupted=True)[1] == []
