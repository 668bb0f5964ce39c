"""Package sources with the real apt and the real dnf: a signed repository, the wrong keys, no answer, somebody else's
source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuprov.capabilities.base import Outcome
from gpuprov.capabilities.package_sources import judge
from gpuprov.core import assets
from gpuprov.facts.probes.host.family import Family
from gpuprov.facts.probes.software.repositories import REPOSITORIES
from gpuprov.host_code import sources
from gpuprov.simulate import container, hosts, inventory
from gpuprov.simulate.description import Description
from gpuprov.simulate.parts import identity
from tests.e2e import package_repository
from tests.e2e.machine import FORGET_ARCHIVE
from tests.e2e.package_repository import NAME, Key
from tests.here import PLUGINS

pytestmark = pytest.mark.e2e
PLAY = [
    {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.setup": {"gather_subset": ["!all", "min", "virtual", "python"]}},
            {"gpuprov_repository": {"repository": "{{ source }}"}},
        ],
    }
]
HOSTS = {"debian": ("e2e-repositories-apt", "debian12"), "redhat": ("e2e-repositories-dnf", "rocky9")}
FILES = (
    "ls -R /etc/apt/sources.list.d /etc/apt/keyrings /etc/yum.repos.d /etc/pki/rpm-gpg 2>&1 | sort; rpm -q "
    "gpg-pubkey || :"
)


@dataclass
class Stage:
    """A host with a repository in /srv, and an Ansible project with nothing but the module that is tested."""

    folder: Path
    host: str
    family: Family
    good: Key
    bad: Key

    @property
    def block(self) -> sources.Source:
        """The repository as a spec says it."""
        apt = self.family == "debian"
        return {
            "name": "test", "of": "nvidia_driver.repository", "url": "file:///srv/repository",
            "key_file": str(self.good.file),
            "suite": "stable" if apt else "/", "components": ["main"] if apt else [], "key_url": "",
            "fingerprint": self.good.fingerprint, "signed": "both",
        }  # fmt: skip

    def play(self, *options: str, **changed: Any) -> tuple[int, str]:
        """Run the role with the block, changed so; its exit code and words."""
        (self.folder / "vars.json").write_text(json.dumps({"source": {**self.block, **changed}}))
        program = Path(sys.executable).with_name("ansible-playbook")
        done = subprocess.run(
            [program, "-i", "hosts.yml", "play.yml", "-e", "@vars.json", *options], cwd=self.folder,
            capture_output=True,
            text=True, check=False, env={**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"),
                                         "ANSIBLE_NOCOLOR": "1"},
        )  # fmt: skip
        print(done.stdout, done.stderr)
        return done.returncode, done.stdout + done.stderr

    def refused(self, *words: str, **changed: Any) -> None:
        """The block changed so is refused with these words and a way out, and nothing on the host is changed."""
        before = self.sh(FILES)
        code, said = self.play(**changed)
        assert code == 2
        for word in (*words, "Fix:", "nvidia_driver.repository"):
            assert word in said
        assert self.sh(FILES) == before

    def judged_on_the_controller(self) -> None:
        """What is refused before the host is asked is looked at once, for one family."""
        if self.family != "debian":
            pytest.skip("judged on the controller: the same for both families")

    def sh(self, script: str) -> str:
        return container.run(self.host, script)

    def checked(self) -> Outcome:
        """What the check says of the host."""
        return judge(sources.parse(self.sh(f"set +e\n{REPOSITORIES.script}")), self.block, self.family)


@pytest.fixture(scope="module", params=["debian", pytest.param("redhat", marks=pytest.mark.slow)])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    family: Family = request.param
    folder = tmp_path_factory.mktemp("repositories")
    name, distribution = HOSTS[family]
    keys = [package_repository.make_key(folder / name) for name in ("good", "bad")]
    make = package_repository.apt if family == "debian" else package_repository.rpm
    make(folder / "repository", keys[0])
    for key in keys:
        package_repository.end(key)
    container.down(name)
    description = Description(distribution=distribution)
    host = container.up(name, description, volumes=((folder / "repository", "/srv/repository"),))
    container.run(name, FORGET_ARCHIVE)
    if description.known.stands_in:
        container.write(name, hosts.archive(dict(identity.part(name, description).files)))
        container.run(name, "rm -f /etc/debian_version; mkdir -p /etc/yum.repos.d")
    inventory.write([host], folder / "hosts.yml")
    catalogue: dict[str, Any] = {"gpu_services": [], "platforms": {}}
    (folder / "group_vars").mkdir()
    (folder / "group_vars/all.json").write_text(json.dumps({"gpuprov_catalog": catalogue}))
    (folder / "ansible.cfg").write_text(
        f"[defaults]\nroles_path = {assets.root()}/roles\nlibrary = {PLUGINS}/modules\naction_plugins = "
        f"{PLUGINS}/action\n"
        f"module_utils = {PLUGINS}/module_utils\n[ssh_connection]\npipelining = true\n"
    )
    (folder / "play.yml").write_text(json.dumps(PLAY))
    yield Stage(folder, name, family, *keys)
    container.down(name)


def test_check_mode_says_what_it_would_write_and_writes_nothing(stage: Stage) -> None:
    before = stage.sh(FILES)
    code, said = stage.play("--check", "--diff")
    assert code == 0
    assert "file:///srv/repository" in said
    assert stage.sh(FILES) == before
    assert "is not there" in stage.checked().found


def test_the_source_is_there_and_the_second_run_changes_nothing(stage: Stage) -> None:
    assert stage.play()[0] == 0
    install = f"apt-get -qq install -y {NAME}" if stage.family == "debian" else f"dnf -q -y install {NAME}"
    assert stage.sh(f"{install} 2>&1; echo installed").endswith("installed\n")
    assert stage.checked().status == "pass"
    code, said = stage.play()
    assert code == 0
    assert "changed=0" in said


def test_another_fingerprint_is_refused(stage: Stage) -> None:
    stage.judged_on_the_controller()
    stage.refused(stage.good.fingerprint, f"expected is {stage.bad.fingerprint}", fingerprint=stage.bad.fingerprint)


def test_a_repository_that_another_key_has_signed_is_refused(stage: Stage) -> None:
    stage.refused(
        "the key that its owner signs it with", key_file=str(stage.bad.file), fingerprint=stage.bad.fingerprint
    )


def test_a_repository_that_does_not_answer_is_refused(stage: Stage) -> None:
    stage.refused("cannot use http://127.0.0.1:9/x", "the host's proxy", url="http://127.0.0.1:9/x")


def test_a_key_over_plain_http_is_refused(stage: Stage) -> None:
    stage.judged_on_the_controller()
    stage.refused("over https only", key_file="", key_url="http://127.0.0.1:9/key.asc")


def test_a_key_that_cannot_be_fetched_is_refused(stage: Stage) -> None:
    stage.judged_on_the_controller()
    stage.refused(
        "could not fetch the key https://127.0.0.1:9/key.asc", key_file="", key_url="https://127.0.0.1:9/key.asc"
    )


def test_a_key_without_a_fingerprint_is_not_fetched(stage: Stage) -> None:
    stage.judged_on_the_controller()
    stage.refused("no fingerprint says which key", key_file="", key_url="https://127.0.0.1:9/k", fingerprint="")


def test_somebody_elses_source_is_refused_by_its_name(stage: Stage) -> None:
    if stage.family == "debian":
        file, text = "/etc/apt/sources.list.d/other.list", "deb file:/srv/repository stable main"
    else:
        file, text = (
            "/etc/yum.repos.d/other.repo",
            "[other]\\nname=other\\nbaseurl=file:///srv/repository/\\ngpgcheck=0",
        )
    stage.sh(f"printf '{text}\\n' > {file}")
    try:
        stage.refused(f"{file} has file:", "remove it from")
        assert file in stage.checked().found
    finally:
        stage.sh(f"rm {file}")


def test_a_source_that_cannot_be_fetched_is_taken_away_again(stage: Stage) -> None:
    """The trial is good, and then the host's own settings stand in the way: a broken source of somebody else's."""
    if stage.family != "debian":
        pytest.skip("dnf reads each source by itself: none breaks another")
    assert stage.play(url="")[0] == 0
    broken = (
        "deb [signed-by=/usr/share/keyrings/a.gpg] file:/srv/x /\\ndeb [signed-by=/usr/share/keyrings/b.gpg] "
        "file:/srv/x /\\n"
    )
    stage.sh(f"printf '{broken}' > /etc/apt/sources.list.d/broken.list")
    try:
        stage.refused("was taken away again", "Conflicting values set for option Signed-By")
    finally:
        stage.sh("rm /etc/apt/sources.list.d/broken.list")


def test_a_source_that_is_no_longer_wanted_goes(stage: Stage) -> None:
    assert stage.play()[0] == 0
    assert stage.play(url="")[0] == 0
    assert "gpuprov-test" not in stage.sh(FILES)
