"""The cache answers without Ansible, is never stale, and never holds what it must not."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuprov.core import disk_cache
from gpuprov.inventory import cache, load
from tests.inventory.files import GOOD, indented, lay, locked

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def entries() -> list[Path]:
    return sorted(Path(".cache").glob("gpuprov/inventory/*"))


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def test_a_hit_does_not_import_ansible() -> None:
    lay({"inventory.yaml": GOOD})
    load(["inventory.yaml"])
    code = "from gpuprov.inventory import load\nprint(len(load(['inventory.yaml'], limit='train*').hosts)"
    assert run(f"{code}, 'ansible' in sys.modules, 'jinja2' in sys.modules)") == "2 False False\n"


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = "{'ansible', 'yaml', 'jinja2', 'difflib', 'hashlib', 'pathlib', 'configparser', 'fnmatch'}"
    before = f"import msgspec; before = {heavy} & set(sys.modules)\n"
    assert run(f"{before}import gpuprov.inventory\nprint(sorted({heavy} & set(sys.modules) - before))") == "[]\n"


def test_a_hit_is_equal_to_what_was_read() -> None:
    lay(
        {
            "prod/hosts.yaml": GOOD
            + '    range:\n      hosts: {"n[01:20]": {gpuprov: {kernel: {blacklist: [a, b]}}}}\n',
            "prod/group_vars/all.yml": "gpuprov: {x: {y: [1, 2.5, true, null]}}\nansible_user: root\n",
            "prod/host_vars/gpu02.yml": "ansible_ssh_private_key_file: ~/.ssh/id\ngpu_prov: 1\n",
        }
    )
    first = load(["prod"])
    assert len(entries()) == 1
    second = load(["prod"])
    assert first == second
    assert second == load(["prod"], cache=False)
    assert second.warnings == first.warnings
    shared = {id(host.values) for host in second.hosts if host.name.startswith("n")}
    assert len(shared) == 1


def test_the_file_is_private_and_whole() -> None:
    lay({"inventory.yaml": GOOD})
    load(["inventory.yaml"])
    (entry,) = entries()
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    assert stat.S_IMODE(entry.parent.stat().st_mode) == 0o700


def spoil_content(entry: Path) -> None:
    data = bytearray(entry.read_bytes())
    data[-3] ^= 1
    entry.write_bytes(data)


def spoil_length(entry: Path) -> None:
    entry.write_bytes(entry.read_bytes()[:40])


def open_to_all(entry: Path) -> None:
    entry.chmod(0o644)


def make_link(entry: Path) -> None:
    entry.rename("elsewhere")
    entry.symlink_to(Path("elsewhere").absolute())


def give_away(entry: Path) -> None:
    os.chown(entry, 65534, -1)


@pytest.mark.parametrize("spoil", [spoil_content, spoil_length, open_to_all, make_link, give_away])
def test_an_unsound_entry_is_ignored(spoil: Callable[[Path], None]) -> None:
    if spoil is give_away and os.geteuid() != 0:
        pytest.skip("needs root to give a file away")
    lay({"inventory.yaml": GOOD})
    first = load(["inventory.yaml"])
    (entry,) = entries()
    assert cache.read(entry.stem) is not None
    spoil(entry)
    assert cache.read(entry.stem) is None
    assert load(["inventory.yaml"]) == first
    assert cache.read(entry.stem) is not None


CHANGES: dict[str, Callable[[pytest.MonkeyPatch], object]] = {
    "content": lambda _: lay({"inventory.yaml": GOOD.replace("535", "550")}),
    "new group_vars file": lambda _: lay({"group_vars/training.yml": "gpuprov: {x: 1}\n"}),
    "new file in a group_vars folder": lambda _: lay({"group_vars/all/new.yml": "gpuprov: {x: 1}\n"}),
    "changed group_vars file": lambda _: lay({"group_vars/all/old.yml": "gpuprov: {y: 2}\n"}),
    "new host_vars file": lambda _: lay({"host_vars/gpu01.yml": "gpuprov: {x: 1}\n"}),
    "removed file": lambda _: Path("group_vars/all/old.yml").unlink(),
    "executable": lambda _: Path("inventory.yaml").chmod(0o755),
    "environment": lambda patch: patch.setenv("ANSIBLE_HASH_BEHAVIOUR", "merge"),
    "ansible.cfg": lambda _: lay({"ansible.cfg": "[defaults]\nforks=7\n"}),
    "home ansible.cfg": lambda _: lay({"home/.ansible.cfg": "[defaults]\nforks=7\n"}),
    "variable plugin": lambda _: lay({"home/.ansible/plugins/vars/mine.txt": "x"}),
    "gpuprov version": lambda patch: patch.setattr(cache, "__version__", "99"),
    "python version": lambda patch: patch.setattr(sys, "version", "4"),
    "vault": lambda _: lay({"group_vars/all/vault.yml": locked("a: 1\n")}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_seen(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lay({"inventory.yaml": GOOD, "group_vars/all/old.yml": "gpuprov: {y: 1}\n", "unrelated.txt": "1"})
    paths = [str(Path("inventory.yaml").absolute())]
    first = cache.compute_key(paths)
    lay({"unrelated.txt": "2"})
    assert cache.compute_key(paths) == first != None  # noqa: E711
    CHANGES[change](monkeypatch)
    assert cache.compute_key(paths) != first


def test_the_current_folder_is_part_of_the_key(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay({"inventory.yaml": GOOD, "sub/x": ""})
    first = cache.compute_key([str(here / "inventory.yaml")])
    monkeypatch.chdir(here / "sub")
    assert cache.compute_key([str(here / "inventory.yaml")]) != first


def test_changed_content_gives_the_new_answer() -> None:
    lay({"inventory.yaml": GOOD})
    load(["inventory.yaml"])
    lay({"group_vars/training.yml": "gpuprov: {x: 1}\n"})
    assert load(["inventory.yaml"]).hosts[0].values["x"] == 1
    lay({"group_vars/training.yml": "gpuprov: {x: 2}\n"})
    assert load(["inventory.yaml"]).hosts[0].values["x"] == 2
    assert len(entries()) == 3


def with_variable(text: str) -> dict[str, str | bytes]:
    return {"inventory.yaml": f"all:\n  vars:\n    {text}\n  hosts: {{gpu01: {{}}}}\n"}


NEVER: dict[str, dict[str, str | bytes]] = {
    "vaulted file": {"inventory.yaml": GOOD, "group_vars/all.yml": locked("a: 1\n"), "password": "hunter2"},
    "inline vault": {
        "inventory.yaml": "all:\n  vars:\n    a: !vault |\n" + indented(locked("x"), 6) + "  hosts: {gpu01: {}}\n",
        "password": "hunter2",
    },
    "template": with_variable('gpuprov: {x: "{{ inventory_hostname }}"}'),
    "template in the connection": with_variable('ansible_host: "{{ inventory_hostname }}.example.org"'),
    "password": with_variable("ansible_password: hunter2"),
    "ssh password": with_variable("ansible_ssh_pass: hunter2"),
    "become password": with_variable("ansible_become_password: hunter2"),
    "token in the spec": with_variable("gpuprov: {registry: {api_token: hunter2}}"),
    "private key": with_variable("ansible_ssh_private_key: hunter2"),
    "date, which would come back as text": with_variable("gpuprov: {x: 2026-01-01}"),
    "script": {"inventory.sh": '#!/bin/sh\necho \'{"all": {"hosts": ["gpu01"]}}\'\n'},
    "script in a folder": {
        "inventory/a.sh": '#!/bin/sh\necho \'{"all": {"hosts": ["gpu01"]}}\'\n',
        "inventory/b.yaml": GOOD,
    },
    "plugin configuration": {
        "inventory/a.yaml": GOOD,
        "inventory/b.yaml": "plugin: ansible.builtin.constructed\ngroups: {x: true}\n",
    },
}


@pytest.mark.parametrize("name", NEVER)
def test_never_kept(name: str) -> None:
    files = NEVER[name]
    lay(files)
    source = next(iter(files)).split("/", maxsplit=1)[0]
    passwords = ["password"] if "password" in files else []
    assert load([source], vault_password_files=passwords).hosts
    assert entries() == []


def test_not_kept_when_told_so_or_when_it_cannot_be(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay({"inventory.yaml": GOOD, "file": ""})
    load(["inventory.yaml"], cache=False)
    assert entries() == []
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "file"))
    assert len(load(["inventory.yaml"]).hosts) == 2


def test_old_entries_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_cache, "KEPT", 2)
    for number in range(4):
        lay({"inventory.yaml": GOOD.replace("535", str(number))})
        load(["inventory.yaml"])
    assert len(entries()) == 2
