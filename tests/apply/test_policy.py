"""The options of apply as a policy: who begins, when it stops, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuprov import apply as applying
from gpuprov.apply.model import HostOutcome, Known
from gpuprov.core.errors import GpuprovError
from tests.apply import fake_runner
from tests.apply.fake_runner import pair
from tests.rows import run_each

HOSTS = [pair("gpu1", "first"), pair("gpu2", "first"), *(pair(f"gpu{n}") for n in range(3, 7))]
PERMITS = "waits for a reboot that is not permitted (--reboot permits it)"


def run(
    folder: Path,
    *,
    comes_to: Any = None,
    idle: Any = None,
    interrupted: str = "",
    known: Known | None = None,
    **more: Any,
) -> Any:
    """The batches that were begun, and the run."""
    with fake_runner.running(folder, comes_to or {}, idle, interrupted) as batches:
        options = applying.Options(yes=True, log_dir=folder / "log", checkpoint=False, **more)
        return batches, applying.apply(HOSTS, options, known=known)


@run_each(
    ("idle", "more", "why"),
    [
        ({"gpu1": "wrong"}, {}, "the canary gpu1 is not green; 5 not started"),
        ({"gpu1": "wrong", "gpu2": "green"}, {}, "the canary gpu1 is not green; 4 not started"),
        ({"gpu1": "waits", "gpu2": "green"}, {}, f"the canary gpu1 {PERMITS}; 4 not started"),
        ({"gpu1": "waits", "gpu2": "wrong"}, {}, "the canary gpu1, gpu2 is not green; 4 not started"),
        (
            {"gpu1": "waits", "gpu2": "green"},
            {"reboot": True},
            "the canary gpu1 still waits for a reboot, which is permitted; 4 not started",
        ),
        ({"gpu1": "unproven", "gpu2": "green"}, {}, "the canary gpu1 is not green; 4 not started"),
        ({"gpu1": "wrong", "gpu2": "green"}, {"act": "prepare"}, "the canary gpu1 is not green; 4 not started"),
    ],
)
def test_a_canary_that_is_red_and_has_nothing_to_do_stops_all(
    tmp_path: Path, idle: dict[str, str], more: dict[str, Any], why: str
) -> None:
    batches, ended = run(tmp_path, idle=idle, canary="first", max_fail="100%", **more)
    assert (batches, ended.stopped, ended.exit_code) == ([], why, 3)
    assert ended.log is not None
    assert f"stopped: {why}" in ended.log.read_text()


@pytest.mark.install
@pytest.mark.parametrize(
    ("idle", "more", "batches"),
    [
        ({"gpu1": "green"}, {}, [["gpu2"], ["gpu3", "gpu4", "gpu5", "gpu6"]]),
        ({"gpu1": "green", "gpu2": "green"}, {}, [["gpu3", "gpu4", "gpu5", "gpu6"]]),
        ({"gpu1": "green", "gpu2": "green"}, {"serial": "50%"}, [["gpu3", "gpu4"], ["gpu5", "gpu6"]]),
        ({"gpu1": "waits", "gpu2": "green"}, {"act": "prepare"}, [["gpu3", "gpu4", "gpu5", "gpu6"]]),
        ({"gpu5": "wrong", "gpu6": "wrong"}, {}, [["gpu1", "gpu2"], ["gpu3", "gpu4"]]),
    ],
)
def test_a_canary_that_is_green_and_has_nothing_to_do_is_left_out(
    tmp_path: Path, idle: dict[str, str], more: dict[str, Any], batches: list[list[str]]
) -> None:
    """A host that no canary names and that has nothing to do counts nowhere, red as it may be; shares are of the
    others."""
    begun, ended = run(tmp_path, idle=idle, canary="first", **more)
    assert (begun, ended.stopped) == (batches, "")


@pytest.mark.install
@pytest.mark.parametrize(
    ("comes_to", "more", "batches", "stopped"),
    [
        ({"gpu3": "failed"}, {"max_fail": "0"}, 2, "1 failed in all, --max-fail is 0: gpu3; 2 not started"),
        ({"gpu3": "locked"}, {"max_fail": "0"}, 2, "1 failed in all, --max-fail is 0: gpu3; 2 not started"),
        ({"gpu3": "unreachable"}, {"max_fail": "0"}, 2, "1 failed in all, --max-fail is 0: gpu3; 2 not started"),
        ({"gpu3": "unproven"}, {"max_fail": "0"}, 2, "1 failed in all, --max-fail is 0: gpu3; 2 not started"),
        (
            {"gpu3": "failed", "gpu1": "wrong"},
            {"max_fail": "1"},
            2,
            "2 failed in all, --max-fail is 1: gpu1, gpu3; 2 not started",
        ),
        ({"gpu3": "failed"}, {"max_fail": "1"}, 3, ""),
        ({"gpu1": "failed", "gpu2": "wrong", "gpu3": "wrong"}, {"max_fail": "50%"}, 3, ""),
        ({"gpu3": "waits", "gpu4": "waits"}, {"max_fail": "0"}, 3, ""),
        ({"gpu5": "failed", "gpu6": "failed"}, {"max_fail": "0"}, 3, ""),
        ({"gpu1": "unproven"}, {"canary": "1", "max_fail": "2"}, 1, "the canary gpu1 is not green; 5 not started"),
        ({"gpu1": "waits"}, {"canary": "1", "act": "prepare"}, 4, ""),
    ],
)
def test_the_end_of_a_batch_is_the_gate(
    tmp_path: Path, comes_to: dict[str, str], more: dict[str, Any], batches: int, stopped: str
) -> None:
    """A host that waits for a reboot counts as no failure; nor does what is found after the last batch stop
    anything."""
    begun, ended = run(tmp_path, comes_to=comes_to, serial="2", **more)
    assert (len(begun), ended.stopped) == (batches, stopped)


def test_an_interrupt_in_a_batch_begins_no_other_and_is_no_stop(tmp_path: Path) -> None:
    begun, ended = run(tmp_path, serial="2", max_fail="0", comes_to={"gpu3": "failed"}, interrupted="gpu3")
    assert begun == [["gpu1", "gpu2"], ["gpu3", "gpu4"]]
    assert (ended.interrupted, ended.stopped, ended.exit_code) == (True, "", 130)
    assert [host.state for host in ended.hosts] == ["changed"] * 2 + ["failed"] + ["not-started"] * 3


def test_hosts_are_told_as_their_batch_ends(tmp_path: Path) -> None:
    told: list[str] = []

    def known(outcome: HostOutcome) -> None:
        told.append(outcome.host)

    run(tmp_path, serial="3", known=known)
    assert told[:3] == ["gpu1", "gpu2", "gpu3"]
    assert {*told} == {raw.name for raw, _ in HOSTS}


@pytest.mark.parametrize("options", [{"serial": "0"}, {"canary": "gpu9"}, {"max_fail": "x"}])
def test_options_that_cannot_be_are_refused_before_any_host_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    monkeypatch.setattr("gpuprov.apply.execution.read", lambda *_, **__: pytest.fail("a host was read"))
    with pytest.raises(GpuprovError, match=r"^--(serial|canary|max-fail)"):
        applying.apply(HOSTS, applying.Options(yes=True, log_dir=tmp_path, **options))  # type: ignore[arg-type]
