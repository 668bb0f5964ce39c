"""What apply may do to daemons: refuse before it changes, kill nobody's job, give compute modes back; and who can reach a daemon."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuprov.catalog import mps as catalogue
from tests.capabilities.mps_host import A, B
from tests.capabilities.mps_programs import CUT, FILES, GPUS, PATHS, Programs, config, folder, programs, running

__all__ = ["folder", "programs"]
DEFAULT, EXCLUSIVE = 0, 3


class Modes:
    """NVML's compute modes, by GPU."""

    def __init__(self, *modes: int) -> None:
        self.modes = list(modes)

    def gpus(self) -> list[dict[str, Any]]:
        return GPUS

    def compute_mode(self, gpu: dict[str, Any]) -> int:
        return self.modes[int(gpu["index"])]

    def set_compute_mode(self, gpu: dict[str, Any], mode: int) -> None:
        self.modes[gpu["index"]] = mode


@pytest.fixture
def systemctl(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What systemctl is told; it lists one unit that another only names, and one that has failed."""
    told: list[str] = []

    def answer(*words: str) -> tuple[int, str]:
        told.append(" ".join(words))
        listed = "gpuprov-mps@named.service loaded inactive dead MPS\ngpuprov-mps@sick.service loaded failed failed MPS"
        return 0, listed if words[0] == "list-units" else ""

    monkeypatch.setattr(programs.daemon, "systemctl", answer)
    return told


def exclusive(folder: Path, scope: str = "groups", *gpus: int, **more: Any) -> dict[str, Any]:
    given = [{"gpus": list(gpus), "name": "left"}] if gpus else []
    return config(scope, groups=given, paths=PATHS | {"runtime": str(folder / "run")}, **more)


def test_a_gpu_that_loses_its_daemon_is_given_back(programs: Programs, folder: Path) -> None:
    nvml, modes, devices = Modes(DEFAULT, DEFAULT), programs.program.modes, programs.devices
    both, one = exclusive(folder, "groups", 0, 1), exclusive(folder, "groups", 0)
    modes.compute_modes(devices.daemons(both, GPUS)[0], both, nvml)
    assert nvml.modes == [EXCLUSIVE, EXCLUSIVE]
    kept = devices.daemons(one, GPUS)
    assert modes.give_back(one, nvml, GPUS, kept, False) == ["GPU 1: compute mode DEFAULT"]
    assert nvml.modes == [EXCLUSIVE, EXCLUSIVE], "a plan changes nothing"
    assert modes.give_back(one, nvml, GPUS, kept, True) == ["GPU 1: compute mode DEFAULT"]
    assert modes.give_back(one, nvml, GPUS, kept, True) == []
    assert nvml.modes == [EXCLUSIVE, DEFAULT]
    nvml.modes[1] = EXCLUSIVE
    assert modes.give_back(one, nvml, GPUS, [], True) == ["GPU 0: compute mode DEFAULT"], "GPU 1: somebody else's"


def test_also_where_the_daemon_has_failed(
    programs: Programs, folder: Path, systemctl: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml, given = Modes(EXCLUSIVE, DEFAULT), exclusive(folder, "none")
    programs.program.modes.note_exclusive(given, GPUS[0], True)
    monkeypatch.setattr(programs.program, "Nvml", lambda: nvml)
    told, _ = programs.program.settle(given, True)
    assert told == ["gpuprov-mps@sick.service: stopped and removed", "GPU 0: compute mode DEFAULT"]
    assert nvml.modes == [DEFAULT, DEFAULT]
    assert "disable --now gpuprov-mps@sick.service" in systemctl


def test_a_unit_that_is_only_named_is_not_removed(programs: Programs, systemctl: list[str]) -> None:
    assert programs.daemon.known_names() == ["sick"]
    assert systemctl[0].startswith("list-units")


def test_a_start_after_too_many(
    programs: Programs, systemctl: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs.daemon, "running", lambda _name: None)
    one = programs.devices.daemons(config("gpu"), GPUS)[0]
    programs.program.one_daemon(one, exclusive(folder, "gpu"), Modes(), True)
    assert systemctl[-2:] == [f"{verb} gpuprov-mps@gpu0.service" for verb in ("reset-failed", "restart")]


def test_all_is_refused_before_anything_is_changed(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def settle(_config: dict[str, Any], change: bool) -> tuple[list[str], str]:
        asked.append(change)
        if refuses:
            raise programs.devices.Problem("2 clients use it")
        return ["a"], ""

    monkeypatch.setattr(programs.program, "settle", settle)
    refuses = True
    programs.program.main("apply", json.dumps(config()))
    refuses = False
    programs.program.main("apply", json.dumps(config()))
    programs.program.main("plan", json.dumps(config()))
    assert asked == [False, False, True, False]
    assert '"changed": ["a"]' in capsys.readouterr().out


def process(folder: Path) -> tuple[str, list[str], dict[str, str]]:
    return "700", [catalogue.CONTROL, "-f"], {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe")}


def test_a_daemon_that_does_not_answer_may_have_clients(
    programs: Programs, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pipe/up").unlink()
    given = config(control=str(folder / "control"))
    monkeypatch.setattr(programs.daemon, "servers", lambda _pid: ["88"])
    message = r"does not answer, and its servers \(pid 88\) may have clients; end those, then systemctl restart gpuprov"
    with pytest.raises(programs.devices.Problem, match=message):
        programs.program.refuse_clients("gpu0", given, process(folder), "other devices")
    monkeypatch.setattr(programs.daemon, "servers", lambda _pid: [])
    programs.program.refuse_clients("gpu0", given, process(folder), "other devices")


def test_servers_are_found_without_the_daemon(programs: Programs, tmp_path: Path) -> None:
    shutil.copy2("/bin/sleep", tmp_path / "nvidia-cuda-mps-server")
    with subprocess.Popen([tmp_path / "nvidia-cuda-mps-server", "30"]) as server:
        until = time.monotonic() + 5
        while programs.daemon.about(server.pid, "comm") != "nvidia-cuda-mps\n" and time.monotonic() < until:
            time.sleep(0.01)  # the kernel names a process a moment after exec has closed Popen's pipe
        found = programs.daemon.servers(str(os.getpid()))
        server.kill()
        assert found == [str(server.pid)]
    assert programs.daemon.servers(str(os.getpid())) == []
    assert programs.daemon.servers("0") == []


def test_clients_are_refused_while_no_driver_answers(
    programs: Programs, folder: Path, systemctl: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade: the new library does not fit the module that is loaded, and the daemon has the old one."""

    def mismatch() -> None:
        raise programs.devices.Problem("nvmlInit_v2: Driver/library version mismatch")

    (folder / "pipe/servers").write_text("800\n")
    monkeypatch.setattr(programs.program, "Nvml", mismatch)
    monkeypatch.setattr(programs.daemon, "running", lambda _name: process(folder))
    with pytest.raises(programs.devices.Problem, match="2 clients use it: pid 900 901"):
        programs.program.settle(config("none", control=str(folder / "control")), True)
    assert not [words for words in systemctl if words.startswith("disable")]


def test_a_plan_tells_of_environments(programs: Programs, folder: Path) -> None:
    control = running(programs, folder, A)
    assert programs.daemon.write_environments(control.daemon, control.config, control, change=False) is True
    assert not (folder / "run").exists()


def test_every_user_can_pass_the_directory_and_nobody_else_has_it(programs: Programs, tmp_path: Path) -> None:
    place = tmp_path / "nvidia-mps"
    for mode in (0o700, 0o777):
        place.mkdir(mode=mode, exist_ok=True)
        place.chmod(mode)
        programs.daemon.folder(str(place))
        assert place.stat().st_mode & 0o777 == 0o755
    (tmp_path / "link").symlink_to(place)
    with pytest.raises(programs.devices.Problem, match=r"link is a link or another user's \(uid [0-9]+\): remove it"):
        programs.daemon.folder(str(tmp_path / "link"))


def test_a_start_prepares_gpus_and_directories(
    programs: Programs, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml, given, became = Modes(DEFAULT, DEFAULT), exclusive(folder, "gpu", control="sh"), []
    one = programs.devices.daemons(given, GPUS)[0] | {"pipe": str(folder / "pipe"), "log": str(folder / "link")}
    (folder / "logs").mkdir(mode=0o750)
    (folder / "link").symlink_to(folder / "logs")
    (folder / "pipe").chmod(0o700)
    monkeypatch.setattr(programs.daemon, "from_state", lambda _name: (given, nvml, one))
    monkeypatch.setattr(programs.program.os, "execvpe", lambda *given: became.append(given[1]))
    assert programs.program.main("start", "gpu0") == 0
    assert (became, nvml.modes) == ([["sh", "-f"]], [EXCLUSIVE, DEFAULT])
    assert (folder / "pipe").stat().st_mode & 0o777 == 0o755
    assert (folder / "logs").stat().st_mode & 0o777 == 0o750, "an admin's folder for logs is left as it is"


def test_a_directory_of_another_user(programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs.daemon.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(programs.devices.Problem, match=f"another user's .uid {os.getuid()}."):
        programs.daemon.folder(str(tmp_path))


@pytest.mark.parametrize(
    ("scope", "yes", "no"),
    [("host", "host", "gpu0"), ("gpu", "gpu11", "gpu0-mig0"), ("groups", "left", "group1"),
     ("mig", "gpu0-mig4-ci1", "gpu0"), ("none", "", "host")],
)  # fmt: skip
def test_a_unit_that_the_spec_does_not_name_any_more(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: str, yes: str, no: str
) -> None:
    """A driver change stops it, and starts it again before it is removed: it stays down, and is no failure."""
    given = config(scope, groups=[{"gpus": [0], "name": "left"}])
    assert programs.devices.named(given, yes) is bool(yes)
    (tmp_path / "mps.json").write_text(json.dumps(given))
    monkeypatch.setattr(programs.daemon, "STATE", str(tmp_path / "mps.json"))
    assert programs.program.main("present", no) == 1, "systemd skips a unit whose condition is not met"
    assert programs.devices.daemons(config("none"), CUT) == []


def test_a_limit_for_a_gpu_that_is_not_there(programs: Programs) -> None:
    programs.devices.limited(config(memory={"all": "8G", "1": "4G", "19:00.0": "4G", A[:12]: "4G"}), GPUS)
    with pytest.raises(programs.devices.Problem, match="no GPU is 5; there are: 0"):
        programs.devices.limited(config(memory={"5": "8G"}), GPUS)


def test_a_daemon_that_is_exclusive_no_more(programs: Programs, folder: Path) -> None:
    nvml, given = Modes(EXCLUSIVE, EXCLUSIVE), exclusive(folder, "gpu", exclusive=False)
    note = folder / f"run/{B}.exclusive"
    programs.program.modes.note_exclusive(given, GPUS[1], True)
    assert note.exists()
    programs.program.modes.compute_modes(programs.devices.daemons(given, GPUS)[1], given, nvml)
    assert nvml.modes == [EXCLUSIVE, DEFAULT]
    assert not note.exists()


def test_units_come_before_containers_and_are_always_read_again() -> None:
    role = FILES.parent
    unit = (role / "templates/etc/systemd/system/gpuprov-mps@.service.j2").read_text()
    before = next(line for line in unit.splitlines() if line.startswith("Before=")).partition("=")[2].split()
    assert set(before) == {"docker.service", "containerd.service", "crio.service", "kubelet.service"}
    tasks = yaml.safe_load((role / "tasks/service.yml").read_text())
    reload = next(task for task in tasks if "ansible.builtin.systemd_service" in task)
    assert "when" not in reload, "a run that failed has written units, and the next one finds them unchanged"
    files = yaml.safe_load((role / "vars/main.yml").read_text())["__mps_files"]
    assert set(files) == {path.name for path in FILES.glob("*.py")}
