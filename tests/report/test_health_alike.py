"""Hosts of which `gpuprov health` has the same to say."""

from __future__ import annotations

from gpuprov.report.health import as_text
from gpuprov.verify.evaluate import Result


def result(host: str, found: str = "Xid 79 on 0000:19:00") -> Result:
    return Result(
        host=host,
        capability="health",
        check="health.xid",
        status="fail",
        action="reboot",
        found=found,
        fix="restart it",
    )


def test_hosts_with_the_same_cause_are_one_paragraph() -> None:
    text = as_text([*(result(f"gpu{number}") for number in range(1, 5)), result("gpu9", "Xid 79 on 0000:1a:00")])
    assert text.splitlines()[:2] == [
        "gpu[1:4] (4 hosts): not fit for work until it is restarted",
        "  because   health.xid [reboot]: Xid 79 on 0000:19:00",
    ]
    assert text.count("do        restart it") == 2
    assert "gpu9: not fit for work until it is restarted" in text.splitlines()
    assert text.endswith("5 hosts: 5 fit after an action\n")


def test_many_names_keep_the_width() -> None:
    text = as_text([result(f"gpu{number}") for number in range(0, 200, 2)], width=60)
    assert all(
        len(line) <= 60 or line.endswith(": not fit for work until it is restarted") for line in text.splitlines()
    )
    assert "(100 hosts): not fit" in text
