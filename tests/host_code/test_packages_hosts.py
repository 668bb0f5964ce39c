"""Packages on hosts with the real apt and the real dnf: read, tried, refused, installed, held, removed, fixed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuprov import host_code
from gpuprov.facts.probes.host.family import Family
from gpuprov.facts.probes.software.rpm import search
from gpuprov.simulate import container, hosts
from gpuprov.simulate.description import Description
from gpuprov.simulate.parts import identity
from tests.e2e.machine import FORGET_ARCHIVE
from tests.host_code import package_repository
from tests.host_code.package_repository import NEW, OLD

pytestmark = pytest.mark.e2e
HOSTS: dict[Family, tuple[str, str]] = {
    "debian": ("e2e-packages-apt", "debian12"),
    "redhat": ("e2e-packages-dnf", "rocky9"),
}
SOURCES = {
    "debian": (
        "/etc/apt/sources.list.d/gpuprov-test.sources",
        "Types: deb\nURIs: file:///srv/repository\nSuites: ./\nTrusted: yes\n",
    ),
    "redhat": (
        "/etc/yum.repos.d/gpuprov-test.repo",
        "[gpuprov-test]\nname=test\nbaseurl=file:///srv/repository\ngpgcheck=0\n",
    ),
}
# What the module does, without Ansible.
RUNNER = """
import json, sys
from gpuprov_host_code.packages import actions, choice, model
given = json.load(sys.stdin)
try:
    manager = choice.choose_manager(model.Settings(given["patience"], tuple(given["without"])))
    print(json.dumps(actions.ACTIONS[given["asked"]["action"]](manager, given["asked"], given["check"])))
except model.Refused as refused:
    print(json.dumps({"refused": str(refused)}))
"""
ASKED: dict[str, Any] = {
    "of": "it", "install": [], "remove": [], "may_remove": [], "pin": {}, "stream": "", "refuse": {},
    "fix": "ask somebody",
    "hold": [], "release": [], "names": [], "related": "", "source": "", "sources": {}, "max_age": 86400,
}  # fmt: skip
DRIVER_OLD = [f"Inst gp-driver {OLD}-1", f"Inst gp-lib {OLD}-1"]
DRIVER_NEW = [f"Inst gp-driver {NEW}-1", f"Inst gp-lib {NEW}-1"]


@dataclass
class Host:
    """A host with the repository in /srv, and what runs on hosts."""

    name: str
    family: Family

    def ask(
        self, action: str, check: bool = False, patience: int = 5, without: tuple[str, ...] = (), **asked: Any
    ) -> Any:
        """The answer of an action."""
        given = {
            "asked": {**ASKED, "action": action, **asked},
            "check": check,
            "patience": patience,
            "without": without,
        }
        self.sh(f"printf %s {shlex.quote(json.dumps(given))} > /tmp/request.json")
        return json.loads(self.sh(f"PYTHONPATH=/srv/host_code python3 -c {shlex.quote(RUNNER)} < /tmp/request.json"))

    def fetch(self) -> None:
        """Fetch the lists of our repository."""
        assert self.ask("fetch", source="test") == {"changed": False, "changes": [], "warnings": []}

    def settle(self, **asked: Any) -> list[str]:
        """What is changed."""
        answer = self.ask("settle", **asked)
        assert "refused" not in answer, answer
        return sorted(answer["changes"])

    def refused(self, action: str = "settle", **asked: Any) -> str:
        """The reason; the host's packages stay."""
        before = self.packages()
        answer = self.ask(action, **asked)
        assert "refused" in answer, answer
        assert self.packages() == before
        assert "Fix" in answer["refused"]
        return str(answer["refused"])

    def packages(self) -> dict[str, str]:
        """The versions of our packages."""
        known = self.ask("read")["installed"]
        return {name: version for name, version in known.items() if name.startswith("gp-")}

    def sh(self, script: str) -> str:
        return container.run(self.name, script)

    @property
    def manager(self) -> str:
        return {"debian": "apt", "redhat": "dnf"}[self.family]


@pytest.fixture(scope="module", params=["debian", "redhat"])
def booted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    family: Family = request.param
    name, distribution = HOSTS[family]
    folder = tmp_path_factory.mktemp("packages") / "repository"
    if family == "debian":
        package_repository.apt(folder)
    else:
        package_repository.rpm(folder, shell="-p <lua>")  # a userland of Debian's: rpm knows no shell
    container.down(name)
    description = Description(distribution=distribution)
    own = Path(str(host_code.__file__)).parent
    container.up(name, description, volumes=((folder, "/srv/repository"), (own, "/srv/host_code/gpuprov_host_code")))
    if description.known.stands_in:
        container.write(name, hosts.archive(dict(identity.part(name, description).files)))
    path, text = SOURCES[family]
    container.run(
        name,
        f"{FORGET_ARCHIVE}\nmkdir -p $(dirname {path}); printf {shlex.quote(text)} > {path}",
    )
    # What dnf takes the release from is a package of EL's, which has no part in this.
    container.run(name, "mkdir -p /etc/dnf/vars; echo 9 > /etc/dnf/vars/releasever")
    host = Host(name, family)
    host.fetch()
    yield host
    container.down(name)


@pytest.fixture
def host(booted: Host) -> Host:
    """With nothing of ours installed."""
    booted.sh("rm -f /var/lib/gpuprov/applying.json /etc/dnf/plugins/versionlock.list")
    if booted.family == "debian":
        names = "gp-driver gp-lib gp-user gp-clash gp-fails gp-spare"
        booted.sh(f"apt-mark -qq unhold {names} || :; dpkg --purge --force-all {names} > /dev/null 2>&1 || :")
    else:
        booted.sh("rpm -qa 'gp-*' | xargs -r rpm -e --nodeps")
    return booted


def test_what_is_on_offer_is_read_newest_first(host: Host) -> None:
    known = host.ask("read", names=["gp-driver", "gp-lib", "nobody-has-this"])
    assert known["index"] == {name: [f"{NEW}-1", f"{OLD}-1"] for name in ("gp-driver", "gp-lib")}
    assert known["held"] == known["lock_needs"] == []
    assert known["lock_problem"] == ""


def test_related_packages_are_asked_for_too(host: Host) -> None:
    host.settle(install=[f"gp-lib={OLD}-1"])
    known = host.ask("read", names=["gp-spare"], related="gp-(lib|driver)$")
    assert known["index"] == {"gp-lib": [f"{NEW}-1", f"{OLD}-1"], "gp-spare": ["1.0-1"]}
    assert [row[1:4] for row in known["rows"] if row[1] == "gp-lib"] == [["gp-lib", f"{OLD}-1", "gp-lib"]]


def test_a_trial_changes_nothing_and_downloads(host: Host) -> None:
    answer = host.ask("try", install=[f"gp-driver={OLD}-1", f"gp-lib={OLD}-1"])
    assert sorted(answer["trial"]) == DRIVER_OLD
    assert host.packages() == {}


def test_down_up_held_and_back(host: Host) -> None:
    both = ["gp-driver", "gp-lib"]
    old, new = ([f"{name}={version}-1" for name in both] for version in (OLD, NEW))
    assert sorted(host.ask("settle", check=True, install=old, hold=both)["changes"])[:2] == DRIVER_OLD
    assert host.packages() == {}
    assert [row for row in host.settle(install=old, hold=both) if row.startswith("Inst")] == DRIVER_OLD
    assert host.ask("read")["held"] == both
    assert host.settle(install=old, hold=both) == [], "a second time"
    assert [row for row in host.settle(install=new, hold=both) if row.startswith("Inst")] == DRIVER_NEW
    assert host.packages() == dict.fromkeys(both, f"{NEW}-1")
    assert host.ask("read")["held"] == both, "the holds have moved along"
    upgrade = "apt-get -s -qq dist-upgrade" if host.family == "debian" else "dnf -q -y upgrade"
    host.settle(install=old, hold=both)
    host.sh(upgrade)
    assert host.packages() == dict.fromkeys(both, f"{OLD}-1"), "nobody's upgrade moves what is held"
    host.settle(release=["gp-lib"])
    assert host.ask("read")["held"] == ["gp-driver"]


def test_a_version_that_nobody_offers_is_refused(host: Host) -> None:
    said = host.refused(install=["gp-driver=999-1"])
    assert said.startswith(f"{host.manager} cannot install it: ")
    assert "999-1" in said
    assert said.endswith("Fix: ask somebody")
    answer = host.ask("settle", check=True, install=["gp-driver=999-1"])
    assert (answer["changes"], "cannot install it yet" in answer["warnings"][0]) == ([], True)


def test_what_would_go_is_refused_unless_it_may(host: Host) -> None:
    host.settle(install=["gp-user"])
    said = host.refused("try", install=["gp-clash"])
    assert said.startswith(f"{host.manager} would remove gp-driver, gp-user for it. Fix: remove them yourself")
    assert host.settle(install=["gp-clash"], may_remove=["gp-driver", "gp-user"]) == [
        "Inst gp-clash 1.0-1", "Remv gp-driver", "Remv gp-user"
    ]  # fmt: skip


def test_anothers_packages_are_left_alone(host: Host) -> None:
    refuse = {"patterns": ["gp-(lib|driver).*", "x"], "why": "they are mine", "fix": "ask me"}
    said = host.refused("try", install=["gp-user"], refuse=refuse)
    assert said == (
        f"with it {host.manager} would install, move or remove gp-driver, gp-lib; they are mine. Nothing was "
        "changed or downloaded. Fix: ask me"
    )
    assert host.ask("try", install=["gp-spare"], refuse=refuse)["trial"] == ["Inst gp-spare 1.0-1"]


def test_packages_of_a_pin_come_in_no_other_version(host: Host) -> None:
    pin = {"version": OLD, "patterns": ["gp-lib", "gp-dri*"]}
    assert sorted(host.ask("try", install=["gp-user"], pin=pin)["trial"]) == [*DRIVER_OLD, "Inst gp-user 1.0-1"]
    assert "Fix" in host.refused("try", install=[f"gp-driver={NEW}-1"], pin=pin)


def test_one_transaction_removes_and_installs(host: Host) -> None:
    host.settle(install=["gp-user"])
    done = host.settle(install=["gp-clash", "gp-spare"], remove=["gp-driver", "gp-user"])
    assert done == ["Inst gp-clash 1.0-1", "Inst gp-spare 1.0-1", "Remv gp-driver", "Remv gp-user"]
    assert sorted(host.packages()) == ["gp-clash", "gp-lib", "gp-spare"]


def test_a_script_that_fails_is_told(host: Host) -> None:
    if host.family == "debian":
        answer = host.ask("settle", install=["gp-fails"])
        assert answer["refused"].startswith("apt could not install it: ")
        assert "gp-fails" in answer["refused"]
        assert answer["refused"].endswith("which completes the transaction")
        assert "not by gpuprov" in host.ask("prepare")["refused"]
        host.sh("mkdir -p /var/lib/gpuprov; touch /var/lib/gpuprov/applying.json")
        assert "cannot be repaired" in host.ask("prepare")["refused"]
        host.sh("sed -i 's/exit 3/exit 0/' /var/lib/dpkg/info/gp-fails.postinst")
        assert host.ask("prepare", check=True)["changed"]
        assert "gp-fails" in host.ask("prepare")["changes"][0]
        assert host.ask("prepare")["changes"] == []
        return
    answer = host.ask("settle", install=["gp-fails"])
    assert answer["changes"] == ["Inst gp-fails 1.0-1"]
    assert "all packages are in place, but dnf says" in answer["warnings"][0]


def test_the_files_of_packages(host: Host) -> None:
    found = host.ask("files", install=[f"gp-lib={OLD}-1", f"gp-driver={NEW}-1"])["files"]
    assert [
        host.sh(f"test -s {path} && basename {path}").partition("_")[0].partition("-5")[0].strip() for path in found
    ] == ["gp-lib", "gp-driver"]
    assert "999" in host.refused("files", install=["gp-lib=999-1"])


def test_a_source_that_is_to_leave_is_not_seen(host: Host) -> None:
    if host.family != "debian":
        pytest.skip("only Debian's own driver has no use for a source")
    assert host.ask("read", names=["gp-lib"], without=("test",))["index"] == {}
    assert "gp-lib" in host.refused("try", install=["gp-lib"], without=("test", "other"))
    assert "gp-lib" in host.ask("read", names=["gp-lib"], without=("other",))["index"]
    assert host.sh("ls /tmp | grep gpuprov-apt || :") == ""


def test_lists_that_cannot_be_fetched(host: Host) -> None:
    path = SOURCES[host.family][0]
    host.sh(f"cp {path} /tmp/kept; sed -i s,/srv/repository,/srv/nothing, {path}")
    try:
        older = host.ask("prepare", max_age=-1)
        assert "the older package lists are used" in older["warnings"][0]
        assert re.search("nothing|gpuprov-test", host.ask("fetch", source="test")["refused"])
    finally:
        host.sh(f"cp /tmp/kept {path}")
        host.fetch()


LOCKED = """python3 -c 'import fcntl, time; f = open("{}", "w"); fcntl.lockf(f, fcntl.LOCK_EX); time.sleep({})' > /dev/null 2>&1 &
echo $! > /tmp/locker; sleep 0.5"""


def test_another_package_manager_is_waited_for(host: Host) -> None:
    if host.family != "debian":
        pytest.skip("what dnf itself locks is its own process id")
    host.sh(LOCKED.format("/var/lib/dpkg/lock-frontend", 4))
    assert host.settle(install=["gp-spare"]) == ["Inst gp-spare 1.0-1"]
    host.sh(LOCKED.format("/var/lib/apt/lists/lock", 10))
    assert host.ask("prepare", max_age=-1, patience=60)["warnings"] == []
    host.sh(LOCKED.format("/var/lib/apt/lists/lock", 100))
    (warning,) = host.ask("prepare", max_age=-1, patience=0)["warnings"]
    assert "Could not get lock" in warning, "no longer than asked for"
    host.sh("kill $(cat /tmp/locker)")


def test_another_dnf_that_fetches_lists_is_waited_for(host: Host) -> None:
    if host.family != "redhat":
        pytest.skip("apt's locks are above")
    lock, source = "/var/cache/dnf/metadata_lock.pid", "/etc/yum.repos.d/gpuprov-other.repo"
    host.sh(f"sed 's/gpuprov-test/gpuprov-other/' {SOURCES['redhat'][0]} > {source}")
    try:
        host.sh(f"sleep 8 > /dev/null 2>&1 & echo $! > {lock}")
        assert "refused" not in host.ask("fetch", source="other", patience=60)
        host.sh(f"sleep 100 > /dev/null 2>&1 & echo $! | tee {lock} > /tmp/locker")
        refused = host.ask("fetch", source="other", patience=0)["refused"]
        assert "already locked by" in refused, refused
    finally:
        host.sh(f"kill $(cat /tmp/locker); rm -f {lock} {source}")


SILENT = """import socket, time
one = socket.create_server(("127.0.0.1", 8099), backlog=64)
time.sleep(300)"""


def test_a_rollback_waits_little_for_a_mirror_that_says_nothing(host: Host) -> None:
    if host.family != "redhat":
        pytest.skip("apt asks no mirror for what its lists have")
    path = SOURCES["redhat"][0]
    host.sh(
        f"cp {path} /tmp/kept; rm -rf /var/cache/dnf/*; sed -i s,file:///srv/repository,http://127.0.0.1:8099/, "
        f"{path}; "
        f"python3 -c '{SILENT}' > /dev/null 2>&1 & echo $! > /tmp/silent"
    )
    offered = "from gpuprov_host_code import kept_rpms; print(kept_rpms.offered(['gp-spare']))"
    try:
        said = host.sh(f'PYTHONPATH=/srv/host_code timeout 90 python3 -c "{offered}" 2>&1 || true')
        assert "Failed to download metadata for repo 'gpuprov-test'" in said, said
    finally:
        host.sh(f"kill $(cat /tmp/silent); cp /tmp/kept {path}")
        host.fetch()


def test_a_rollback_does_without_a_mirror_that_does_not_answer(host: Host) -> None:
    if host.family != "redhat":
        pytest.skip("apt asks no mirror for what its lists have")
    path, kept = SOURCES["redhat"][0], "/etc/yum.repos.d/gpuprov-kept.repo"
    host.sh(
        f"cp {path} /tmp/kept; rm -rf /var/cache/dnf/*; sed -i s,file:///srv/repository,http://127.0.0.1:9/no, {path}"
    )
    try:
        assert "repo 'gpuprov-test'" in host.ask("read", names=["gp-spare"])["refused"]
        host.sh(f"sed 's/gpuprov-test/gpuprov-kept/' /tmp/kept > {kept}")
        assert "repo 'gpuprov-test'" in host.ask("prepare", max_age=-1)["warnings"][0]
        assert host.ask("read", names=["gp-spare"])["index"] == {"gp-spare": ["1.0-1"]}
        assert host.sh(search("gp-spare", form="%{name}")) == "gp-spare\n"
        assert host.settle(install=["gp-spare"]) == ["Inst gp-spare 1.0-1"]
    finally:
        host.sh(f"cp /tmp/kept {path}; rm -f {kept}; rm -rf /var/cache/dnf/gpuprov-kept*")
        host.fetch()


def test_what_dnf_left_twice_is_mended_if_it_is_ours(host: Host) -> None:
    if host.family != "redhat":
        pytest.skip("dpkg has no package twice")
    host.settle(install=[f"gp-lib={OLD}-1"])
    host.sh(f"rpm -i --justdb --nodeps --force /srv/repository/gp-lib-{NEW}.rpm")
    said = host.ask("prepare")["refused"]
    assert said.startswith("gp-lib stand(s) twice")
    host.sh("mkdir -p /var/lib/gpuprov; touch /var/lib/gpuprov/applying.json")
    assert host.ask("prepare")["changes"] == ["remove the older gp-lib"]
    assert host.sh("rpm -q gp-lib") == f"gp-lib-{NEW}-1.noarch\n"


def test_a_package_without_a_signature_is_refused_where_signatures_are_checked(host: Host) -> None:
    if host.family != "redhat":
        pytest.skip("apt checks the index")
    path = SOURCES["redhat"][0]
    host.sh(f"sed -i s/gpgcheck=0/gpgcheck=1/ {path}")
    try:
        said = host.refused("try", install=["gp-spare"])
        assert "could not be downloaded, nothing was changed: gp-spare" in said
        assert "is not signed with a known key" in said
    finally:
        host.sh(f"sed -i s/gpgcheck=1/gpgcheck=0/ {path}")


def test_locks_that_dnf_does_not_obey(host: Host) -> None:
    if host.family != "redhat":
        pytest.skip("apt's holds need no plugin")
    host.settle(install=["gp-lib"])
    host.sh("printf '[main]\\nenabled=0\\n' > /etc/dnf/plugins/versionlock.conf")
    try:
        assert "does not obey" in host.ask("read")["lock_problem"]
        assert "does not obey" in host.refused(hold=["gp-lib"])
    finally:
        host.sh("rm /etc/dnf/plugins/versionlock.conf")
