"""The collection as a user has it: built, installed by ansible-galaxy, its documentation read, its roles and modules
run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import collection

pytestmark = pytest.mark.install
BIN = Path(sys.executable).parent
SPEC: dict[str, object] = {"nouveau": {}, "persistence": {}}


def run(*words: str | Path, installed: Path, fails: bool = False) -> str:
    """What a program of Ansible's prints that knows the installed collection and nothing of this checkout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE")}
    environment |= {"ANSIBLE_COLLECTIONS_PATH": str(installed), "ANSIBLE_NOCOLOR": "1"}
    command = [str(BIN / words[0]), *map(str, words[1:])]
    done = subprocess.run(command, cwd=installed, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == fails, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return collection.build(tmp_path_factory.mktemp("built"), at=1_790_000_000)


@pytest.fixture(scope="module")
def installed(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    run("ansible-galaxy", "collection", "install", "--offline", "-p", folder, archive, installed=folder)
    return folder


def write_play(folder: Path, *plays: object) -> Path:
    path = folder / "play.yml"
    path.write_text(json.dumps(plays), encoding="utf-8")
    return path


def write_inventory(folder: Path, spec: object) -> Path:
    path = folder / "inventory.yaml"
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "gpuprov": spec}
    path.write_text(yaml.safe_dump({"all": {"hosts": {"gpu1": host}}}), encoding="utf-8")
    return path


def test_the_same_tree_gives_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        assert collection.build(tmp_path, at=1_790_000_000).read_bytes() == archive.read_bytes()
    finally:
        os.umask(old)


def test_galaxy_finds_every_file_as_the_manifest_says(installed: Path) -> None:
    told = run("ansible-galaxy", "collection", "verify", "--offline", collection.NAME, installed=installed)
    assert "Successfully verified" in told


def test_ansible_doc_knows_every_module_and_role(installed: Path) -> None:
    modules = {f"{collection.NAME}.{path.stem}" for path in (collection.ROOT / "plugins/modules").glob("*.py")}
    found = json.loads(run("ansible-doc", "--json", *sorted(modules), installed=installed))
    assert found.keys() == modules
    roles = json.loads(run("ansible-doc", "-t", "role", "--json", "-l", collection.NAME, installed=installed))
    specified = {path.parts[-3] for path in (collection.ROOT / "roles").glob("*/meta/argument_specs.yml")}
    assert {name.rpartition(".")[2] for name in roles} == specified


def test_every_role_and_playbook_is_known_by_its_full_name(installed: Path, tmp_path: Path) -> None:
    names = [path.name for path in (collection.ROOT / "roles").iterdir() if path.name != "host"]
    roles = [{"role": f"{collection.NAME}.{name}"} for name in sorted(names)]
    play = write_play(tmp_path, {"hosts": "all", "gather_facts": False, "roles": roles})
    inventory = write_inventory(tmp_path, SPEC)
    run("ansible-playbook", "-i", inventory, "--syntax-check", play, installed=installed)
    run("ansible-playbook", "-i", inventory, "--syntax-check", f"{collection.NAME}.site", installed=installed)
    missing = write_play(tmp_path, {"hosts": "all", "roles": [f"{collection.NAME}.nothing"]})
    told = run("ansible-playbook", "-i", inventory, "--syntax-check", missing, installed=installed, fails=True)
    assert "was not found" in told


def test_a_role_reads_the_spec_as_gpuprov_check_does(installed: Path, tmp_path: Path) -> None:
    inventory = write_inventory(tmp_path, {**SPEC, "persistense": {}})
    play = write_play(tmp_path, {"hosts": "all", "gather_facts": False, "roles": [f"{collection.NAME}.persistence"]})
    run("gpuprov", "check", inventory, installed=installed, fails=True)
    told = run("ansible-playbook", "-i", inventory, "--check", play, installed=installed, fails=True)
    assert "persistense" in told
    assert "couldn't resolve module/action" not in told


def test_every_module_finds_its_code_on_the_host(installed: Path, tmp_path: Path) -> None:
    """A module that starts refuses an option that it does not have; one that lacks what it imports says so."""
    plugins = collection.ROOT / "plugins"
    alone = {path.stem for path in (plugins / "modules").glob("*.py")} - {
        path.stem for path in (plugins / "action").glob("*.py")
    }
    tasks = [
        {f"{collection.NAME}.{name}": {"no_such_option": 1}, "ignore_errors": True, "register": f"told_{name}"}
        for name in sorted(alone)
    ]
    began = "Unsupported parameters|missing required arguments|state is"
    tasks += [{"ansible.builtin.assert": {"that": [f"told_{name}.msg is match('{began}')"]}} for name in sorted(alone)]
    play = write_play(tmp_path, {"hosts": "all", "gather_facts": False, "tasks": tasks})
    told = run("ansible-playbook", "-i", write_inventory(tmp_path, SPEC), play, installed=installed)
    assert f"ok={2 * len(alone)} " in told
