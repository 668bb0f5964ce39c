"""Which capabilities Ansible runs: the skip is honest."""

from __future__ import annotations

import json

import msgspec

from gpuprov.capabilities.fabric_manager.fragment import FabricManager
from gpuprov.capabilities.health.fragment import Health
from gpuprov.capabilities.nouveau import Nouveau
from gpuprov.capabilities.nvidia_absent.fragment import NvidiaAbsent
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.plan import decide
from gpuprov.plan.decide import READ_ONLY, Decision, PlanOptions
from gpuprov.render import digests
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import Result, ResultStatus
from tests.rows import run_each

SPEC = HostSpec(name="gpu1", capabilities={"kernel": Kernel(), "nouveau": Nouveau()})
IF_NEEDED = HostSpec(name="gpu1", reboot="if-needed", capabilities=SPEC.capabilities)


def receipt(**digests: str) -> str:
    entries = {name: {"digest": value, "applied_at": "2026-01-01T00:00:00Z"} for name, value in digests.items()}
    return json.dumps({"applied_at": "2026-01-01T00:00:00Z", "capabilities": entries})


NOW = digests(SPEC)
SAME = receipt(**NOW)


def facts(text: str = SAME, marker: str = "", reasons: str = "") -> Facts:
    return Facts({"receipt": Output(text), "apply_marker": Output(marker), "reboot_reasons": Output(reasons)})


def result(check: str, status: ResultStatus, moment: str = "now") -> Result:
    return Result(host="gpu1", capability=check.partition(".")[0], check=check, status=status, moment=moment)  # type: ignore[arg-type]


GOOD = [result("kernel.blacklist", "pass"), result("nouveau.running", "skip"), result("host.gpu", "fail")]


@run_each(
    ("results", "known", "run"),
    [
        (GOOD, facts(), {}),
        ([result("kernel.blacklist", "fail")], facts(), {"kernel": "fails: blacklist"}),
        ([result("kernel.initramfs", "fail", "next-boot")], facts(), {"kernel": "fails: initramfs"}),
        ([result("kernel.blacklist", "error")], facts(), {"kernel": "fails: blacklist"}),
        ([result("nouveau.space", "fail", "preflight")], facts(), {}),
        (GOOD, facts(""), {"kernel": "never applied", "nouveau": "never applied"}),
        (GOOD, facts(receipt(kernel=NOW["kernel"])), {"nouveau": "never applied"}),
        (GOOD, facts(SAME, marker="1"), dict.fromkeys(SPEC.capabilities, "the last apply failed or was cut off")),
        (GOOD, facts("{"), dict.fromkeys(SPEC.capabilities, "the receipt on the host is damaged")),
        (GOOD, facts(reasons="kernel|new command line"), {}),
    ],
    ids=["all-pass", "fail", "next-boot", "error", "preflight", "no-receipt", "part", "cut-off", "damaged", "waiting"],
)
def test_decide(results: list[Result], known: Facts, run: dict[str, str]) -> None:
    decision = decide((RawHost(name="gpu1"), SPEC), results, known)
    assert decision.run == run
    assert set(decision.run) | set(decision.skipped) == set(SPEC.capabilities)


def test_what_sets_up_nothing_is_not_applied_for_what_fails() -> None:
    """A dead NVLink fails health: no role of it would mend that, and a plan says so."""
    spec = HostSpec(name="gpu1", capabilities={"health": Health()})
    known = facts(receipt(**digests(spec)))
    decision = decide((RawHost(name="gpu1"), spec), [result("health.nvlinks", "fail")], known)
    assert decision == Decision({}, {"health": READ_ONLY})


def test_other_variables_run_only_that_capability() -> None:
    before = digests(msgspec.structs.replace(SPEC, capabilities={"kernel": Kernel(sysctl={"vm.swappiness": 1})}))
    decision = decide((RawHost(name="gpu1"), SPEC), GOOD, facts(receipt(**NOW | {"kernel": before["kernel"]})))
    assert decision.run == {"kernel": "the spec changed since it was applied (2026-01-01T00:00:00Z)"}


def test_what_differs_runs_although_every_check_passes() -> None:
    """As after an upgrade of gpuprov, whose roles bring about something else."""
    decision = decide((RawHost(name="gpu1"), SPEC), GOOD, facts(), foreseen={"nouveau": "differs: /etc/x"})
    assert decision.run == {"nouveau": "differs: /etc/x"}


@run_each("digest", ["0" * 64, "", "4:a", "2:a:b:c", "3:" + "a" * 20])
def test_a_receipt_that_cannot_be_compared_is_applied_once_more(digest: str) -> None:
    """Up to 0.9 a digest was one sha256 over everything."""
    decision = decide((RawHost(name="gpu1"), SPEC), GOOD, facts(receipt(**NOW | {"kernel": digest})))
    why = "applied by an earlier gpuprov (2026-01-01T00:00:00Z), whose receipt says too little: applied once more"
    assert decision.run == {"kernel": why}


def test_what_is_taken_away_is_a_reason_to_run_the_host_s_role() -> None:
    pair = (RawHost(name="gpu1"), SPEC)
    gone = "no longer asked for: 1 file"
    assert decide(pair, GOOD, facts(), PlanOptions(prune=True), prune=gone).run == {"host": gone}
    assert decide(pair, GOOD, facts(), prune=gone).run == {}
    both = decide(pair, [result("kernel.blacklist", "fail")], facts(), PlanOptions(prune=True), prune=gone)
    assert list(both.run) == ["kernel", "host"]


def test_a_capability_may_ask_that_all_is_taken_away() -> None:
    spec = HostSpec(name="gpu1", capabilities={"nvidia_absent": NvidiaAbsent()})
    pair, gone = (RawHost(name="gpu1"), spec), "no longer asked for: 1 file"
    assert list(decide(pair, [], facts(), prune=gone).run) == ["nvidia_absent", "host"], "never applied"
    assert list(decide(pair, [], facts(), PlanOptions(frozenset({"kernel"})), prune=gone).run) == []


def test_full_runs_all_and_only_narrows() -> None:
    pair = (RawHost(name="gpu1"), SPEC)
    assert list(decide(pair, GOOD, facts(), PlanOptions(full=True)).run) == ["kernel", "nouveau"]
    narrowed = decide(pair, GOOD, facts(), PlanOptions(frozenset({"nouveau"}), full=True))
    assert (list(narrowed.run), narrowed.skipped) == (["nouveau"], {"kernel": "not selected"})


def test_a_permitted_reboot_runs_who_asked_for_it() -> None:
    waiting = facts(reasons="kernel|new command line")
    expected = {"kernel": "waits for a reboot: new command line"}
    assert decide((RawHost(name="gpu1"), IF_NEEDED), GOOD, waiting).run == expected
    assert decide((RawHost(name="gpu1"), SPEC), GOOD, waiting, PlanOptions(reboot=True)).run == expected


def test_a_reboot_that_a_former_capability_asked_for_runs_what_there_is() -> None:
    waiting = facts(reasons="rdma|new firmware")
    assert list(decide((RawHost(name="gpu1"), IF_NEEDED), GOOD, waiting).run) == ["kernel", "nouveau"]


def test_kernel_runs_whenever_the_driver_does_and_before_it() -> None:
    """An initramfs may hold the driver's modules."""
    spec = HostSpec(name="gpu1", capabilities={"kernel": Kernel(), "nvidia_driver": NvidiaDriver()})
    applied = receipt(**digests(spec))
    moved = [result("nvidia_driver.packages", "fail")]
    decision = decide((RawHost(name="gpu1"), spec), moved, facts(applied))
    assert list(decision.run.items()) == [("kernel", "follows nvidia_driver"), ("nvidia_driver", "fails: packages")]
    only = decide((RawHost(name="gpu1"), spec), moved, facts(applied), PlanOptions(frozenset({"nvidia_driver"})))
    assert (list(only.run), only.skipped) == (["nvidia_driver"], {"kernel": "not selected"})


def test_fabric_manager_runs_whenever_the_driver_does() -> None:
    spec = HostSpec(name="gpu1", capabilities={"nvidia_driver": NvidiaDriver(), "fabric_manager": FabricManager()})
    applied = receipt(**digests(spec))
    moved = [result("nvidia_driver.packages", "fail")]
    decision = decide((RawHost(name="gpu1"), spec), moved, facts(applied))
    assert decision.run == {"nvidia_driver": "fails: packages", "fabric_manager": "follows nvidia_driver"}
    assert decide((RawHost(name="gpu1"), spec), [], facts(applied)).run == {}
