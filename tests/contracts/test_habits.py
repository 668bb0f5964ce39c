"""Ansible's conventions: every command that reaches hosts takes -i, -u, -K, -e and -f, with their usual effects.

A program called ssh records how it is started; it then refuses, like a host that admits nobody. Those that run are
counted by their process: one that was ended at its time limit, on a loaded machine, leaves its file behind.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gpuprov.cli import cli
from gpuprov.core.errors import GpuprovError
from gpuprov.inventory import vault
from tests import key_pairs
from tests.here import program
from tests.rows import run_each

HABITS = ("-i", "-u", "-K", "-e", "-f")
ELSEWHERE = {
    "check": "judges the inventory offline",
    "render": "writes files",
    "rehearse": "reaches simulated hosts, whose login it makes",
    "bake": "works on a folder of this machine",
    "fleet freeze": "writes a file",
    "fleet slice": "writes files",
    "fleet fold": "reads files",
    "drain": "asks the scheduler, from this machine",
    "test": "hands over to pytest",
    **{
        f"simulate {word}": "reaches simulated hosts"
        for word in ("setup", "up", "down", "list", "reboot", "run", "logs", "fault", "faults")
    },
    "explain": "tells",
    "catalog": "tells",
    "schema": "tells",
    "mig fit": "tells",
    "mig layouts": "tells",
    "rollout status": "reads the roll-out's own state",
    "rollout watch": "reads the roll-out's own state",
    "rollout pause": "speaks to the roll-out",
    "rollout approve": "speaks to the roll-out",
    "rollout abort": "speaks to the roll-out",
    "rollout resume": "goes on as rollout start was told",
}
"""Commands that reach no host of the inventory through their own options, and what they do instead."""
REFUSED = {
    ("rollout start", "-K"): "ask nobody, and outlive this one",
    ("fleet worker", "-K"): "ask nobody",
    ("fleet worker", "-i"): "has its hosts from the jobs",
    ("fleet work", "-i"): "those of JOB",
    ("plan", "--from"): "gpuprov verify --from says what differs in a record",
    ("drift", "--from"): "gpuprov show HOST --html FILE --from says what a record holds of changes",
    ("topology", "--from"): "gpuprov show HOST --html FILE --from draws the topology of a record",
}
"""Combinations that cannot work: refused with the reason and the alternative."""

NAMES = [f"gpu{number}" for number in range(1, 7)]
SPEC = "{nouveau: {}, acceptance: {}, reboot: never}"
SIGNED = "nvidia_driver: {signing: {key_file: site.key, certificate_file: site.crt}}"
INVENTORY = f"all: {{vars: {{gpuprov: {SPEC}}}, hosts: {{{', '.join(f'{name}: {{}}' for name in NAMES)}}}}}\n"
SSH = """
own=$(mktemp -d "$NOTED/XXXXXX")
printf '%s\\n' "$@" > "$own/words"
touch "$NOTED/live/$$"
cat > "$own/fed"
live=0
for started in "$NOTED"/live/*; do kill -0 "${started##*/}" 2> /dev/null && live=$((live + 1)); done
echo "$live" > "$own/live"
sleep 0.15
rm "$NOTED/live/$$"
echo "gpu: Permission denied (publickey)." >&2
exit 255
"""
LINES = {
    "plan": "plan INVENTORY --quick",
    "apply": "apply INVENTORY --yes",
    "rollback": "rollback gpu* INVENTORY --yes",
    "verify": "verify INVENTORY",
    "health": "health INVENTORY",
    "repair": "repair INVENTORY --yes",
    "drift": "drift INVENTORY",
    "export": "export INVENTORY",
    "topology": "topology gpu* INVENTORY",
    "show": "show gpu* INVENTORY",
    "accept": "accept INVENTORY --yes",
    "capture": "capture gpu* INVENTORY --out FOLDER/captured",
    "diff": "diff gpu1 gpu2 -i INVENTORY",
    "enroll": "enroll FOLDER/signed.yaml",
    "undrain": "undrain gpu* INVENTORY --by command --command true --run r1",
    "init": "init --from-hosts gpu* -i INVENTORY --out FOLDER/new.yaml",
    "bundle": "bundle INVENTORY --key FOLDER/key --out FOLDER/bundle",
    "fleet work": "fleet work FOLDER/jobs/job-0001.json --results FOLDER/results --run r1",
}


def commands() -> Iterator[tuple[str, click.Command]]:
    for name, command in cli.commands.items():
        if isinstance(command, click.Group):
            yield from ((f"{name} {word}", below) for word, below in command.commands.items())
        else:
            yield name, command


REACHING = {name: command for name, command in commands() if name not in ELSEWHERE}


def test_every_command_is_known_to_reach_hosts_or_not_to() -> None:
    assert ELSEWHERE.keys() <= {name for name, _ in commands()}
    assert REACHING.keys() == LINES.keys() | {"rollout start", "fleet worker"}


@run_each("name", REACHING)
def test_a_command_that_reaches_hosts_takes_them_all(name: str) -> None:
    taken = {word: option for option in REACHING[name].params for word in option.opts}
    assert taken.keys() >= {*HABITS}
    hidden = {word for word in HABITS if getattr(taken[word], "hidden", False)}
    assert hidden == {word for command, word in REFUSED if command == name and word in HABITS}


@run_each(("name", "word"), REFUSED)
def test_what_cannot_work_says_why(name: str, word: str) -> None:
    value = [] if word == "-K" else ["x"]
    told = CliRunner().invoke(cli, [*name.split(), word, *value])
    assert told.exit_code == 2
    assert REFUSED[name, word] in " ".join(told.output.split())


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that records how ssh was started."""
    folder = tmp_path / "noted"
    (folder / "live").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin", "ssh", SSH)
    (tmp_path / "site.yaml").write_text(INVENTORY)
    key_pairs.site(tmp_path)
    (tmp_path / "signed.yaml").write_text(INVENTORY.replace("acceptance: {}", SIGNED))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("NOTED", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(vault, "getpass", lambda _prompt: "s3cret-word", raising=False)
    monkeypatch.setattr("getpass.getpass", lambda _prompt: "s3cret-word")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    frozen = CliRunner().invoke(
        cli, ["fleet", "freeze", str(tmp_path / "site.yaml"), "-o", str(tmp_path / "fleet.json")]
    )
    assert frozen.exit_code == 0, frozen.output
    CliRunner().invoke(cli, ["fleet", "slice", str(tmp_path / "fleet.json"), "-o", str(tmp_path / "jobs")])
    return folder


def started(noted: Path, line: str, *more: str, folder: Path) -> list[tuple[str, str, int]]:
    """Return the record of each ssh: its arguments, its input, and how many were running at that time."""
    words = [
        word.replace("INVENTORY", str(folder / "site.yaml")).replace("FOLDER", str(folder)) for word in line.split()
    ]
    done = CliRunner().invoke(cli, [*words, *more])
    assert done.exit_code != 2 or not done.exception or isinstance(done.exception, GpuprovError), done.output
    places = [place for place in noted.iterdir() if place.name != "live"]
    return [
        ((place / "words").read_text(), (place / "fed").read_text(), int((place / "live").read_text()))
        for place in places
        if (place / "live").is_file()
    ]


@pytest.mark.install
@pytest.mark.parametrize("name", LINES)
def test_each_does_what_it_says(name: str, noted: Path, tmp_path: Path) -> None:
    variables = ["-e", "ansible_port=2222", "-e", "ansible_become=true"]
    found = started(noted, LINES[name], "-u", "alice", "-K", "-f", "2", *variables, folder=tmp_path)
    assert found, "no host was reached"
    for words, fed, live in found:
        assert "User=alice" in words
        assert "Port=2222" in words
        # Ansible's temporary folder is cleaned as the user who logs in, if apply came so far before the login failed.
        assert ("s3cret-word" in fed) is ("~/.ansible/tmp" not in fed)
        assert "s3cret-word" not in words
        assert live <= 2
    reached = {re.search(r"gpu\d+", words.rpartition("--\n")[2])[0] for words, _, _ in found}  # type: ignore[index]
    assert reached == ({"gpu1", "gpu2"} if name == "diff" else {*NAMES})


@pytest.mark.install
def test_what_a_worker_is_told_goes_to_each_job(tmp_path: Path) -> None:
    """In a process of its own, whose end Temporal's threads may not disturb."""
    pytest.importorskip("temporalio")
    (tmp_path / "more.yaml").write_text("ansible_become_password: hunter2-hunter2\n")
    told = (
        "import sys; from gpuprov.rollout.temporal import worker; from gpuprov.__main__ import run;"
        "worker.run = lambda *given: print(*given[-1]) or 0; run()"
    )

    def worker(line: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", told, "fleet", "worker", *line.split()]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    said = worker("-f 3 -u alice -e ansible_port=2222 -e @more.yaml")
    assert said.returncode == 0, said.stderr
    assert "--forks 3 --user alice --extra-vars ansible_port=2222" in said.stdout
    assert f"--extra-vars @{tmp_path}/more.yaml" in said.stdout
    assert "would be seen by every user" in worker("-e ansible_become_password=x").stderr


def test_a_job_takes_a_password_from_a_file_and_no_other_spec(tmp_path: Path) -> None:
    from gpuprov.jobs import extra
    from gpuprov.spec.model import RawHost

    hosts = [RawHost(name="gpu1", connection={"ansible_user": "a"}, values={"nouveau": {}}), RawHost(name="gpu2")]
    (tmp_path / "more.yaml").write_text("ansible_become_password: hunter2\n")
    found = extra.over(hosts, [f"@{tmp_path}/more.yaml", "ansible_port='{{ inventory_hostname[3:] }}'"])
    assert [one.connection["ansible_port"] for one in found] == ["1", "2"]
    assert found[0].connection | {"ansible_user": "a", "ansible_become_password": "hunter2"} == found[0].connection
    assert found[0].values == {"nouveau": {}}
    with pytest.raises(GpuprovError, match="stands in the job"):
        extra.over(hosts, ['{"gpuprov": {"nouveau": false}}'])


def test_a_job_takes_nothing_from_the_folder_one_works_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ansible reads group_vars there for hosts that are named on the command line."""
    from gpuprov.jobs import extra
    from gpuprov.spec.model import RawHost

    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yaml").write_text("ansible_user: b\nansible_port: 1\ngpuprov: {nouveau: {}}\n")
    monkeypatch.chdir(tmp_path)
    raw = RawHost(name="gpu1", connection={"ansible_user": "a"}, values={"persistence": {}})
    [found] = extra.over([raw], ["ansible_port=2222"])
    assert found.connection == {"ansible_user": "a", "ansible_port": "2222"}
    assert found.values == {"persistence": {}}
