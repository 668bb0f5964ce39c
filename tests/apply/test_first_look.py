"""What is asked of a host may be older than what it was brought to."""

from __future__ import annotations

import json

from gpuprov.apply.first_look import first_look
from gpuprov.apply.model import Options
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.fleet.drain.base import checked_run as in_scheduler
from gpuprov.fleet.specs import judge
from gpuprov.plan.extra import checked_run, of_rollback
from gpuprov.plan.read import Reading
from gpuprov.render import digests
from gpuprov.spec.model import RawHost
from tests.rows import run_each

OLD, APPLIED, NEW = "2026-11-20T08:00:00Z", "2026-11-23T08:00:00Z", "2026-11-23T08:00:01Z"
SKEWED = "2026-11-23T07:56:00Z"
[PAIR] = judge([RawHost(name="gpu001", values={"nouveau": {}})]).pairs
[OTHER] = judge([RawHost(name="gpu001", values={"nouveau": {"modules": ["nouveau"]}})]).pairs


def reading(applied: object, by: str) -> Reading:
    entries = {name: {"digest": str(one), "applied_at": APPLIED} for name, one in digests(applied).items()}  # type: ignore[arg-type]
    told = {
        "receipt": json.dumps({"applied_at": APPLIED, "gpuprov_version": "0.1.0", "capabilities": entries}),
        "fence": f"7-0a1b2c3d {by} kim ops1 {APPLIED}\n" if by else "",
        "apply_marker": "",
        "reboot_reasons": "",
    }
    return Reading(Facts({name: Output(text) for name, text in told.items()}), ())


@run_each(
    ("asked_at", "by", "state"),
    [
        (OLD, "monday", "blocked"),
        (OLD, "", "blocked"),
        (OLD, "friday", "not-started"),  # this run itself
        (OLD, of_rollback("friday"), "not-started"),  # what has taken back for it
        (SKEWED, "monday", "not-started"),  # by less than two clocks may differ
        (NEW, "monday", "not-started"),
        ("", "monday", "not-started"),  # an apply reads its inventory now
        ("no time", "monday", "not-started"),
    ],
)
def test_what_was_brought_about_since_is_not_undone(asked_at: str, by: str, state: str) -> None:
    found = first_look(PAIR, reading(OTHER[1], by), Options(run="friday", asked_at=asked_at))
    assert found.state == state
    if state == "blocked":
        assert found.ran == {}
        assert f"brought to another spec at {APPLIED}, after what is asked here was read ({OLD})" in found.message
        assert found.fix.startswith("read the inventory again")


def test_what_asks_for_what_is_there_is_never_old() -> None:
    found = first_look(PAIR, reading(PAIR[1], "monday"), Options(run="friday", asked_at=OLD))
    assert (found.state, found.ran) == ("unchanged", {})


def test_a_run_of_any_name_has_a_rollback_with_a_name() -> None:
    assert checked_run(of_rollback("a" * 64)) == in_scheduler(of_rollback("a" * 64))
    assert of_rollback("friday") == "friday-back"
