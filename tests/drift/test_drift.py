"""`gpuprov drift`: what differs from the receipt and the spec, and what did it."""

from __future__ import annotations

import importlib
import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.persistence.fragment import Persistence
from gpuprov.drift import document, text
from gpuprov.drift import judge as judging
from gpuprov.drift.judge import judge
from gpuprov.drift.model import HostDrift
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.facts.probes.host.readings import Noted
from gpuprov.facts.probes.software.history import Event
from gpuprov.render import digests
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import Result, evaluate
from tests import documents
from tests.capabilities import contents_host, readings_host
from tests.capabilities.asking import NEWER, good, packages
from tests.rows import run_each

PLAIN = ("file", "mount", "less", "time")
APPLIED = "2026-11-10T09:00:00Z"
SPEC = HostSpec(name="gpu1", capabilities={"nvidia_driver": NvidiaDriver()})
UPGRADE = """@zone +0100
@apt

Start-Date: 2026-11-09  11:00:00
Commandline: apt-get install nvidia-kernel-dkms
Install: nvidia-kernel-dkms:amd64 (535.261.03-1)
End-Date: 2026-11-09  11:01:00

Start-Date: 2026-11-17  14:02:00
Commandline: apt upgrade -o Acquire::http::Proxy=http://me:hunter2@proxy
Requested-By: alice (1000)
Upgrade: nvidia-kernel-dkms:amd64 (535.261.03-1, 535.309.01-0+deb12u1), tzdata:all (2024a, 2025b)
End-Date: 2026-11-17  14:03:00
"""
"""In the format of apt's history.log; tests/facts/probes/software/test_history.py has real ones."""


def receipt(of: HostSpec, **fields: Any) -> str:
    told = {name: {"digest": str(digest), "applied_at": APPLIED} for name, digest in digests(of).items()}
    return json.dumps({"applied_at": APPLIED, "gpuprov_version": "0.1", "capabilities": told, **fields})


def drifted(of: HostSpec | None = None, since: datetime | None = None, **outputs: Any) -> HostDrift:
    wanted = of or SPEC
    told = good() | {"receipt": receipt(wanted), "apply_marker": "", "package_history": "@zone +0000\n@apt\n"} | outputs
    facts = Facts({name: one if isinstance(one, Output) else Output(one) for name, one in told.items()})
    return judge(wanted, evaluate(wanted, facts), facts, since=since)


def test_a_host_that_is_what_was_applied() -> None:
    found = drifted()
    assert (found.state, found.differences, found.spec_changed, found.harmless) == ("as applied", (), {}, 0)
    assert (found.applied_at, found.applied_with) == (APPLIED, "0.1")
    assert document.build_document([found]).exit_code == 0


GONE = contents_host.nothing() + contents_host.unit("nvidia-persistenced.service", "inactive", "")
"""The daemon's package was removed."""
UPGRADED: dict[str, Any] = {"packages": packages(version=NEWER), "package_history": UPGRADE}


def test_somebody_ran_apt_upgrade_on_tuesday() -> None:
    found = drifted(**UPGRADED)
    assert found.state == "drifted"
    version = next(one for one in found.differences if one.causes)
    (cause,) = version.causes
    assert (cause.at, cause.user) == ("2026-11-17T14:02+01:00", "alice (1000)")
    assert cause.packages == ("nvidia-kernel-dkms 535.261.03-1 → 535.309.01-0+deb12u1",)
    assert "hunter2" not in msgspec.json.encode(found).decode()
    assert found.harmless == 1, "tzdata; not what was done before the apply"
    told = text.as_text([found])
    assert "Tue 2026-11-17 14:02 +01:00, by alice (1000): apt upgrade" in told
    assert document.build_document([found]).exit_code == 1


def test_what_was_done_before_is_blamed_only_when_asked_for() -> None:
    assert not any(one.causes for one in drifted(since=datetime(2026, 11, 18, tzinfo=UTC), **UPGRADED).differences)
    found = drifted(since=datetime(2026, 11, 1, tzinfo=UTC), **UPGRADED)
    (causes,) = {one.causes for one in found.differences if one.causes}
    assert [one.command.split()[0] for one in causes] == ["apt-get", "apt"]


def test_another_spec_is_no_drift_of_the_host() -> None:
    before = HostSpec(name="gpu1", capabilities={"nvidia_driver": NvidiaDriver(version="535.247.01")})
    found = drifted(receipt=receipt(before))
    assert (found.state, found.spec_changed) == ("spec changed", {"nvidia_driver": "the spec"})
    assert "gpu1: as applied, but the spec has changed since" in text.as_text([found])
    purged = text.as_text([drifted(receipt=receipt(before), packages="")])
    assert "gpu1: the spec has changed since" in purged
    assert "1 the spec has changed since" in purged.splitlines()[-1]


@run_each(
    ("outputs", "state"),
    [
        ({"receipt": ""}, "never applied"),
        ({"receipt": "{"}, "unknown"),
        ({"receipt": json.dumps({"applied_at": "x", "capabilities": {}})}, "unknown"),
    ],
)
def test_a_host_of_which_nothing_is_known_to_be_applied(outputs: dict[str, Any], state: str) -> None:
    found = drifted(**outputs)
    assert found.state == state
    assert document.build_document([found]).exit_code == 1


def test_nobody_is_looked_for_who_changed_what_was_never_applied() -> None:
    found = drifted(receipt="", packages="")
    assert found.differences
    assert "no log of the host" not in text.as_text([found])


def test_a_package_is_named_by_its_unit_too() -> None:
    wanted = HostSpec(name="gpu1", capabilities={"persistence": Persistence()})
    removed = UPGRADE.replace(
        "Upgrade: nvidia-kernel-dkms:amd64 (535.261.03-1, 535.309.01-0+deb12u1),",
        "Remove: nvidia-persistenced:amd64 (535.171.04-1),",
    )
    found = drifted(wanted, contents=GONE, package_history=removed)
    causes = [one.causes for one in found.differences if one.check == "persistence.enabled"]
    assert [cause.packages for (cause,) in causes] == [("nvidia-persistenced 535.171.04-1 removed",)]


def test_what_no_log_names_is_said() -> None:
    found = drifted(packages=packages(version=NEWER), package_history="@zone +0000\n")
    assert found.harmless is None
    assert "no log of the host's package managers names it" in text.as_text([found])


def test_hosts_alike_are_told_once_and_the_worst_first() -> None:
    one = drifted(**UPGRADED)
    hosts = [
        drifted(),
        *(msgspec.structs.replace(one, host=f"gpu{number}") for number in range(3)),
        HostDrift(host="gone", state="unreachable", why="no route"),
    ]
    told = text.as_text(hosts)
    assert told.index("gone: unreachable") < told.index("gpu[0:2] (3 hosts): drifted") < told.index("as applied")
    assert told.splitlines()[-1].startswith("5 hosts: 1 unreachable, 3 drifted, 1 as applied")
    assert document.build_document(hosts).exit_code == 4


def test_what_a_host_says_moves_no_cursor() -> None:
    history = UPGRADE.replace("apt upgrade", "apt \x1b[2Jupgrade")
    assert "\x1b" not in text.as_text([drifted(packages=packages(version=NEWER), package_history=history)])


@pytest.mark.install
def test_json_has_counts_of_every_state() -> None:
    told = documents.read_document(document.build_document([drifted(), drifted(**UPGRADED)], 0.25))
    assert (told["gpuprov_document"], told["exit_code"], told["seconds"]) == (1, 1, 0.25)
    assert told["summary"].pop("sentence").startswith("2 hosts: 1 drifted, 1 as applied")
    assert (told["summary"].pop("hosts"), told["summary"].pop("outcomes")) == (2, {"differs": 1, "ok": 1})
    assert {name: count for name, count in told["summary"].items() if count} == {"drifted": 1, "as applied": 1} | (
        {"lost_at_next_boot": 1} if told["summary"]["lost_at_next_boot"] else {}
    )
    assert [one["state"] for one in told["hosts"]] == ["as applied", "drifted"]


def noted(**changed: Any) -> str:
    """A host's readings with one in which this changed; names with blanks for what is not a Python."""
    return readings_host.told("2026-11-24T11:05:00Z", 900000, "enabled", "active", {
        "from": "2026-11-17T13:00:00Z", "to": "2026-11-17T14:00:00Z", "changed": changed,
    })  # fmt: skip


def test_what_nobody_logged_has_the_time_of_the_hosts_own_readings() -> None:
    wanted = HostSpec(name="gpu1", capabilities={"persistence": Persistence()})
    found = drifted(
        wanted,
        contents=GONE,
        readings=noted(
            **{
                "unit:nvidia-persistenced.service": ["enabled active", "disabled inactive"],
                "kernel": ["5.1.2-3", "5.1.2-4"],
            }
        ),
    )
    (causes,) = {one.causes for one in found.differences if one.check == "persistence.enabled"}
    assert [(one.after, one.at, one.packages) for one in causes] == [
        (
            "2026-11-17T13:00+00:00",
            "2026-11-17T14:00+00:00",
            ("unit nvidia-persistenced.service enabled active → disabled inactive",),
        )
    ]
    told = text.as_text([found])
    assert "between Tue 2026-11-17 13:00 and Tue 2026-11-17 14:00 +00:00: unit nvidia-persistenced.service" in " ".join(
        told.split()
    )


def test_readings_before_the_apply_and_packages_of_a_log_blame_nobody() -> None:
    readings = noted(**{"package:nvidia-kernel-dkms": ["535.261.03-1", "535.309.01-0+deb12u1"]})
    found = drifted(readings=readings, **UPGRADED)
    assert {len(one.causes) for one in found.differences if one.causes} == {1}, "the log says it better"
    late = drifted(readings=readings, since=datetime(2026, 11, 18, tzinfo=UTC), **UPGRADED)
    assert not any(one.causes for one in late.differences)


def test_what_no_check_names_is_noted_for_the_host() -> None:
    found = drifted(
        readings=noted(
            **{
                "file:/etc/modprobe.d/x.conf": ["aa", ""],
                "file:/etc/modprobe.d/y.conf": ["aa", "bb", 1_794_922_200, 1000],
                "unit:docker.service": ["enabled inactive", "enabled active"],
                "package:tzdata": ["1", "2"],
            }
        )
    )
    assert (found.state, [one.packages for one in found.noted]) == (
        "as applied",
        [("/etc/modprobe.d/x.conf removed",), ("/etc/modprobe.d/y.conf written, which is of uid 1000",)],
    )
    assert "/etc/modprobe.d/x.conf removed" in " ".join(text.as_text([found]).split())


def spanning(begin: str, end: str, **changed: Any) -> str:
    line = {"from": begin, "to": end, "changed": changed}
    return readings_host.told("2026-11-24T11:05:00Z", 900000, "enabled", "active", line)


def test_a_file_that_was_put_back_with_its_old_time_or_one_to_come_lies_between_two_readings() -> None:
    changed = {
        "file:/etc/old.conf": ["aa", "bb", 1_750_000_000, 0],
        "file:/etc/new.conf": ["aa", "bb", 1_999_000_000, 0],
    }
    (cause,) = drifted(readings=noted(**changed)).noted
    assert (cause.after, cause.at) == ("2026-11-17T13:00+00:00", "2026-11-17T14:00+00:00")
    assert cause.packages == ("/etc/old.conf written", "/etc/new.conf written")


def test_what_apply_itself_may_have_done_is_not_noted_and_marked_as_a_cause() -> None:
    wanted = HostSpec(name="gpu1", capabilities={"persistence": Persistence()})
    readings = spanning(
        "2026-11-10T08:30:00Z",
        "2026-11-10T09:30:00Z",
        **{
            "kernel": ["6.1.0-46-amd64", "6.1.0-47-amd64"],
            "file:/etc/modprobe.d/old.conf": ["aa", ""],
            "file:/etc/modprobe.d/x.conf": ["aa", "bb", int(datetime(2026, 11, 10, 9, 20, tzinfo=UTC).timestamp()), 0],
            "unit:nvidia-persistenced.service": ["enabled active", "disabled inactive"],
        },
    )
    found = drifted(wanted, contents=GONE, readings=readings)
    assert [one.packages for one in found.noted] == [("/etc/modprobe.d/x.conf written",)], "after the apply"
    (causes,) = {one.causes for one in found.differences if one.check == "persistence.enabled"}
    assert [one.spans_apply for one in causes] == [True]
    assert "between Tue 2026-11-10 08:30 and Tue 2026-11-10 09:30 +00:00, while gpuprov applied, too: unit" in " ".join(
        text.as_text([found]).split()
    )


def test_an_apply_of_something_else_hides_no_cause() -> None:
    told = json.loads(receipt(SPEC, applied_at="2026-11-18T09:00:00Z"))
    told["capabilities"]["mig"] = {"digest": "", "applied_at": "2026-11-18T09:00:00Z"}
    found = drifted(receipt=json.dumps(told), **UPGRADED)
    assert "alice (1000)" in {cause.user for one in found.differences for cause in one.causes}
    told["capabilities"]["nvidia_driver"]["applied_at"] = "2026-11-18T09:00:00Z"
    found = drifted(receipt=json.dumps(told), **UPGRADED)
    assert not any(one.causes for one in found.differences)


def test_what_a_wrong_clock_dated_is_told() -> None:
    back = spanning("2026-11-17T13:00:00Z", "2000-01-01T00:00:20Z", kernel=["a", "b"])
    found = drifted(readings=back)
    assert "noted after Tue 2026-11-17 13:00 +00:00, when the clock was set back: kernel a → b" in " ".join(
        text.as_text([found]).split()
    )
    before = spanning("2036-11-17T13:00:00Z", "2026-11-09T14:00:00Z", kernel=["a", "b"])
    assert drifted(readings=before).noted == ()


@run_each("found", ["no such file", "an unmount; mount", "less than 8 GPUs", "took more time"])
def test_ordinary_words_are_no_packages(found: str) -> None:
    result = Result(host="h", capability="c", check="c", status="fail", expected="x", found=found)
    events = [Event(at=datetime(2026, 11, 17, tzinfo=UTC), action="upgraded", package=one) for one in PLAIN]
    assert judging._match_events(result, events) == []
    noted = [Noted(kind="package", name=one.package, begin=one.at, end=one.at) for one in events]
    assert judging._match_readings(result, noted, ()) == []


def test_a_host_whose_content_breaks_the_judge_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = [(RawHost(name=name, values={}), HostSpec(name=name, capabilities={})) for name in ("gpu1", "gpu2")]

    def each(pairs: Any, note: Any, **_: Any) -> None:
        for raw, _spec in pairs:
            note(raw.name, [], Facts({}))

    def broken(spec: HostSpec, *_: Any, **__: Any) -> HostDrift:
        if spec.name == "gpu1":
            raise TypeError("can't compare")
        return HostDrift(host=spec.name, state="as applied")

    module = importlib.import_module("gpuprov.drift.drift")
    monkeypatch.setattr(module, "verify_each", each)
    monkeypatch.setattr(module, "judge", broken)
    first, second = module.drift(fleet)
    assert (first.state, second.state) == ("unknown", "as applied")
    assert "TypeError: can't compare" in text.as_text([first])


def test_a_time_without_a_zone_is_utc() -> None:
    found = drifted(readings=spanning("2026-11-17T13:00:00", "2026-11-17T14:00:00", kernel=["a", "b"]))
    assert [one.at for one in found.noted] == ["2026-11-17T14:00+00:00"]
