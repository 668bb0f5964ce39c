"""A hundred hosts of four distributions: the plan lists every exact version before anything is touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuprov.simulate import hosts, inventory
from gpuprov.simulate.description import Description, Gpus
from tests.e2e.lab import Lab

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
GPUS = Gpus(model="L40S", count=2)
OTHERS = "570.124.06,580"
FLEET = {
    "bookworm": (40, "535.261.03", Description(gpu=GPUS)),
    "trixie": (15, "550", Description(gpu=GPUS, distribution="debian13")),
    "noble": (40, "580", Description(gpu=GPUS, distribution="ubuntu2404", driver=OTHERS)),
    "rocky": (5, "570", Description(gpu=GPUS, distribution="rocky9", driver=OTHERS)),
}
"""For how many hosts of the inventory a simulated one stands, and the driver that is asked for."""
# Many logins at once are more than sshd admits by default, and rpm, dnf and apt-cache of one host wait for or spoil
# each other.
PREPARE = """
echo 'MaxStartups 100' > /etc/ssh/sshd_config.d/startups.conf; systemctl reload ssh || systemctl reload sshd
for program in dnf rpm apt-cache; do
  printf '#!/bin/sh\\nexec flock /run/one-%s /usr/bin/%s "$@"\\n' $program $program > /usr/local/bin/$program
  chmod 755 /usr/local/bin/$program
done
"""
STATE = "ls -lR /etc /var/lib/dpkg /usr/lib/modules | sha256sum"


@pytest.fixture
def fleet(lab: Lab) -> Iterator[Path]:
    """An inventory of a hundred hosts, on four that answer."""
    folder = lab.folder / "inventories" / "fleet"
    folder.mkdir()
    listed: dict[str, Any] = {}
    try:
        for name, (count, version, description) in FLEET.items():
            one = hosts.up(f"e2e-{name}", description)
            hosts.run(one.name, PREPARE)
            (variables,) = yaml.safe_load(inventory.text([one]))["all"]["hosts"].values()
            spec = {"nouveau": {}, "nvidia_driver": {"version": version}}
            members = {f"{name}{number:03}": None for number in range(1, count + 1)}
            listed[name] = {"hosts": members, "vars": {**variables, "gpuprov": spec}}
        (folder / "fleet.yaml").write_text(yaml.safe_dump({"all": {"children": listed}}))
        yield folder
    finally:
        for name in FLEET:
            hosts.down(f"e2e-{name}")


def test_exact_versions_of_a_hundred_mixed_hosts(lab: Lab, fleet: Path) -> None:
    before = {name: hosts.run(f"e2e-{name}", STATE) for name in FLEET}
    ran = lab.run("plan", fleet, "--quick")
    assert ran.code == 1, ran
    table = ran.out.partition("versions after apply\n")[2].splitlines()
    told = {
        line.split()[1].rstrip(":"): line.partition(": ")[2] for line in table if line.startswith("  nvidia_driver ")
    }
    assert told == {
        "535.261.03": "bookworm[001:040] (40 hosts)",
        "550.163.01": "trixie[001:015] (15 hosts)",
        "570.124.06": "rocky[001:005] (5 hosts)",
        "580.178.04": "noble[001:040] (40 hosts)",
    }
    assert "100 hosts: driver " in ran.out
    assert {name: hosts.run(f"e2e-{name}", STATE) for name in FLEET} == before
