"""Historic bugs on a real host: Debian's own unattended-upgrades, apt and dpkg, on stand-ins for the driver's packages.

Bugs are planted one after another on one host; each is healed by what its fix says.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuprov.simulate import hosts, inventory
from gpuprov.simulate.description import Description
from tests.capabilities.asking import NEWER, PROPRIETARY, VERSION

pytestmark = pytest.mark.e2e
NAME = f"e2e-historic-{os.getpid()}"  # the prefix by which .ci/run finds hosts of tests that were killed
GPUPROV = str(Path(sys.executable).with_name("gpuprov"))
ALL = [*PROPRIETARY, "libnvidia-encode1", "nvidia-driver"]
REPOSITORY = """
cat > /usr/local/sbin/offer << 'END'
# usage: offer VERSION PACKAGE...   An index of /srv/standins with these packages too.
version=$1; shift
mkdir -p /srv/standins
for name in "$@"; do
  tree=$(mktemp -d); mkdir "$tree/DEBIAN"
  { echo "Package: $name"; echo "Source: nvidia-graphics-drivers"; echo "Version: $version"; echo "Architecture: amd64"
    echo "Maintainer: gpuprov's tests <root@localhost>"
    echo "Description: stand-in of gpuprov's tests; it has the name and the version of the real package, and no files"
  } > "$tree/DEBIAN/control"
  dpkg-deb --build -Znone "$tree" "/srv/standins/${name}_$version.deb" > /dev/null
  rm -rf "$tree"
done
cd /srv/standins
for file in *.deb; do
  dpkg-deb -f "$file"; echo "Filename: ./$file"; echo "Size: $(stat -c %s "$file")"
  echo "SHA256: $(sha256sum "$file" | cut -d' ' -f1)"; echo
done > Packages
{ echo "Origin: gpuprov-standins"; echo "Suite: standins"; echo "Date: $(date -Ru)"; echo "SHA256:"
  echo " $(sha256sum Packages | cut -d' ' -f1) $(stat -c %s Packages) Packages"; } > Release
apt-get -qq update
END
chmod 755 /usr/local/sbin/offer
apt-get -qq update
apt-get -qq install -y --no-install-recommends unattended-upgrades > /dev/null 2>&1
systemctl -q disable --now apt-daily.timer apt-daily-upgrade.timer
rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*  # Debian's non-free has the same names and versions
echo 'deb [trusted=yes] file:/srv/standins ./' > /etc/apt/sources.list.d/standins.list
cat > /etc/apt/apt.conf.d/90standins << 'END'
#clear Unattended-Upgrade::Origins-Pattern;
Unattended-Upgrade::Origins-Pattern { "origin=gpuprov-standins"; };
END
"""


@dataclass
class Host:
    """The host and its inventory."""

    inventory: Path

    def sh(self, script: str) -> str:
        """Standard output of a script run as root."""
        return hosts.run(NAME, script)

    def failed(self) -> dict[str, dict[str, Any]]:
        """The checks that fail in `gpuprov verify`, by id."""
        command = [GPUPROV, "verify", str(self.inventory), "--json"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        assert ran.stdout.startswith("{"), ran.stderr
        return {result["check"]: result for result in json.loads(ran.stdout)["results"] if result["status"] == "fail"}

    def versions(self) -> dict[str, str]:
        """The installed version of each stand-in."""
        told = self.sh(f"dpkg-query -W -f '${{Package}} ${{Version}}\\n' {' '.join(ALL)}")
        return dict(line.split() for line in told.splitlines())

    def upgrade(self) -> None:
        """What a host's timer does every night."""
        self.sh("unattended-upgrade --verbose")

    def restore(self) -> None:
        """All stand-ins at the older version, and held."""
        wanted = " ".join(f"{name}={VERSION}" for name in ALL)
        self.sh(
            f"apt-get -qq install -y --allow-downgrades --allow-change-held-packages {wanted} > /dev/null 2>&1\n"
            f"apt-mark -qq hold {' '.join(ALL)} > /dev/null"
        )


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host with the older version of every package, held; its repository has the newer one too."""
    folder = tmp_path_factory.mktemp("historic")
    try:
        inventory.write([hosts.up(NAME, Description())], folder / "hosts.yaml")
        (folder / "spec.yaml").write_text(
            json.dumps({"all": {"vars": {"gpuprov": {"nvidia_driver": {"version": "535"}}}}})
        )
        made = Host(folder)
        made.sh(f"{REPOSITORY}\noffer {VERSION} {' '.join(ALL)}")
        made.restore()
        made.sh(f"offer {NEWER} {' '.join(ALL)}")
        yield made
    finally:
        hosts.down(NAME)


@pytest.fixture(scope="module")
def before(host: Host) -> set[str]:
    """What fails without any bug, as it must where stand-ins have no files."""
    return set(host.failed())


@pytest.fixture(autouse=True)
def _sound(host: Host, before: set[str]) -> None:
    """Each test finds the host as the first one did."""
    assert not {"nvidia_driver.packages", "nvidia_driver.held", "nvidia_driver.headers"} & before
    host.restore()


def test_automatic_upgrades_leave_the_held_set_alone(host: Host) -> None:
    told = host.sh("unattended-upgrade --dry-run --debug 2>&1")
    assert "gpuprov-standins" in told, told
    host.upgrade()
    assert set(host.versions().values()) == {VERSION}
    host.sh("apt-mark -qq unhold libcuda1")
    assert "libcuda1" in host.sh("unattended-upgrade --dry-run --debug 2>&1 | grep -i 'will be upgraded'")
    host.upgrade()
    assert {name for name, version in host.versions().items() if version == NEWER} == {"libcuda1"}
    failed = host.failed()
    assert "libcuda1=535.309.01" in failed["nvidia_driver.packages"]["found"]
    assert failed["nvidia_driver.held"]["found"] == "not held: libcuda1"


def test_a_hold_on_the_main_package_does_not_stop_the_others(host: Host, before: set[str]) -> None:
    others = [name for name in ALL if name != "nvidia-driver"]
    host.sh(f"apt-mark -qq unhold {' '.join(others)}")
    failed = host.failed()
    assert set(failed) - before == {"nvidia_driver.held"}
    fix = failed["nvidia_driver.held"]["fix"]
    assert shlex.split(fix) == ["apt-mark", "hold", *sorted(others)]
    host.sh(fix)
    host.upgrade()
    assert set(host.versions().values()) == {VERSION}, "who does what the fix says is safe"
    assert set(host.failed()) == before
    host.sh(f"apt-mark -qq unhold {' '.join(others)}")
    host.upgrade()
    assert set(host.versions().items()) == {("nvidia-driver", VERSION), *((name, NEWER) for name in others)}
    assert set(host.failed()) - before == {"nvidia_driver.held", "nvidia_driver.packages"}


def test_a_package_that_is_stuck_half_way(host: Host, before: set[str]) -> None:
    script = "/var/lib/dpkg/info/libcuda1.postinst"
    host.sh(
        f"dpkg --unpack /srv/standins/libcuda1_{VERSION}.deb > /dev/null\n"
        f"printf '#!/bin/sh\\nexit 1\\n' > {script}; chmod 755 {script}\n"
        "dpkg --configure libcuda1 > /dev/null 2>&1 || true; apt-mark -qq hold libcuda1 > /dev/null"
    )
    failed = host.failed()
    assert set(failed) - before == {"nvidia_driver.packages"}
    assert failed["nvidia_driver.packages"]["found"] == "incomplete: libcuda1"
    way_out, _, rest = failed["nvidia_driver.packages"]["fix"].partition(";")
    assert "gpuprov apply" in rest
    read, _, command = way_out.rpartition("then ")
    assert "/var/lib/dpkg/info" in read, "a person looks first at what the scripts ask"
    host.sh(f"rm {script}\n{command} > /dev/null")
    assert set(host.failed()) == before


def test_a_kernel_without_headers(host: Host, before: set[str]) -> None:
    host.sh("mkdir -p /lib/modules/6.1.0-99-amd64; touch /boot/vmlinuz-6.1.0-99-amd64")
    failed = host.failed()
    assert set(failed) - before == {"nvidia_driver.headers", "nvidia_driver.next_kernel"}
    assert failed["nvidia_driver.headers"]["found"] == "none for 6.1.0-99-amd64"
    assert "6.1.0-99-amd64: none" in failed["nvidia_driver.modules_built"]["found"]
    host.sh("rm -r /lib/modules/6.1.0-99-amd64 /boot/vmlinuz-6.1.0-99-amd64")
    assert set(host.failed()) == before
