"""Which checkpoint a host goes back to."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from gpuprov.capabilities.mig.fragment import Mig
from gpuprov.capabilities.nvidia_absent.fragment import NvidiaAbsent
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.pcie.fragment import Pcie
from gpuprov.checkpoints import Back, Refused, back
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.facts.probes.host.checkpoints import CHECKPOINTS, Checkpoints
from gpuprov.facts.probes.host.house import Applied, Receipt
from gpuprov.host_code.lasting import BOOT, Lasting, format_setting
from gpuprov.plan.no_way_back import until_boot
from gpuprov.render import digests
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec

BEFORE, FIRST, BETWEEN, SECOND, AFTER = (f"2026-11-1{day}T09:00:00Z" for day in range(5))


def spec(version: str, **more: Any) -> HostSpec:
    return HostSpec(name="gpu1", capabilities={"nvidia_driver": NvidiaDriver(version=version), **more})


OLD, NEW = spec("535.261.03"), spec("535.309.01")


def line(run: str, at: str, of: HostSpec) -> str:
    values = {"nvidia_driver": {"version": getattr(of.capabilities["nvidia_driver"], "version", "")}}
    made = {name: str(one) for name, one in digests(of).items()}
    return "checkpoint " + json.dumps({"schema": 1, "run": run, "at": at, "spec": values, "digests": [made]})


def found(*lines: str) -> Checkpoints:
    return Facts({"checkpoints": Output("\n".join(lines))}).get(CHECKPOINTS)


BOTH = (line("two", SECOND, NEW), line("one", FIRST, OLD))


def receipt(of: HostSpec, at: str = BEFORE, **since: str) -> Receipt:
    told = {name: Applied(str(one), since.get(name, at)) for name, one in digests(of).items()}
    return Receipt(applied_at=at, capabilities=told)


def run_of(one: Back | Refused) -> str:
    assert isinstance(one, Back), one
    return one.checkpoint.run


def test_a_host_without_checkpoints_is_refused() -> None:
    one = back(found(), receipt(OLD))
    assert isinstance(one, Refused)
    assert "no checkpoint" in one.message
    damaged = back(found("checkpoint {"), receipt(OLD))
    assert isinstance(damaged, Refused)
    assert "1 cannot be read" in damaged.message


def test_the_one_before_what_was_applied_last() -> None:
    assert run_of(back(found(*BOTH), receipt(NEW))) == "one"


def test_what_was_added_since_makes_the_last_one_the_one_to_go_back_to() -> None:
    """An apply that adds a block, and is red: nothing else is taken back."""
    more = spec("535.309.01", mig=Mig(), pcie=Pcie())
    assert run_of(back(found(*BOTH), receipt(more, at=AFTER))) == "two"
    assert run_of(back(found(*BOTH, 'last {"run": "two"}'), receipt(more, at=AFTER), last=True)) == "two"
    # What a rollback could not take away was there before it came to its end.
    ended = 'last {"run": "two", "at": "2026-11-14T10:00:00Z"}'
    assert run_of(back(found(*BOTH, ended), receipt(more, at=AFTER))) == "one"


def test_one_that_is_like_the_present_is_none_to_go_back_to() -> None:
    assert run_of(back(found(*BOTH, line("again", AFTER, NEW)), receipt(NEW))) == "one"


def test_the_newest_where_the_last_apply_was_not_green() -> None:
    assert run_of(back(found(BOTH[1]), receipt(NEW))) == "one"
    assert run_of(back(found(*BOTH), receipt(spec("580.65.06")))) == "two"


def test_the_newest_where_an_apply_was_cut_off() -> None:
    assert run_of(back(found(*BOTH, 'mark {"capabilities": ["nvidia_driver"]}'), receipt(NEW))) == "two"


def test_an_unfinished_rollback_goes_on_to_where_it_went() -> None:
    marks = ('mark {"capabilities": ["nvidia_driver"]}', 'target {"run": "one"}')
    assert run_of(back(found(*BOTH, *marks), receipt(NEW))) == "one"
    assert run_of(back(found(*BOTH, *marks), receipt(NEW), "two")) == "two", "what a person names counts"
    assert run_of(back(found(*BOTH, 'target {"run": "gone"}'), receipt(spec("580.65.06")))) == "two"


def test_at_the_oldest_one_there_is_nothing_to_go_back_to() -> None:
    one = back(found(*BOTH), receipt(OLD))
    assert isinstance(one, Refused)
    assert "the oldest checkpoint, one," in one.message
    assert "two (2026-11-13 09:00 UTC, driver 535.309.01)" in one.fix


def test_an_unknown_run_names_the_known_ones() -> None:
    one = back(found(*BOTH), receipt(NEW), "three")
    assert isinstance(one, Refused)
    assert one.message == 'no checkpoint "three"'
    assert "one (2026-11-11 09:00 UTC, driver 535.261.03)" in one.fix


def test_what_was_set_up_since_is_taken_away_and_the_rest_is_named() -> None:
    wider = spec("535.309.01", mig=Mig(mode="disabled"))
    applied = receipt(wider, mig=BETWEEN)
    applied.capabilities["dcgm"] = Applied("2:a:b:c", BETWEEN)
    applied.capabilities["mps"] = Applied("2:a:b:c", BEFORE)
    one = back(found(BOTH[1]), applied)
    assert isinstance(one, Back)
    assert one.values == {"nvidia_driver": {"version": "535.261.03"}, "mig": {"mode": "disabled"}}, (
        "mps was there before"
    )
    assert one.stays == ("dcgm",)
    assert (one.pruned, one.until_boot) == ((), ())
    applied.capabilities["dcgm"] = Applied("2:a:b:c", BETWEEN, ("unit nvidia-dcgm.service",))
    listed = back(found(BOTH[1]), applied)
    assert isinstance(listed, Back)
    assert (listed.pruned, listed.stays, listed.settings) == (("dcgm",), (), ())
    setting = Lasting("kernel.sysctl", "", "vm.swappiness", "1", "60", BOOT)
    for name, at in (("kernel", BETWEEN), ("pcie", BEFORE)):
        applied.capabilities[name] = Applied("2:a:b:c", at, (format_setting(setting),))
    restored = back(found(BOTH[1]), applied)
    assert isinstance(restored, Back)
    assert restored.settings == ("kernel",), "settings of pcie were there before"


def test_what_stays_until_the_next_boot_is_named() -> None:
    applied = receipt(spec("535.309.01", pcie=Pcie(max_read_request=4096)), pcie=BETWEEN)
    one = back(found(BOTH[1]), applied)
    assert isinstance(one, Back)
    assert (one.values["pcie"], one.stays, one.until_boot) == ({}, (), ("pcie",))
    governs = receipt(spec("535.309.01", kernel=Kernel(cpu_governor="performance")), kernel=BETWEEN)
    governed = back(found(BOTH[1]), governs)
    assert isinstance(governed, Back)
    assert governed.until_boot == ("kernel",)
    assert "CPU governors" in until_boot("kernel")


def test_after_a_rollback_the_last_one_is_where_the_host_went() -> None:
    there = found(*BOTH, 'last {"run": "one"}')
    assert there.last is there.all[0]
    assert run_of(back(there, receipt(spec("580.65.06")), last=True)) == "one", "not forth again"
    assert run_of(back(there, receipt(spec("580.65.06")))) == "one"
    same = back(there, receipt(OLD), last=True)
    assert isinstance(same, Refused)
    assert "the last checkpoint, one, is what was applied" in same.message


def test_without_a_word_of_it_the_last_one_is_the_newest() -> None:
    assert run_of(back(found(*BOTH, 'last {"run": "gone"}'), receipt(spec("580.65.06")), last=True)) == "two"


def test_back_to_a_host_without_nvidias_software() -> None:
    """No block beside `nvidia_absent` that needs the driver; what those set up since is removed by the receipt."""
    told = {"schema": 1, "run": "bare", "at": FIRST, "spec": {"nvidia_absent": {}}, "digests": [{"nvidia_absent": "x"}]}
    since = receipt(spec("535.309.01", mig=Mig(mode="enabled"), kernel=Kernel()), SECOND)
    since.capabilities["mig"] = msgspec.structs.replace(
        since.capabilities["mig"], resources=("unit gpuprov-mig.service",)
    )
    one = back(found("checkpoint " + json.dumps(told)), since)
    assert isinstance(one, Back), one
    assert one.values == {"nvidia_absent": {}, "kernel": {}}
    assert one.pruned == ("mig",)


def test_back_from_it_to_the_driver() -> None:
    bare = HostSpec(name="gpu1", capabilities={"nvidia_absent": NvidiaAbsent()})
    one = back(found(*BOTH), receipt(bare, AFTER))
    assert isinstance(one, Back), one
    assert ([*one.values], one.stays) == (["nvidia_driver"], ())
