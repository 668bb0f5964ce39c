"""A host that pulls: first boot by its user-data, timer, drift, a tampered bundle, a lock in the way. Nobody logs in to
it."""

from __future__ import annotations

import base64
import gzip
import io
import json
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuprov.simulate import container
from tests.e2e.lab import GPUPROV, SIMULATED, SPEC
from tests.e2e.machine import Machine
from tests.e2e.wheels import collect_wheels
from tests.pull.site import new_key

pytestmark = pytest.mark.e2e
NAME, HOST = "e2e-pull", SIMULATED
BLACKLIST = "/etc/modprobe.d/gpuprov.conf"
HOLD = """cd /; PYTHONPATH=$(echo /var/lib/gpuprov/pull/gpuprov-*) python3 -P -c '
from gpuprov.host_code import lock
owner = dict.fromkeys(lock.NEEDED, "controller") | {"run": "friday", "lease": 600}
print(lock.take(owner)["taken"] if "ACTION" == "take" else lock.release_lock(owner))'"""


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a key, and the wheels of this checkout with what it needs."""
    folder = tmp_path_factory.mktemp("control")
    (folder / "wheels").symlink_to(collect_wheels(tmp_path_factory))
    new_key(folder)
    return folder


def offer(control: Path, machine: Machine, mode: str) -> None:
    """Make bundles and copy them to where the host looks, as a mirror would."""
    host = {"ansible_host": "192.0.2.1", "pull_machine_id": machine.sh("cat /etc/machine-id").strip()}
    told = {"all": {"vars": {"gpuprov": SPEC}, "hosts": {NAME: host}}}
    (control / "inventory.yaml").write_text(json.dumps(told), encoding="utf-8")
    places = ("--source", "/srv/pull", "--results", "/srv/results", "--out", "www")
    words = ("bundle", "inventory.yaml", "--pull", "--key", "key", "--wheels", "wheels", "--mode", mode, *places)
    subprocess.run([GPUPROV, *words], cwd=control, check=True)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(control / "www", "srv/pull", filter=owned)
    container.write(NAME, packed.getvalue())


def owned(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    return member


def first_boot(control: Path, machine: Machine) -> None:
    """What cloud-init does with user-data: write_files, then runcmd."""
    told = yaml.safe_load((control / "www" / "cloud-init" / f"{NAME}.yaml").read_text())
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for one in told["write_files"]:
            data = one["content"].encode()
            if one.get("encoding") == "gz+b64":
                data = gzip.decompress(base64.b64decode(data))
            member = tarfile.TarInfo(one["path"].lstrip("/"))
            member.size, member.mode = len(data), int(one["permissions"], 8)
            archive.addfile(member, io.BytesIO(data))
    container.write(NAME, packed.getvalue())
    for words in told["runcmd"]:
        machine.sh(" ".join(words))


def ended(machine: Machine, after: str = "") -> tuple[str, dict[str, Any]]:
    """The exit code of the service, and the result that it sent, once it has ended."""
    until = time.monotonic() + 600
    while time.monotonic() < until:
        state = machine.sh("systemctl show -p ActiveState -p ExecMainStatus --value gpuprov-pull.service").split()
        text = machine.sh("cat /srv/results/*.json 2>/dev/null || true")
        if "activating" not in state and text and text != after:
            return next(word for word in state if word.isdecimal()), json.loads(text)
        time.sleep(1)
    raise AssertionError(machine.sh("journalctl --no-pager -u gpuprov-pull | tail -40"))


def pulled(machine: Machine) -> tuple[str, dict[str, Any]]:
    """One more pull. The quick timer may have used up the starts that systemd permits in a time."""
    before = machine.sh("cat /srv/results/*.json")
    machine.sh("systemctl reset-failed gpuprov-pull.service || true; systemctl start gpuprov-pull.service || true")
    return ended(machine, before)


def test_a_host_brings_itself_to_its_spec_and_reports(site: Machine, control: Path, tmp_path: Path) -> None:
    site.sh("! mountpoint -q /proc/driver || umount /proc/driver; mkdir -p /srv/results")
    offer(control, site, "apply")
    first_boot(control, site)
    code, result = ended(site)
    assert (code, result["act"], result["state"], result["verdict"]) == ("0", "apply", "changed", "matches"), result
    assert site.sh("cat /proc/sys/kernel/random/boot_id /var/lib/gpuprov/lock/fence").split()[1].startswith("1-")
    assert "gpuprov-pull.timer" in site.sh("systemctl list-timers --no-pager")
    assert "inactive" in site.sh("ls /run/gpuprov/lock 2>/dev/null || echo inactive"), "the lock was given back"

    # The timer, made quick, with a pause between two runs; the bundle permits to report alone.
    offer(control, site, "report")
    site.sh(f"rm {BLACKLIST}")
    before = site.sh("cat /srv/results/*.json")
    site.write(
        "/etc/systemd/system/gpuprov-pull.timer.d/quick.conf", "[Timer]\nOnCalendar=*:*:0/20\nRandomizedDelaySec=0\n"
    )
    site.sh("systemctl daemon-reload; systemctl restart gpuprov-pull.timer")
    code, result = ended(site, before)
    site.sh("systemctl stop gpuprov-pull.timer")
    code, result = pulled(site)
    assert (code, result["act"], result["verdict"]) == ("1", "verify", "differs"), result
    assert "kernel.blacklist" in {row["check"] for row in result["failures"]}
    site.sh(f"test ! -e {BLACKLIST}")

    # Tampered with, on the mirror.
    site.sh(f'sed -i \'s/"mode":"report"/"mode":"repord"/\' /srv/pull/{NAME}.bundle')
    code, result = pulled(site)
    assert (code, result["state"]) == ("2", "blocked"), result
    assert "the signature of the bundle is invalid" in result["message"]

    # A controller works on the host.
    offer(control, site, "apply")
    assert site.sh(HOLD.replace("ACTION", "take")).strip() == "True"
    code, result = pulled(site)
    assert (code, result["state"]) == ("5", "locked"), result
    site.sh(f"test ! -e {BLACKLIST}")
    assert site.sh(HOLD.replace("ACTION", "release")).strip() == "True"
    code, result = pulled(site)
    assert (code, result["state"], result["verdict"]) == ("0", "changed", "matches"), result
    assert "nouveau" in site.sh(f"cat {BLACKLIST}")

    (tmp_path / f"{NAME}.json").write_text(json.dumps(result), encoding="utf-8")
    subprocess.run([GPUPROV, "fleet", "freeze", "inventory.yaml", "--out", "fleet.json"], cwd=control, check=True)
    folded = subprocess.run(
        [GPUPROV, "fleet", "fold", tmp_path, "--fleet", control / "fleet.json", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (folded.returncode, json.loads(folded.stdout)["verdict"]) == (0, "matches"), folded.stdout + folded.stderr

    # No room for another gpuprov: nothing is left half done, and the host is told as blocked.
    kept = site.sh("ls /var/lib/gpuprov/pull").split()
    site.sh("mkdir /tmp/full; mount -t tmpfs -o size=66m none /tmp/full; mkdir /tmp/full/home")
    site.sh('sed -i \'s|^{|{"state": "/tmp/full",|\' /etc/gpuprov/pull.json; chmod 0755 /tmp/full')
    code, result = pulled(site)
    assert (code, result["state"]) == ("2", "blocked"), result
    assert "there is room for" in result["message"]
    assert not [name for name in site.sh("ls -A /tmp/full").split() if "gpuprov-" in name or ".new" in name]
    assert site.sh("ls /var/lib/gpuprov/pull").split() == kept
