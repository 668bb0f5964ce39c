"""Drift on a host with real apt: who upgraded what, what does not matter, and what will not come back from the next
boot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.e2e.lab import Lab, Ran, spec_of
from tests.e2e.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
SECRET = "a-line-of-a-shell-history"
UPGRADE = (
    "apt-mark unhold $(apt-mark showhold) >/dev/null; "
    "DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --only-upgrade {0} >&2"
)
OTHER = """mkdir -p /tmp/other/DEBIAN
printf '%s\n' 'Package: other' 'Version: 1' 'Architecture: all' 'Maintainer: test' 'Description: test' > /tmp/other/DEBIAN/control
dpkg-deb --build /tmp/other >&2; apt-get -qq install -y /tmp/other.deb >&2"""


def drift(lab: Lab, machine: Machine, version: str, *words: str) -> tuple[Ran, dict[str, Any]]:
    ran = lab.run("drift", lab.inventory(spec_of(version), machine), "--json", *words)
    (host,) = ran.json["hosts"]
    return ran, host


def test_what_somebody_did_is_told_with_its_time(lab: Lab, older: str, versions: tuple[str, str]) -> None:
    machine = lab.simulated("drifts", older)
    machine.sh(
        f"for f in /root/.bash_history /root/.zsh_history; do echo {SECRET} >$f; touch -a -d '2001-01-01' $f; done"
    )
    ran, host = drift(lab, machine, versions[1])
    assert (ran.code, host["state"], host["harmless"]) == (0, "as applied", 0), ran

    machine.sh(OTHER)
    ran, host = drift(lab, machine, versions[1])
    assert (ran.code, host["state"]) == (0, "as applied"), "a package that no check minds is not a drift"
    assert host["harmless"] >= 1, host
    assert host["next_boot"] == "right", host

    machine.sh(UPGRADE.format("nvidia-smi"))
    ran, host = drift(lab, machine, versions[1])
    assert (ran.code, host["state"]) == (1, "drifted"), ran
    causes = [cause for one in host["differences"] for cause in one["causes"]]
    assert any("apt-get -qq install -y --only-upgrade nvidia-smi" in cause["command"] for cause in causes), host
    assert all(abs(datetime.now(UTC) - datetime.fromisoformat(cause["at"])) < timedelta(hours=1) for cause in causes)
    assert host["next_boot"] == "wrong", "it starts what somebody has installed, and nothing of it is held any more"
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%d")
    _, later = drift(lab, machine, versions[1], "--since", tomorrow)
    assert later["state"] == "drifted"
    assert not any(one["causes"] for one in later["differences"]), "nobody did anything after tomorrow"

    machine.sh("find /lib/modules -name 'nvidia*.ko*' -delete; depmod -a $(ls /lib/modules)")
    ran, host = drift(lab, machine, versions[1])
    assert host["differences"], ran
    assert SECRET not in ran.out + ran.err
    times = machine.sh("stat -c %x /root/.bash_history /root/.zsh_history").splitlines()
    assert all(time.startswith("2001-01-01") for time in times), "a shell's history is never read"
