"""One bundle for three families, NVIDIA's repository (stand-ins) in it: served as a mirror, then applied to hosts
without a route."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuprov.bundle import opened
from gpuprov.simulate import container, inventory
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.distributions import Repository
from tests.e2e.lab import podman
from tests.e2e.machine import Machine, fresh
from tests.e2e.test_no_internet import CUT, gpuprov
from tests.pull.site import new_key

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
GPUS = Gpus(model="L40S", count=2)
BOTH: tuple[Repository, ...] = ("distribution", "nvidia")
HOSTS = {
    "e2e-offline-debian": Description(gpu=GPUS, driver="580", repositories=BOTH),
    "e2e-offline-rocky": Description(distribution="rocky9", gpu=GPUS, driver="580"),
    "e2e-offline-sles": Description(distribution="sles15", gpu=GPUS, driver="580"),
}
SPEC: dict[str, Any] = {"nouveau": {}, "nvidia_driver": {"version": "580", "source": "nvidia"}, "persistence": {}}
PORT = 8098
SERVE = f"cd /srv && nohup python3 -m http.server --bind 127.0.0.1 {PORT} >/dev/null 2>&1 & sleep 3"
AT = f"http://127.0.0.1:{PORT}/bundle"
# How a host takes packages from a static web server that has the folder: each index is signed by the key, which comes
# another way.
MIRROR = {
    "e2e-offline-debian": f"""mkdir -p /tmp/l/partial
echo 'deb [signed-by=/srv/key.asc] {AT}/debian12-amd64 ./' > /tmp/m.list
a() {{ apt-get -o Dir::Etc::sourcelist=/tmp/m.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=/tmp/l "$@"; }}
a -o APT::Update::Error-Mode=any update && a -y --download-only --no-install-recommends install nvidia-driver-cuda""",
    "e2e-offline-rocky": f"""d() {{
  dnf -y --repofrompath=m,{AT}/rocky9.6-x86_64 --repo=m --setopt=m.repo_gpgcheck=1 --setopt=m.gpgcheck=0 \\
    --setopt=m.module_hotfixes=1 --setopt=m.gpgkey=file:///srv/key.asc --setopt=cachedir=/tmp/c "$@"
}}
d makecache && d --downloadonly install nvidia-driver-cuda""",
    "e2e-offline-sles": f"""mkdir -p /tmp/r
z() {{ zypper --non-interactive --reposd-dir /tmp/r --cache-dir /tmp/c "$@"; }}
rpm --import /srv/key.asc
[ -e /tmp/r/m.repo ] || z addrepo --gpgcheck-strict {AT}/sles15.7-x86_64 m
z refresh && z install --download-only nvidia-compute-G06""",
}
CHANGED = (
    "for f in $(find /srv/bundle -name Packages -o -name primary.xml.gz); do echo >> $f; done; rm -rf /tmp/l /tmp/c"
)


@pytest.fixture
def sites() -> Iterator[dict[str, Machine]]:
    with fresh(HOSTS) as made:
        yield made


def test_hosts_of_three_families(sites: dict[str, Machine], tmp_path: Path) -> None:
    (tmp_path / "hosts").mkdir()
    inventory.write([site.host for site in sites.values()], tmp_path / "hosts/hosts.yaml")
    (tmp_path / "hosts/spec.yaml").write_text(json.dumps({"all": {"vars": {"gpuprov": SPEC}}}), encoding="utf-8")
    new_key(tmp_path)
    code, _, said = gpuprov(tmp_path, "bundle", "hosts", "--key", "key", "--out", "out/bundle")
    assert code == 0, said
    bundle, signers = tmp_path / "out/bundle", tmp_path / "out/bundle.allowed_signers"
    manifest = opened.opened(bundle, signers)
    assert [one.folder for one in manifest.repositories] == ["debian12-amd64", "rocky9.6-x86_64", "sles15.7-x86_64"]
    assert json.loads((bundle / "bom.json").read_text())["specVersion"] == "1.6"

    for name, site in sites.items():
        site.sh(
            CUT.replace(
                "rm -rf /var/lib/apt/lists/*; apt-get clean",
                "rm -rf /var/lib/apt/lists/* /var/cache/dnf /var/cache/zypp",
            )
        )
        podman("cp", str(bundle), f"{container.PREFIX}{name}:/srv/bundle")
        podman("cp", str(bundle / "key.asc"), f"{container.PREFIX}{name}:/srv/key.asc")
        site.sh(SERVE)
        site.sh(
            f"{{ {MIRROR[name]}\n}} >/tmp/mirror.log 2>&1 || {{ tail -n 30 /tmp/mirror.log | paste -sd ' ' >&2; "
            f"exit 1; }}"
        )
        site.sh(
            f"{CHANGED}\nif {{ {MIRROR[name]}\n}} >/tmp/mirror.log 2>&1; then echo 'a changed index was taken' >&2; "
            "exit 1; fi"
        )
        site.sh("pkill -f http.server; rm -rf /srv/bundle /srv/key.asc /tmp/l /tmp/c /tmp/r")

    before = {
        name: site.sh("cat /etc/yum.repos.d/* /etc/zypp/repos.d/* /etc/apt/sources.list.d/* 2>/dev/null || true")
        for name, site in sites.items()
    }
    keys = {name: site.sh("rpm -q gpg-pubkey 2>/dev/null | sort || true") for name, site in sites.items()}
    apply = ("apply", "hosts", "--yes", "--json", "--bundle", "out/bundle", "--signers", str(signers))
    code, told, said = gpuprov(tmp_path, *apply)
    assert {host["host"]: host["state"] for host in told["hosts"]} == dict.fromkeys(HOSTS, "changed"), (told, said)
    assert code == 0, said
    for name, site in sites.items():
        assert "580." in site.sh("modinfo -k $(ls /lib/modules | head -n 1) -F version nvidia")
        after = site.sh("cat /etc/yum.repos.d/* /etc/zypp/repos.d/* /etc/apt/sources.list.d/* 2>/dev/null || true")
        assert after == before[name], "the host's own sources are as they were"
        assert site.sh("rpm -q gpg-pubkey 2>/dev/null | sort || true") == keys[name], "no key of the bundle is left"
    code, told, said = gpuprov(tmp_path, *apply)
    assert {host["state"] for host in told["hosts"]} == {"unchanged"}, (told, said)
