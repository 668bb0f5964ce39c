"""A site's own command: its exit status says what became of a step."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.drain import adapter
from gpuprov.fleet.drain.command import Command
from tests.rows import run_each


def test_each_step_is_told_in_the_environment(tmp_path: Path) -> None:
    told = tmp_path / "told"
    command = Command(f'echo "$GPUPROV_STEP $GPUPROV_HOST $GPUPROV_NODE $GPUPROV_RUN" >> {told}', {"gpu1": "n1"})
    steps = [command.drain("gpu1", "fri"), command.drained("gpu1", "fri"), command.returned("gpu1", "fri", green=True)]
    assert [step.state for step in steps] == ["done"] * 3
    assert told.read_text() == "drain gpu1 n1 fri\ndrained gpu1 n1 fri\nreturn gpu1 n1 fri\n"


def test_a_name_is_no_word_of_the_shell(tmp_path: Path) -> None:
    evil = f"x; touch {tmp_path}/owned; $(touch {tmp_path}/owned)"
    step = Command('printf "%s" "$GPUPROV_HOST"').drain(evil, "fri")
    assert (step.state, step.read) == ("done", evil)
    assert not (tmp_path / "owned").exists()
    assert Command("true").drain("a\0b", "fri").state == "refused"


@run_each(
    ("command", "state", "said"),
    [
        ("echo job 7; exit 75", "waiting", "job 7"),
        ("echo nobody may >&2; exit 77", "refused", "the site's command ended with 77: nobody may"),
        ("exit 3", "refused", "the site's command ended with 3: nothing said"),
        ("no-such-command", "refused", "ended with 127"),
        ("kill -9 $$", "refused", "ended with -9"),
    ],
)
def test_its_exit_status_is_read(command: str, state: str, said: str) -> None:
    step = Command(command).drained("gpu1", "fri")
    assert step.state == state
    assert said in "".join(step.waits_for) + step.message


def test_a_host_that_is_not_green_is_not_returned(tmp_path: Path) -> None:
    step = Command(f"touch {tmp_path}/ran").returned("gpu1", "fri", green=False)
    assert (step.state, (tmp_path / "ran").exists()) == ("refused", False)


@pytest.mark.install
def test_what_does_not_end_is_asked_again() -> None:
    step = Command("sleep 60 & wait", limit=0.3).drained("gpu1", "fri")
    assert (step.state, step.message) == ("unknown", "the site's command: sh did not end within 0.3 s")


def test_what_it_prints_is_bounded() -> None:
    step = Command("head -c 9000000 /dev/zero").drained("gpu1", "fri")
    assert (step.state, "more than 8 MiB" in step.message) == ("unknown", True)


def test_options_of_another_scheduler_are_refused() -> None:
    with pytest.raises(GpuprovError, match="slurm takes no command") as error:
        adapter("slurm", {}, command="x")
    assert "--by command --command 'COMMAND'" in error.value.fix
    with pytest.raises(GpuprovError, match="needs the site's command"):
        adapter("command", {})
    with pytest.raises(GpuprovError, match="does not use kubectl"):
        adapter("slurm", {}, empty_dir=True)


def test_names_of_nodes_are_the_hosts_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"gpu1": {"host_slurm_node": "n1", "host_kubernetes_node": "k1"}, "gpu2": {}}
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name in ("kubectl", "scontrol"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    assert [adapter("slurm", told).drain(host, "fri").node for host in told] == ["n1", "gpu2"]
    assert [adapter("kubernetes", told).drain(host, "fri").node for host in told] == ["k1", "gpu2"]
    assert adapter("command", told, command="true").drain("gpu1", "fri").node == "gpu1"
