"""Hosts that apply must not touch: each is refused with one clear error, and nothing is changed."""

from __future__ import annotations

import re

import pytest

from tests.e2e.lab import SPEC, Lab
from tests.e2e.machine import Machine

pytestmark = pytest.mark.e2e
BROKEN_PACKAGE = """
mkdir -p /tmp/broken/DEBIAN
cat > /tmp/broken/DEBIAN/control << END
Package: broken
Version: 1
Architecture: all
Maintainer: a test
Description: cannot be configured
END
printf '#!/bin/sh\\nexit 1\\n' > /tmp/broken/DEBIAN/postinst
chmod 755 /tmp/broken/DEBIAN/postinst
dpkg-deb -b /tmp/broken /tmp/broken.deb >/dev/null
dpkg -i /tmp/broken.deb >/dev/null 2>&1 || true
"""
# The file system of /var becomes one of 1 GiB more than is in it.
SMALL_VAR = """
mkdir -p /mnt/var
mount -t tmpfs -o size=$(( $(du -sm --one-file-system /var | cut -f1) + 1024 ))m tmpfs /mnt/var
cp -a /var/. /mnt/var/
mount --bind /mnt/var /var
"""
# A container has the machine's clock; what gpuprov asks on the host is `date`.
FAST_CLOCK = (
    '#!/bin/sh\nif [ "$*" = +%s ]; then echo $(( $(/usr/bin/date +%s) + 7200 )); else exec /usr/bin/date "$@"; fi\n'
)


def refused(lab: Lab, machine: Machine, *said: str, spec: dict[str, object] | None = None) -> None:
    """apply refuses, says all of `said`, and leaves the host as it was."""
    before = machine.state()
    ran = lab.run("apply", lab.inventory(spec or SPEC, machine), "--yes", "--full")
    assert ran.code == 3, ran
    for words in said:
        assert words in ran.text, f"{words!r} is not in {ran}"
    assert "Traceback" not in ran.text
    assert machine.state() == before


def test_broken_package_database(lab: Lab, first: object) -> None:
    machine = lab.machine("dpkg")
    machine.sh(BROKEN_PACKAGE)
    refused(lab, machine, "broken", "dpkg --configure -a")


def test_no_space_in_var(lab: Lab, first: object) -> None:
    machine = lab.machine("space")
    machine.sh(SMALL_VAR)
    refused(lab, machine, "/var", "MiB", "free space in /var")


def test_clock_far_off(lab: Lab, newest: str) -> None:
    machine = lab.simulated("clock", newest)
    machine.write("/usr/local/bin/date", FAST_CLOCK, "0755")
    refused(lab, machine, "ahead", "timedatectl set-ntp true")


def test_neither_root_nor_become(lab: Lab, newest: str) -> None:
    machine = lab.simulated("user", newest)
    folder = lab.inventory(SPEC, machine)
    hosts = folder / "hosts.yaml"
    hosts.write_text(hosts.read_text().replace("ansible_become: true", "ansible_become: false"))
    before = machine.state()
    ran = lab.run("apply", folder, "--yes", "--full")
    assert ran.code == 3, ran
    assert "ansible_become: true" in ran.text
    assert machine.state() == before


def test_foreign_runfile_installation(lab: Lab, newest: str) -> None:
    machine = lab.simulated("runfile", newest)
    machine.write("/usr/bin/nvidia-uninstall", "#!/bin/sh\n", "0755")
    refused(lab, machine, "runfile", "--uninstall")


def test_damaged_lock_is_refused_until_it_is_broken(lab: Lab, newest: str) -> None:
    machine = lab.simulated("lock", newest)
    machine.write("/run/gpuprov/lock/owner.json", '{"pid": 1')
    refused(lab, machine, "damaged")
    bare = lab.run("apply", lab.inventory(SPEC, machine), "--yes", "--full", "--break-lock")
    assert bare.code == 3, bare
    found = re.search(r"apply with --break-lock (damaged-[0-9a-f]{8})", bare.text)
    assert found, bare
    more = {**SPEC, "kernel": {"sysctl": {"net.core.somaxconn": 8192}}}
    ran = lab.run("apply", lab.inventory(more, machine), "--yes", "--break-lock", found[1])
    assert ran.code == 0, ran


def test_damaged_receipt_is_put_aside(lab: Lab, newest: str) -> None:
    machine = lab.simulated("receipt", newest)
    machine.write("/var/lib/gpuprov/receipt.json", '{"schema": 1, "capab')
    ran = lab.run("apply", lab.inventory(SPEC, machine), "--yes", "--json")
    assert ran.code == 0, ran
    assert set(ran.json["hosts"][0]["ran"]) == {"kernel", "nouveau", "nvidia_driver", "persistence"}
    assert set(machine.receipt()["capabilities"]) == {"kernel", "nouveau", "nvidia_driver", "persistence"}
    assert any("the receipt could not be read" in told for told in ran.json["hosts"][0]["warnings"]), ran.json["hosts"]
    assert machine.sh("cat /var/lib/gpuprov/receipt.json.damaged") == '{"schema": 1, "capab'
