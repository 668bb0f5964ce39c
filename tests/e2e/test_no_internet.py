"""A bundle of packages: resolved on a host, then applied to it when it has no route, no package lists and no other
source."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuprov.bundle import opened
from gpuprov.simulate import inventory
from tests.e2e.lab import GPUPROV, SIMULATED, SPEC
from tests.e2e.machine import Machine
from tests.host_code.test_packages_hosts import LOCKED
from tests.pull.site import new_key

pytestmark = pytest.mark.e2e
NAME, HOST = "e2e-no-internet", SIMULATED
CUT = """ip route del default; systemctl mask --runtime --now gpuprov-sim-repository; rm -rf /var/lib/apt/lists/*
  apt-get clean
! mountpoint -q /proc/driver || umount /proc/driver"""
SOURCES = (
    "cat /etc/apt/sources.list /etc/apt/sources.list.d/* /etc/apt/apt.conf.d/* 2>/dev/null | sha256sum; ls "
    "/etc/apt/apt.conf.d"
)
# What a run that was killed while it carried the packages leaves, an hour and two days ago.
LEFT = """d=/var/lib/gpuprov/bundle; mkdir -p $d/@ID@ $d/.new.old $d/0123456789abcdef; echo broken > $d/@ID@/apt.conf
touch -d '2 days ago' $d/.new.old; touch -d '1 hour ago' $d/0123456789abcdef"""


def gpuprov(place: Path, *words: str) -> tuple[int, Any, str]:
    folders = {name: str(place) for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME")}
    ran = subprocess.run(
        [GPUPROV, *words], cwd=place, env={**os.environ, **folders}, capture_output=True, text=True, check=False
    )
    return ran.returncode, json.loads(ran.stdout) if ran.stdout else None, " ".join(ran.stderr.split())


def _disk_full(place: Path) -> None:
    """A disk on which half of a bundle finds room: none is left of it."""
    small = place / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "none", str(small)], check=True)
    try:
        code, _, said = gpuprov(place, "bundle", "hosts", "--key", "key", "--out", "small/bundle")
        assert (code, "No space left on device; nothing of it is left" in said) == (2, True), said
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_host_without_a_route_gets_its_driver(site: Machine, tmp_path: Path) -> None:
    (tmp_path / "hosts").mkdir()
    inventory.write([site.host], tmp_path / "hosts/hosts.yaml")
    (tmp_path / "hosts/spec.yaml").write_text(json.dumps({"all": {"vars": {"gpuprov": SPEC}}}), encoding="utf-8")
    new_key(tmp_path)
    before = site.state()
    make = ("bundle", "hosts", "--key", "key", "--out", "out/bundle")
    site.sh(LOCKED.format("/var/lib/apt/lists/lock", 10))  # an unattended upgrade, say: it is waited for
    code, _, said = gpuprov(tmp_path, *make)
    assert code == 0, said
    assert "not free, nvidia-driver" in said
    first = {path.name: path.stat().st_ino for path in (tmp_path / "out/bundle").rglob("*.deb")}
    _disk_full(tmp_path)
    code, _, said = gpuprov(tmp_path, *make)
    assert (code, "files are those of the bundle before" in said) == (0, True), said
    again = {path.name: path.stat().st_ino for path in (tmp_path / "out/bundle").rglob("*.deb")}
    assert again == first, "what is there is not fetched again"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["bundle", "bundle.allowed_signers"]
    assert site.state() == before
    assert "gpuprov-bundle" not in site.sh("ls /var/tmp")
    signers, bundle = tmp_path / "out/bundle.allowed_signers", tmp_path / "out/bundle"
    manifest = opened.opened(bundle, signers)
    (repository,) = manifest.repositories
    versions = {package.name: package.version for package in repository.packages}
    assert {"nvidia-kernel-dkms", "dkms", "gcc-12", "libc6", "nvidia-persistenced"} <= versions.keys()

    site.sh(CUT)
    assert "Temporary failure resolving" in site.sh("apt-get update -o Acquire::Retries=0 2>&1; true")
    assert "default" not in site.sh("ip route")
    sources = site.sh(SOURCES)
    apply = ("apply", "hosts", "--yes", "--json", "--bundle", "out/bundle", "--signers", str(signers))
    index = bundle / repository.folder / "Packages"
    whole = index.read_bytes()
    index.write_bytes(whole + b"\n")
    code, _, said = gpuprov(tmp_path, *apply)
    assert (code, "Packages is not what was signed" in said) == (2, True), said
    assert site.state() == before
    index.write_bytes(whole)

    site.sh("mkdir -p /var/lib/gpuprov/bundle; mount -t tmpfs -o size=100m none /var/lib/gpuprov/bundle")
    code, _, said = gpuprov(tmp_path, *apply)
    assert (code, "MB free for /var/lib/gpuprov/bundle, and the bundle's packages need" in said) == (2, True), said
    site.sh("umount /var/lib/gpuprov/bundle")
    assert site.state() == before

    site.sh(LEFT.replace("@ID@", manifest.key[-16:].lower()))
    code, told, said = gpuprov(tmp_path, *apply)
    assert told["hosts"][0]["state"] == "changed", (told, said)
    assert "nvidia_driver" in told["hosts"][0]["ran"]
    installed = site.packages()
    assert installed["nvidia-kernel-dkms"] == ("hi", versions["nvidia-kernel-dkms"])
    assert site.sh(SOURCES) == sources, "the host's own sources are as they were"
    assert sorted(site.sh("ls -A /var/lib/gpuprov/bundle").split()) == ["0123456789abcdef", manifest.key[-16:].lower()]
