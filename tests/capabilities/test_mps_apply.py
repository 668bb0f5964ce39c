"""What apply may do to daemons: refuse before it changes, kill nobody's job, give compute modes back; and who can reach
a daemon."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from gpuprov.catalog import mps as catalogue
from gpuprov.host_code.mps import __main__ as boot
from gpuprov.host_code.mps import daemon, devices, environments, modes, program
from tests.capabilities.mps_host import A, B
from tests.capabilities.mps_programs import CUT, GPUS, NEW, PATHS, config, folder, running

__all__ = ["folder"]
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
def systemctl(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What systemctl is told; it lists one unit that another only names, and one that has failed."""
    told: list[str] = []

    def answer(*words: str) -> tuple[int, str]:
        told.append(" ".join(words))
        listed = "gpuprov-mps@named.service loaded inactive dead MPS\ngpuprov-mps@sick.service loaded failed failed MPS"
        return 0, listed if words[0] == "list-units" else ""

    monkeypatch.setattr(daemon, "run_systemctl", answer)
    return told


def exclusive(folder: Path, scope: str = "groups", *gpus: int, **more: Any) -> dict[str, Any]:
    given = [{"gpus": list(gpus), "name": "left"}] if gpus else []
    return config(scope, groups=given, paths=PATHS | {"runtime": str(folder / "run")}, **more)


def test_a_gpu_that_loses_its_daemon_is_given_back(folder: Path) -> None:
    nvml = Modes(DEFAULT, DEFAULT)
    both, one = exclusive(folder, "groups", 0, 1), exclusive(folder, "groups", 0)
    modes.compute_modes(devices.list_daemons(both, GPUS)[0], both, nvml)
    assert nvml.modes == [EXCLUSIVE, EXCLUSIVE]
    kept = devices.list_daemons(one, GPUS)
    assert modes.give_back(one, nvml, GPUS, kept, False) == ["GPU 1: compute mode DEFAULT"]
    assert nvml.modes == [EXCLUSIVE, EXCLUSIVE], "a plan changes nothing"
    assert modes.give_back(one, nvml, GPUS, kept, True) == ["GPU 1: compute mode DEFAULT"]
    assert modes.give_back(one, nvml, GPUS, kept, True) == []
    assert nvml.modes == [EXCLUSIVE, DEFAULT]
    nvml.modes[1] = EXCLUSIVE
    assert modes.give_back(one, nvml, GPUS, [], True) == ["GPU 0: compute mode DEFAULT"], "GPU 1: somebody else's"


def test_also_where_the_daemon_has_failed(folder: Path, systemctl: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, given = Modes(EXCLUSIVE, DEFAULT), exclusive(folder, "none")
    modes.note_exclusive(given, GPUS[0], True)
    monkeypatch.setattr(program, "Nvml", lambda: nvml)
    told, _ = program.settle(given, True, NEW)
    assert told == ["gpuprov-mps@sick.service: stopped and removed", "GPU 0: compute mode DEFAULT"]
    assert nvml.modes == [DEFAULT, DEFAULT]
    assert "disable --now gpuprov-mps@sick.service" in systemctl


def test_a_unit_that_is_only_named_is_not_removed(systemctl: list[str]) -> None:
    assert daemon.list_known_names() == ["sick"]
    assert systemctl[0].startswith("list-units")


def test_a_start_after_too_many(systemctl: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "find_running", lambda _name: None)
    one = devices.list_daemons(config("gpu"), GPUS)[0]
    program.compare_or_fix(one, exclusive(folder, "gpu"), Modes(), True, NEW)
    assert systemctl[-2:] == [f"{verb} gpuprov-mps@gpu0.service" for verb in ("reset-failed", "restart")]


def test_all_is_refused_before_anything_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def settle(_config: object, change: bool, _ages: object) -> tuple[list[str], str]:
        asked.append(change)
        if refuses:
            raise devices.Problem("2 clients use it")
        return ["a"], ""

    monkeypatch.setattr(program, "settle", settle)
    refuses = True
    assert program.run(config(), True, NEW) == ([], "2 clients use it", "")
    refuses = False
    assert program.run(config(), True, NEW) == (["a"], "", "")
    assert program.run(config(), False, NEW).changed == ["a"]
    assert asked == [False, False, True, False]


def process(folder: Path) -> tuple[str, list[str], dict[str, str]]:
    return "700", [catalogue.CONTROL, "-f"], {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe")}


def test_a_daemon_that_does_not_answer_may_have_clients(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pipe/up").unlink()
    given = config(control=str(folder / "control"))
    monkeypatch.setattr(daemon, "list_servers", lambda _pid: ["88"])
    message = r"does not answer, and its servers \(pid 88\) may have clients; end those, then systemctl restart gpuprov"
    with pytest.raises(devices.Problem, match=message):
        program.refuse_clients("gpu0", given, process(folder), "other devices")
    monkeypatch.setattr(daemon, "list_servers", lambda _pid: [])
    program.refuse_clients("gpu0", given, process(folder), "other devices")


def test_servers_are_found_without_the_daemon(tmp_path: Path) -> None:
    shutil.copy2("/bin/sleep", tmp_path / "nvidia-cuda-mps-server")
    with subprocess.Popen([tmp_path / "nvidia-cuda-mps-server", "30"]) as server:
        until = time.monotonic() + 5
        while daemon.read_process_file(str(server.pid), "comm") != "nvidia-cuda-mps\n" and time.monotonic() < until:
            time.sleep(0.01)  # the kernel names a process a moment after exec has closed Popen's pipe
        found = daemon.list_servers(str(os.getpid()))
        server.kill()
        assert found == [str(server.pid)]
    assert daemon.list_servers(str(os.getpid())) == []
    assert daemon.list_servers("0") == []


def test_clients_are_refused_while_no_driver_answers(
    folder: Path, systemctl: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade: the new library does not fit the module that is loaded, and the daemon has the old one."""

    def mismatch() -> None:
        raise devices.Problem("nvmlInit_v2: Driver/library version mismatch")

    (folder / "pipe/servers").write_text("800\n")
    monkeypatch.setattr(program, "Nvml", mismatch)
    monkeypatch.setattr(daemon, "find_running", lambda _name: process(folder))
    with pytest.raises(devices.Problem, match="2 clients use it: pid 900 901"):
        program.settle(config("none", control=str(folder / "control")), True, NEW)
    assert not [words for words in systemctl if words.startswith("disable")]


def test_a_plan_tells_of_environments(folder: Path) -> None:
    control = running(folder, A)
    assert environments.write_environments(control.daemon, control.config, control, change=False) is True
    assert not (folder / "run").exists()


def test_every_user_can_pass_the_directory_and_nobody_else_has_it(tmp_path: Path) -> None:
    place = tmp_path / "nvidia-mps"
    for mode in (0o700, 0o777):
        place.mkdir(mode=mode, exist_ok=True)
        place.chmod(mode)
        daemon.make_folder(str(place))
        assert place.stat().st_mode & 0o777 == 0o755
    (tmp_path / "link").symlink_to(place)
    with pytest.raises(devices.Problem, match=r"link is a link or another user's \(uid [0-9]+\): remove it"):
        daemon.make_folder(str(tmp_path / "link"))


def test_a_start_prepares_gpus_and_directories(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, given, became = Modes(DEFAULT, DEFAULT), exclusive(folder, "gpu", control="sh"), []
    one = devices.list_daemons(given, GPUS)[0] | {"pipe": str(folder / "pipe"), "log": str(folder / "link")}
    (folder / "logs").mkdir(mode=0o750)
    (folder / "link").symlink_to(folder / "logs")
    (folder / "pipe").chmod(0o700)
    monkeypatch.setattr(daemon, "read_state", lambda _name: (given, nvml, one))
    monkeypatch.setattr("os.execvpe", lambda *given: became.append(given[1:]))
    monkeypatch.setenv("PYTHONPATH", "/usr/local/lib/gpuprov")
    assert boot.main(["start", "gpu0"]) == 0
    (words, environment), *_ = became
    assert (words, nvml.modes) == (["sh", "-f"], [EXCLUSIVE, DEFAULT])
    assert environment["CUDA_VISIBLE_DEVICES"] == A
    assert "PYTHONPATH" not in environment, "a client's server would have it"
    assert (folder / "pipe").stat().st_mode & 0o777 == 0o755
    assert (folder / "logs").stat().st_mode & 0o777 == 0o750, "an admin's folder for logs is left as it is"


def test_a_directory_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    with pytest.raises(devices.Problem, match=f"another user's .uid {os.getuid()}."):
        daemon.make_folder(str(tmp_path))


@pytest.mark.parametrize(
    ("scope", "yes", "no"),
    [("host", "host", "gpu0"), ("gpu", "gpu11", "gpu0-mig0"), ("groups", "left", "group1"),
     ("mig", "gpu0-mig4-ci1", "gpu0"), ("none", "", "host")],
)  # fmt: skip
def test_a_unit_that_the_spec_does_not_name_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: str, yes: str, no: str
) -> None:
    """A driver change stops it, and starts it again before it is removed: it stays down, and is not a failure."""
    given = config(scope, groups=[{"gpus": [0], "name": "left"}])
    assert devices.can_be_named(given, yes) is bool(yes)
    (tmp_path / "mps.json").write_text(json.dumps(given))
    monkeypatch.setattr(daemon, "STATE", str(tmp_path / "mps.json"))
    assert boot.main(["present", no]) == 1, "systemd skips a unit whose condition is not met"
    assert devices.list_daemons(config("none"), CUT) == []


def test_a_limit_for_a_gpu_that_is_not_there() -> None:
    devices.check_limits(config(memory={"all": "8G", "1": "4G", "19:00.0": "4G", A[:12]: "4G"}), GPUS)
    with pytest.raises(devices.Problem, match="no GPU is 5; there are: 0"):
        devices.check_limits(config(memory={"5": "8G"}), GPUS)


def test_a_daemon_that_is_exclusive_no_more(folder: Path) -> None:
    nvml, given = Modes(EXCLUSIVE, EXCLUSIVE), exclusive(folder, "gpu", exclusive=False)
    note = folder / f"run/{B}.exclusive"
    modes.note_exclusive(given, GPUS[1], True)
    assert note.exists()
    modes.compute_modes(devices.list_daemons(given, GPUS)[1], given, nvml)
    assert nvml.modes == [EXCLUSIVE, DEFAULT]
    assert not note.exists()
