"""A real host whose files have bytes that are not UTF-8, and that an inventory has by two names."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuprov.simulate import inventory
from gpuprov.simulate.description import Description
from tests.e2e.lab import GPUPROV
from tests.e2e.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-bytes"
HOST = Description()
DIRTY = r"""for f in /etc/apt/sources.list /etc/apt/sources.list.d/* /etc/default/grub; do
  [ ! -f "$f" ] || printf '# caf\351\n' >>"$f"
done"""


def run(site: Machine, place: Path, verb: str, *more: str, code: int = 0, **specs: int) -> str:
    """gpuprov with this memlock, or, of a host that has several names, with that of each."""
    hosts = place / "hosts"
    hosts.mkdir(exist_ok=True)
    inventory.write([site.host], hosts / "hosts.yaml")
    known: dict[str, Any] = yaml.safe_load((hosts / "hosts.yaml").read_text())
    variables = known["all"]["hosts"][site.name]
    asked = {
        name.replace("_", "-"): {"nouveau": {}, "kernel": {"limits": {"memlock": one}}} for name, one in specs.items()
    }
    named = {NAME if name == "first" else name: {**variables, "gpuprov": spec} for name, spec in asked.items()}
    file = hosts / "hosts.yaml"
    file.write_text(json.dumps({"all": {**known["all"], "hosts": named}}), encoding="utf-8")
    mine = {"XDG_STATE_HOME": str(place / "state"), "XDG_CACHE_HOME": str(place / "cache")}
    where = [NAME, str(hosts)] if verb == "rollback" else [str(hosts)]
    done = subprocess.run(
        [GPUPROV, verb, *where, *more], env={**os.environ, **mine}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False, timeout=600,
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == code, done.stdout
    return done.stdout


def limit(site: Machine) -> str:
    return site.sh("grep -rhoE 'memlock [0-9]+' /etc/security/limits.d | sort -u").strip()


def test_bytes_that_are_not_utf8_end_nothing(site: Machine, tmp_path: Path) -> None:
    site.sh(DIRTY)
    run(site, tmp_path, "apply", "--yes", first=1000000)
    run(site, tmp_path, "verify", first=1000000)
    site.sh(r"printf '\200' >>/var/lib/gpuprov/receipt.json")
    run(site, tmp_path, "plan", first=2000000)
    told = run(site, tmp_path, "apply", "--yes", first=2000000)
    assert "UTF8" not in told
    assert limit(site) == "memlock 2000000"
    site.sh("test -f /var/lib/gpuprov/receipt.json.damaged")
    run(site, tmp_path, "rollback", "--yes", first=2000000)
    assert limit(site) == "memlock 1000000"
    assert site.sh(r"grep -lr $(printf 'caf\351') /etc/apt /etc/default/grub | wc -l").strip() != "0", (
        "the site's own stay"
    )
    kept = site.sh("cat /usr/lib/os-release")
    site.sh(r"""printf 'X="caf\200"\n' >>/usr/lib/os-release""")
    told = run(site, tmp_path, "apply", "--yes", first=3000000, code=3)
    assert "/etc/os-release has a byte that is not UTF-8" in told
    assert limit(site) == "memlock 1000000"
    site.write("/usr/lib/os-release", kept)


def test_a_machine_with_two_names_is_changed_by_one(site: Machine, tmp_path: Path) -> None:
    both = {"first": 4000000, "gpu017_ib": 5000000}
    said = "the same machine as e2e-bytes, by which name alone a run works on it"
    for more in ([], ["--serial", "1"]):
        told = run(site, tmp_path, "apply", "--yes", *more, code=3, **both)
        assert said in " ".join(told.split())
        assert limit(site) == "memlock 4000000"
    run(site, tmp_path, "apply", "--yes", "--run", "friday", "--limit", NAME, first=4100000, gpu017_ib=5000000)
    told = run(site, tmp_path, "apply", "--yes", "--run", "friday", "--limit", "gpu017-ib", code=3, **both)
    assert said in " ".join(told.split())
    assert limit(site) == "memlock 4100000"
    told = run(site, tmp_path, "verify", code=1, **both)
    assert " ".join(told.split()).count("e2e-bytes, gpu017-ib are one machine") == 1
