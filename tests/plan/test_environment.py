"""What the operator's environment and ansible.cfg say of a run of Ansible: how hosts are reached, and nothing else."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.constants import config as ansible_settings

from gpuprov.core import temporary
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.collect.environment import FORCED, KEPT, changes, is_kept
from gpuprov.plan import playbook
from gpuprov.plan.workspace import PREFIX, remove_leftovers, workspace

SITE = """\
- name: Only act
  hosts: all
  gather_facts: false
  tasks:
    - {name: Say a word, ansible.builtin.debug: {msg: "{{ word.inner }} {{ word.outer | default('none') }}"}}
    - {name: Skip it, ansible.builtin.debug: {msg: skipped}, when: false}
    - {name: Fail on one, ansible.builtin.fail: {msg: "wrong on purpose"}, when: inventory_hostname == 'b'}
    - {name: Go on, ansible.builtin.debug: {msg: on}}
"""
INVENTORY = """\
all:
  vars: {ansible_connection: local, ansible_python_interpreter: "%s", word: {outer: of-all}}
  hosts: {a: {word: {inner: said}}, b: {word: {inner: said}}}
"""
ADVERSE = {
    "STDOUT_CALLBACK": "debug",
    "CALLBACK_RESULT_FORMAT": "yaml",
    "CALLBACKS_ENABLED": "ansible.builtin.oneline,ansible.builtin.tree,nowhere.to.find",
    "LOAD_CALLBACK_PLUGINS": "true",
    "DISPLAY_SKIPPED_HOSTS": "false",
    "DISPLAY_OK_HOSTS": "false",
    "DISPLAY_FAILED_STDERR": "true",
    "NO_LOG": "true",
    "VERBOSITY": "4",
    "DEBUG": "true",
    "STRATEGY": "free",
    "RUN_TAGS": "other",
    "SKIP_TAGS": "untagged",
    "ANY_ERRORS_FATAL": "true",
    "HASH_BEHAVIOUR": "merge",
    "PRECEDENCE": "all_inventory",
    "ENABLE_TASK_DEBUGGER": "true",
    "CACHE_PLUGIN": "jsonfile",
    "CACHE_PLUGIN_CONNECTION": "/proc/nowhere",
    "TASK_TIMEOUT": "1",
    "FORCE_COLOR": "true",
    "DISPLAY_TRACEBACK": "always",
    "LIBRARY": "/nowhere",
    "INVENTORY_ENABLED": "ini",
    "ERROR_ON_UNDEFINED_VARS": "false",
    "GATHERING": "explicit",
    "FORCE_HANDLERS": "true",
}


def ini(name: str) -> tuple[str, str]:
    """Where ansible.cfg says what a variable says."""
    known: Any = ansible_settings.get_configuration_definitions(ignore_private=False)
    for one in known.values():
        if any(env["name"] == f"ANSIBLE_{name}" for env in one.get("env", ())):
            place = one["ini"][0]
            return place["section"], place["key"]
    return "defaults", name.lower()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("ANSIBLE_")]:
        monkeypatch.delenv(name)
    work = tmp_path / "work"
    for name in ("project", "tmp", "control", "runner"):
        (work / name).mkdir(parents=True)
    (work / "project/site.yml").write_text(SITE)
    (work / "project/inventory.yml").write_text(INVENTORY % sys.executable)
    monkeypatch.chdir(tmp_path)
    return work


@pytest.mark.install
@pytest.mark.parametrize("by", ["variables", "ansible.cfg"])
def test_no_setting_decides_how_a_run_ends(folder: Path, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if by == "variables":
        for name, value in ADVERSE.items():
            monkeypatch.setenv(f"ANSIBLE_{name}", value)
        monkeypatch.setenv("PS1", os.fsdecode(b"caf\xe9"))
        monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{os.fsdecode(bytes([0xFF]))}")
        for name, value in {
            "ORIGINAL_STDOUT_CALLBACK": "debug",
            "PYTHONWARNINGS": "error",
            "PYTHONVERBOSE": "1",
        }.items():
            monkeypatch.setenv(name, value)
    else:
        sections: dict[str, list[str]] = {}
        for name, value in ADVERSE.items():
            section, key = ini(name)
            sections.setdefault(section, []).append(f"{key} = {value}")
        text = "".join(f"[{name}]\n" + "\n".join(lines) + "\n" for name, lines in sections.items())
        (folder.parent / "ansible.cfg").write_text(text)
        folder.parent.chmod(0o755)
    events: list[playbook.Event] = []
    ended = playbook.run(folder, ["a", "b"], {}, on_event=events.append)
    done = [
        (e["event"], e["event_data"]["host"], e["event_data"]["task"])
        for e in events
        if "host" in e.get("event_data", {})
    ]
    assert ended.status == 2, [event.get("stdout") for event in events]
    kinds = {
        ("runner_on_ok", "a", "Say a word"),
        ("runner_on_skipped", "b", "Skip it"),
        ("runner_on_failed", "b", "Fail on one"),
    }
    assert {*kinds, ("runner_on_ok", "a", "Go on")} <= {*done}
    results = {
        e["event_data"]["task"]: e["event_data"]["res"]
        for e in events
        if e["event"] in ("runner_on_ok", "runner_on_failed")
    }
    assert results["Fail on one"]["msg"] == "wrong on purpose"
    assert results["Say a word"]["msg"] == "said none", "what a host says takes the place of what its group says"
    assert "\x1b[" not in json.dumps([event.get("stdout") for event in events])


def test_what_reaches_hosts_stays() -> None:
    kept = (
        "REMOTE_USER REMOTE_PORT PRIVATE_KEY_FILE HOST_KEY_CHECKING SSH_ARGS SSH_COMMON_ARGS SSH_RETRIES "
        "SSH_EXECUTABLE TIMEOUT"
        " SSH_CONTROL_PATH_DIR PIPELINING BECOME BECOME_METHOD BECOME_EXE BECOME_FLAGS BECOME_PASSWORD_FILE "
        "SUDO_USER CONFIG HOME"
        " COLLECTIONS_PATH PYTHON_INTERPRETER VAULT_PASSWORD_FILE VAULT_IDENTITY_LIST CONNECTION_PLUGINS TRANSPORT "
        "REMOTE_TEMP"
    )
    assert not [name for name in kept.split() if not is_kept(f"ANSIBLE_{name}")]
    assert all(map(is_kept, ("PATH", "HOME", "SSH_AUTH_SOCK", "LANG", "https_proxy", "PYTHONPATH", "TMPDIR")))


def test_every_other_setting_of_ansible_is_left_out() -> None:
    assert not [name for name in ADVERSE if is_kept(f"ANSIBLE_{name}")]
    assert not is_kept("_ANSIBLE_TEMPLAR_SANDBOX_MODE")
    assert all(KEPT.values())
    given = changes(
        {"ANSIBLE_STRATEGY": "free", "ANSIBLE_SSH_ARGS": "-v", "ANSIBLE_FILTER_PLUGINS": "/x", "PATH": "/bin"}
    )
    assert given == {**FORCED, "ANSIBLE_FILTER_PLUGINS": None}


FOLDERS = {
    "very long": "/".join("l" * 200 for _ in range(4)),
    "long, with a line's end": "l" * 80 + "a\nb",
    "blank, template, list and not UTF-8": os.fsdecode(b"a {{ 1 }}b,b:c\xff"),
    "variable, percent and quote": "it's $HOME/%h",
}


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    tempfile.tempdir = None


def at(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(place))
    temporary.settle()


@pytest.mark.install
@pytest.mark.parametrize("name", FOLDERS)
def test_a_run_works_wherever_temporary_files_are(away: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at(away / FOLDERS[name], monkeypatch)
    with workspace([]) as folder:
        (folder / "project/site.yml").write_text("- {hosts: all, gather_facts: false, tasks: [{command: /bin/true}]}\n")
        (folder / "project/inventory.yml").write_text(INVENTORY % sys.executable)
        assert playbook.run(folder, ["a", "b"], {}, on_event=lambda _: None) == playbook.Ended("ended", 0)


@pytest.mark.install
@pytest.mark.parametrize("name", FOLDERS)
def test_the_sockets_of_ssh_have_short_names_and_go(away: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at(away / FOLDERS[name], monkeypatch)
    with workspace([]) as folder:
        place = playbook.environment(folder, {}, {})["ANSIBLE_SSH_CONTROL_PATH_DIR"]
        assert Path(place).stat().st_mode & 0o777 == 0o700
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(f"{place}/0123456789.0123456789abcdef")
    assert not Path(place).exists()
    assert not folder.exists()


def test_sockets_of_a_killed_run_go_with_it(away: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at(away / ("l" * 90), monkeypatch)
    dead = Path(tempfile.mkdtemp(prefix=PREFIX))
    temporary.make_sockets(dead / "control")
    (dead / "in-use").touch()
    place = (dead / "control").resolve()
    assert place.is_dir()
    assert place.parent != dead
    remove_leftovers(dead.parent)
    assert not place.exists()
    assert not dead.exists()


def test_a_folder_that_links_elsewhere_is_not_followed(away: Path) -> None:
    theirs = away / "theirs"
    theirs.mkdir()
    (away / "control").symlink_to(theirs)
    temporary.remove_sockets(away / "control")
    assert theirs.is_dir()


def test_a_machine_without_semaphores_is_told(away: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("multiprocessing.context.BaseContext.Lock", none)
    at(away / "plain", monkeypatch)
    with (
        pytest.raises(GpuprovError, match="no semaphores in /dev/shm: Read-only file system") as refused,
        workspace([]),
    ):
        pass
    assert "mount -t tmpfs -o mode=1777 tmpfs /dev/shm" in refused.value.fix
    assert not list((away / "plain").iterdir())


def test_a_temporary_folder_that_fills_is_told(away: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    at(away / "plain", monkeypatch)
    for place in ("gpuprov.render.project._write_file", "gpuprov.core.temporary.make_sockets"):
        with monkeypatch.context() as patch:
            patch.setattr(place, full)
            with pytest.raises(GpuprovError, match="No space left on device") as refused, workspace([]):
                pass
        assert "set TMPDIR" in refused.value.fix
        assert str(away / "plain") in str(refused.value)
        assert not list((away / "plain").iterdir())


def test_no_temporary_folder_is_told(away: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "_get_default_tempdir", none)
    temporary.settle()
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", "/full")
    with pytest.raises(GpuprovError, match="no temporary folder: nothing can be written in /full"), workspace([]):
        pass
