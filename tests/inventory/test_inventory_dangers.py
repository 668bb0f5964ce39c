"""Sources that are not inventory, scripts that do not end, no home, no terminal: one clear error, and nothing is run or
left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuprov.inventory import load
from gpuprov.inventory.sources import MOST_FILES, explain_wrong_folder
from gpuprov.spec.problem import SpecError
from tests.inventory.files import GOOD, lay
from tests.rows import run_each

pytestmark = pytest.mark.install

ROOT = Path(__file__).parents[2]
WITHOUT = "this does not look like an inventory folder"
MARKS = "#!/bin/sh\necho run >> ../mark\necho '{}'\n"


def gpuprov(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Without a terminal, without the cache of whoever runs the tests."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("GPUPROV", "ANSIBLE"))}
    clean |= {"XDG_CACHE_HOME": str(cwd / "cache"), "PYTHONPATH": str(ROOT), **env}
    return subprocess.run(
        [sys.executable, "-m", "gpuprov", *arguments],
        cwd=cwd,
        env=clean,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        start_new_session=True,
    )


def test_a_folder_of_many_files_is_refused_before_anything_in_it_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lay({"tools/run.sh": MARKS} | {f"tools/deep/file{number}": "x" for number in range(MOST_FILES)})
    with pytest.raises(SpecError, match=f"^tools: {WITHOUT}: it holds more than 200 files") as caught:
        load(["tools"])
    assert "executable files in it are run" in str(caught.value)
    assert not (tmp_path / "mark").exists()


def test_the_home_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.chdir(tmp_path)
    lay({"me/run.sh": MARKS})
    with pytest.raises(SpecError, match=f"^me: {WITHOUT}: it is the home folder"):
        load(["me"])
    assert not (tmp_path / "mark").exists()


@run_each("path", "/ /etc /usr /usr/bin /bin /sbin /var /var/lib /dev /proc /sys /tmp /home".split())
def test_folders_of_the_system_are_no_inventories(path: str) -> None:
    assert explain_wrong_folder(path) == "it is a folder of the system"


def test_folders_that_may_be_inventories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lay({"inv/hosts.yaml": GOOD} | {f"inv/host_vars/gpu{number}.yml": "a: 1" for number in range(MOST_FILES + 1)})
    (tmp_path / "inv" / "group_vars").symlink_to(tmp_path)
    (tmp_path / "inv" / "again").symlink_to(tmp_path / "inv")
    assert explain_wrong_folder(str(tmp_path / "inv")) == ""
    assert explain_wrong_folder("/etc/ansible") == ""


def alive(stat: Path) -> bool:
    """Whether the process of this file runs; one that nobody has waited for does not."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_script_that_does_not_end_is_stopped_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gpuprov.inventory.scripts.LIMIT", 1.0)
    lay({"inv/hosts.yaml": GOOD, "inv/slow.sh": '#!/bin/sh\nsleep 47.25 &\necho $! > "$0.pid"\nread -r line\nwait\n'})
    started = time.monotonic()
    with pytest.raises(SpecError) as caught:
        load(["inv"], cache=False)
    assert time.monotonic() - started < 20
    (told,) = [str(problem) for problem in caught.value.problems if "slow.sh:" in str(problem)]
    assert told == (
        "inv/slow.sh: the inventory script did not end within 1 s and was stopped;"
        " run it by hand with --list and see what it waits for"
    )
    helper = Path("/proc", Path("inv/slow.sh.pid").read_text().strip(), "stat")
    deadline = time.monotonic() + 10  # a killed process of somebody else's is gone when the kernel comes to it
    while alive(helper) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(helper)


def test_check_says_that_scripts_are_run(tmp_path: Path) -> None:
    assert "dynamic inventory script" in gpuprov("check", "--help", cwd=tmp_path).stdout


@run_each("home", ["/proc", "/no/such/home", "relative"])
def test_a_home_that_cannot_be_used(home: str, tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text("all: {hosts: {gpu01: {}}, vars: {gpuprov: {nouveau: {}}}}\n")
    (tmp_path / "tmp").mkdir()
    done = gpuprov("check", "inventory.yaml", cwd=tmp_path, HOME=home, TMPDIR=str(tmp_path / "tmp"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 host valid\n", "")
    assert not list((tmp_path / "tmp").iterdir())
    assert not Path("/no/such").exists()
    assert not (tmp_path / "relative").exists()


def test_a_temporary_folder_of_ansible_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text("all: {hosts: {gpu01: {}}, vars: {gpuprov: {nouveau: {}}}}\n")
    done = gpuprov("check", "inventory.yaml", cwd=tmp_path, ANSIBLE_LOCAL_TEMP="/proc/nowhere")
    assert done.returncode == 2
    assert done.stdout.startswith("Ansible cannot use its configuration: ")
    assert "/proc/nowhere" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_log_of_ansible_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text("all: {hosts: {gpu01: {}}, vars: {gpuprov: {nouveau: {}}}}\n")
    os.mkfifo(tmp_path / "pipe")
    done = gpuprov("check", "inventory.yaml", cwd=tmp_path, ANSIBLE_LOG_PATH=str(tmp_path / "pipe"))
    assert (done.returncode, "pipe cannot be opened: it is not a regular file" in done.stdout) == (2, True)
    done = gpuprov("check", "inventory.yaml", cwd=tmp_path, ANSIBLE_LOG_PATH="/proc/nowhere")
    assert done.returncode == 2
    assert done.stdout.startswith("Ansible cannot use its configuration: /proc/nowhere cannot be opened: No such file")
    assert "ANSIBLE_LOG_PATH names it" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_vault_password_cannot_be_asked_without_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text(GOOD)
    done = gpuprov("check", "inventory.yaml", "--ask-vault-pass", "--no-cache", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: the vault password is to be asked for, and there is no terminal to ask on\n"
        "fix: give --vault-password-file FILE instead of --ask-vault-pass\n"
    )


@pytest.mark.parametrize("command", ["check", "plan", "verify"])
@pytest.mark.parametrize("cached", [(), ("--no-cache",)])
def test_a_configuration_of_ansible_that_never_ends_is_not_read(
    command: str, cached: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "inventory.yaml").write_text(GOOD)
    os.mkfifo(tmp_path / "pipe")
    for config, what in (("/dev/zero", "this is a device"), (str(tmp_path / "pipe"), "this is a pipe")):
        done = gpuprov(command, "inventory.yaml", *cached, cwd=tmp_path, ANSIBLE_CONFIG=config)
        assert done.returncode == 2
        assert f"{config} cannot be Ansible's configuration: {what}" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_name_that_is_not_utf8_stands_in_a_document(tmp_path: Path) -> None:
    name = os.fsdecode(b"h\xe9.ini")
    (tmp_path / name).write_bytes(b'h1 foo="caf\xe9\n')
    for command in (("check",), ("verify",)):
        done = gpuprov(*command, name, "--json", cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
    told = json.loads(gpuprov("check", name, "--json", cwd=tmp_path).stdout)
    assert told["valid"] is False
    assert told["problems"][0]["place"] == "h\ufffd.ini"
