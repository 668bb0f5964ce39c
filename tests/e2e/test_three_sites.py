"""A roll-out over three sites, a thousand stub hosts and six that are really changed: whatever is killed, no host is
lost, none is changed twice, and the report is that of the roll-out that nobody disturbed. On Temporal, and on the
embedded engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e import sites
from tests.e2e.sites import BROKEN, FAILED, PREFIX, STUBS, Run, Sites
from tests.rollout.temporal import lab

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
MOMENTS = ["begun", "draining", "canary", "soak", "batch"]


class Ended(NamedTuple):
    """A roll-out that is over."""

    report: dict[str, Any]
    attempts: Counter[str]
    seen: dict[str, str]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    with sites.sites(tmp_path_factory.mktemp("sites")) as made:
        yield made


@pytest.fixture(scope="module")
def undisturbed(three: Sites, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return rolled_out(three, tmp_path_factory.mktemp("undisturbed"))


def rolled_out(three: Sites, folder: Path, what: str = "", moment: str = "", *, temporal: bool = True) -> Ended:
    """One roll-out, of which something is killed at a moment."""
    with Run(three, folder, temporal=temporal) as run:
        dead: frozenset[str] = frozenset()
        if what:
            lab.until(sites.moments(run)[moment], sites.PATIENCE)
            dead = run.kill(what)
        run.over()
        state = three.slurm.sh(f"scontrol show job {run.job} | grep -o 'JobState=[A-Z]*'").strip()
        assert state == "JobState=COMPLETED", "a user's job ends by itself"
        return Ended(run.report(), run.attempts(dead), three.seen())


def test_undisturbed_every_host_is_done_once(three: Sites, undisturbed: Ended) -> None:
    told = {host["host"]: host for host in undisturbed.report["status"]["hosts"]}
    assert len(told) == STUBS + len(three.real)
    assert {name for name, host in told.items() if host["state"] != "green"} == FAILED
    assert "nitramfs" in told[f"{PREFIX}{BROKEN}"]["message"]
    assert undisturbed.attempts == {f"stub{n:04}": 2 if n in (7, 411) else 1 for n in range(STUBS)}
    for name in three.real:
        built = undisturbed.seen[name].splitlines().count("built")
        assert built == 1, name
    assert "State=IDLE\n" in f"{undisturbed.seen['gpu1']}\n"
    assert undisturbed.seen["gpu2"] == "State=IDLE+DRAIN\n   Reason=gpuprov friday"


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("what", ["worker", "client", "server"])
def test_whatever_is_killed(three: Sites, undisturbed: Ended, tmp_path: Path, what: str, moment: str) -> None:
    assert rolled_out(three, tmp_path, what, moment) == undisturbed


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_engine_on_one_machine(three: Sites, undisturbed: Ended, tmp_path: Path, moment: str) -> None:
    assert rolled_out(three, tmp_path, "client", moment, temporal=False) == undisturbed


@pytest.mark.parametrize("temporal", [True, False], ids=["temporal", "embedded"])
@pytest.mark.parametrize("moment", ["canary", "batch"])
def test_machines_that_go_down(three: Sites, undisturbed: Ended, tmp_path: Path, moment: str, temporal: bool) -> None:
    """With what works on hosts: a host without a result is done again, and comes to the same."""
    found = rolled_out(three, tmp_path, "jobs", moment, temporal=temporal)
    assert found.report == undisturbed.report
    again = found.attempts - undisturbed.attempts
    assert sum(again.values()) <= 2 * len(sites.SITES), "no more than each process was at"
    assert not undisturbed.attempts - found.attempts
    built = {name: text.splitlines().count("built") for name, text in found.seen.items()}
    assert all(1 <= built[name] <= 2 for name in three.real)
    for name, text in found.seen.items():
        assert text.replace("built\n", "") == undisturbed.seen[name].replace("built\n", ""), name


@pytest.mark.parametrize("temporal", [True, False], ids=["temporal", "embedded"])
def test_a_second_over_the_same_hosts_is_refused_by_name(three: Sites, tmp_path: Path, temporal: bool) -> None:
    with Run(three, tmp_path, temporal=temporal) as run:
        lab.until(sites.moments(run)["begun"], sites.PATIENCE)
        assert run.begin("second", "monday").wait(sites.PATIENCE) == 2
        told = (tmp_path / "second.log").read_text()
        assert f"the roll-out {sites.ROLLOUT} is open and has {PREFIX}[1:6]" in told, told
        assert "nothing was started" in told
