"""What the role brings to a host: which daemons the devices give, and what their units do."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from gpuprov.catalog import mps as catalogue
from gpuprov.host_code import mps_program
from gpuprov.host_code.mps import __main__ as boot
from gpuprov.host_code.mps import daemon, devices, environments, program
from tests.capabilities.mps_host import MIG, A, B
from tests.capabilities.mps_programs import CUT, GPUS, NEW, config, folder, running
from tests.rows import run_each

__all__ = ["folder"]


def names(given: dict[str, Any], gpus: list[dict[str, Any]] = GPUS) -> dict[str, list[str]]:
    return {one["name"]: one["devices"] for one in devices.list_daemons(given, gpus)}


def test_daemons_of_each_scope() -> None:
    groups = [{"gpus": ["3b:00.0"], "name": "left"}, {"gpus": [A[:12]]}]
    assert names(config()) == {"host": [A, B]}
    assert names(config("gpu")) == {"gpu0": [A], "gpu1": [B]}
    assert names(config("groups", groups=groups)) == {"left": [B], "group1": [A]}
    assert names(config("mig"), CUT) == {
        "gpu0-mig4": [MIG[0]],
        "gpu1-mig0-ci0": [MIG[1]],
        "gpu1-mig0-ci1": ["MIG-c"],
    }
    pipes = [(one["pipe"], one["log"]) for one in devices.list_daemons(config("gpu"), GPUS)]
    assert pipes[0] == ("/run/nvidia-mps/gpu0", "/var/log/nvidia-mps/gpu0")
    assert devices.list_daemons(config(), GPUS)[0]["pipe"] == "/tmp/nvidia-mps"
    assert devices.list_daemons(config(protocol="v3"), GPUS)[0]["pipe"] == "/run/nvidia-mps"


@run_each(
    ("given", "gpus", "message"),
    [
        (config(), CUT, "GPU 0, which is in MIG mode"),
        (config("gpu"), CUT, "GPU 0, which is in MIG mode"),
        (config(), [], "no GPU"),
        (config("groups", groups=[{"gpus": [5]}]), GPUS, "no GPU is 5; there are: 0 (0000:19:00.0"),
        (config("groups", groups=[{"gpus": ["GPU-"]}]), GPUS, "no GPU is GPU-"),
        (
            config("groups", groups=[{"gpus": [0]}, {"gpus": ["19:00.0"]}]),
            GPUS,
            "GPU 0 is in group0 and again in group1",
        ),
        (config("groups", groups=[{"gpus": [1], "name": "a"}]), CUT, "group a has GPU 1, which is in MIG mode"),
    ],
)
def test_devices_that_cannot_have_them(given: dict[str, Any], gpus: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(devices.Problem, match=message.replace("(", r"\(")):
        devices.list_daemons(given, gpus)


def test_a_host_without_a_driver_is_judged_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> None:
        raise OSError("cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL", missing)
    monkeypatch.setattr(daemon, "list_known_names", lambda: ["gpu0", "host"])
    monkeypatch.setattr(daemon, "find_running", lambda _name: None)
    monkeypatch.setattr(daemon, "is_enabled", lambda name: name == "host")
    told, later = program.settle(config("gpu", count=2), False, NEW)
    assert told == [
        "gpuprov-mps@host.service: stopped and removed",
        "gpuprov-mps@gpu0.service: enabled",
        "gpuprov-mps@gpu1.service: enabled",
    ]
    assert "no libnvidia-ml.so.1" in later
    assert program.settle(config("mig", count=2), False, NEW)[0] == [], "which there are is not known"
    assert program.list_names_without_driver(config("groups", groups=[{"gpus": [0]}, {"gpus": [1], "name": "b"}])) == [
        "group0",
        "b",
    ]


def test_a_unit_that_cannot_start_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(daemon, "STATE", str(tmp_path / "mps.json"))
    assert boot.main(["start", "host"]) == 1
    assert "No such file" in capsys.readouterr().err


def test_environments_of_clients(folder: Path) -> None:
    control = running(folder, A, container_directory=str(folder / "snippets"))
    assert environments.write_environments(control.daemon, control.config, control) is True
    assert environments.write_environments(control.daemon, control.config, control) is False
    pipe = str(folder / "pipe")
    assert f"CUDA_MPS_PIPE_DIRECTORY={pipe}\n" in (folder / "run/gpu0.env").read_text()
    snippet = (folder / "snippets/gpu0.yaml").read_text()
    assert f"volumes:\n  - {pipe}:{pipe}\nipc: host\n" in snippet
    assert "CUDA_VISIBLE_DEVICES" not in snippet
    (folder / "run/gpu01.env").touch()
    without = {**control.config, "container_directory": ""}
    assert environments.write_environments(control.daemon, without, control) is True
    assert list(folder.glob("snippets/*")) == [], "a folder that is not asked for any more"
    assert environments.remove_environments(control.config, "gpu0") is True
    assert environments.remove_environments(control.config, "gpu0") is False
    assert [path.name for path in folder.glob("run/*")] == ["gpu01.env"]


def test_a_mig_device_is_named_to_its_clients() -> None:
    one = devices.list_daemons(config("mig"), CUT)[0]
    found = environments.build_client_environments(one, config("mig"))
    assert found["gpu0-mig4"]["CUDA_VISIBLE_DEVICES"] == MIG[0]


def test_what_protocol_3_is_started_with() -> None:
    given = config("gpu", protocol="v3", percentage=50, memory={"all": "8G"}, partitions=[4], user="1000")
    one = devices.list_daemons(given, GPUS)[0]
    assert daemon.build_command(one, given) == [
        catalogue.CONTROL,
        "-f",
        "-p",
        "3",
        "-a",
        "/run/gpuprov/mps/gpu0.toml",
    ]
    assert daemon.build_command(one, given | {"user": ""})[2:5] == ["-p", "3", "-m"]
    assert daemon.format_toml(one, given) == (
        f'schema_version = "1.0"\n[servers.gpuprov]\nallowed_devices = "{A}"\nactive_thread_percentage = "50"\n'
        'client_priority = "0"\nuid = 1000\npinned_memory_limit = "8G"\n'
        f'[[servers.gpuprov.devices]]\nuuid = "{A}"\n[[servers.gpuprov.devices.sm_partitions]]\nname = "p0"\nchunks '
        "= 4\n"
    )
    assert (
        environments.build_client_environments(one, given)["gpu0"]["CUDA_MPS_PIPE_DIRECTORY"]
        == "/run/nvidia-mps/gpu0/gpuprov"
    )
    assert daemon.build_command(one, config(partitions=[4]))[-1] == "-S"


def test_a_user_that_is_not_there() -> None:
    assert daemon.find_uid(config(user="root")) == 0
    with pytest.raises(devices.Problem, match="no user gpuprov-nobody"):
        daemon.find_uid(config(user="gpuprov-nobody"))


def test_the_users_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "SETTLING", 0.0)
    control = running(folder, A, user=str(os.getuid()))
    assert daemon.start_server(control.config, control) is False, "it ended at once"
    (folder / "pipe/servers").write_text(f"999999999\n{os.getpid()}\n")
    assert daemon.is_serving(os.getuid(), control)
    assert not daemon.is_serving(os.getuid() + 1, control)
    assert daemon.start_server(control.config, control) is False, "it runs already"
    assert "start_server -uid" in (folder / "pipe/log").read_text()


def test_a_daemon_with_clients_is_not_restarted(folder: Path) -> None:
    (folder / "pipe/servers").write_text("800\n")
    process = ("700", [catalogue.CONTROL, "-f"], {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe")})
    given = config(control=str(folder / "control"))
    with pytest.raises(devices.Problem, match=r"2 clients use it: pid 900 901; end or drain them"):
        program.refuse_clients("gpu0", given, process, "other devices")
    (folder / "pipe/servers").write_text("")
    program.refuse_clients("gpu0", given, process, "other devices")


def test_why_a_daemon_is_another() -> None:
    one = devices.list_daemons(config(), GPUS)[0]
    words, environment = daemon.build_command(one, config()), daemon.build_environment(one)
    assert program.compare_daemon(one, config(), ("7", [*words, ""], environment), NEW) == ""
    moved = environment | {"CUDA_VISIBLE_DEVICES": A}
    assert (
        program.compare_daemon(one, config(), ("7", words, moved), NEW)
        == f"CUDA_VISIBLE_DEVICES is {A}, wanted {A},{B}"
    )
    assert "started as" in program.compare_daemon(one, config(partitions=[4]), ("7", words, environment), NEW)


@pytest.mark.install
def test_a_program_that_was_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "sleep"
    shutil.copy2("/bin/sleep", copy)
    monkeypatch.setattr(mps_program, "CONTROL", str(copy))
    with subprocess.Popen([copy, "30"]) as process:
        time.sleep(0.3)  # the clock of processes is coarser than that of files
        os.utime(copy)
        assert mps_program.explain_age(str(process.pid)) == "", "it runs from this very file"
        copy.unlink()
        shutil.copy2("/bin/sleep", copy)
        assert mps_program.explain_age(str(process.pid)) == f"older than {copy}"
        one = devices.list_daemons(config(), GPUS)[0]
        found = program.compare_daemon(one, config(), (str(process.pid), [], {}), mps_program.explain_age)
        assert found == f"older than {copy}"
        process.kill()
    assert mps_program.explain_age("0") == ""


def test_a_file_is_put_in_its_place_and_no_link_is_followed(tmp_path: Path) -> None:
    """A site's folder for containers' snippets may be one that its users write to."""
    victim, place = tmp_path / "victim", tmp_path / "host.yaml"
    victim.write_text("its own")
    for name in ("host.yaml", "host.yaml.new"):
        (tmp_path / name).symlink_to(victim)
    assert daemon.write(str(place), "ours")
    assert (victim.read_text(), place.read_text(), place.is_symlink()) == ("its own", "ours", False)
    assert place.stat().st_mode & 0o777 == 0o644
    place.write_bytes(b"\xff")
    assert daemon.write(str(place), "ours")
    assert not daemon.write(str(place), "ours")
    place.unlink()
    os.mkfifo(place)
    assert daemon.write(str(place), "ours", change=False)


def test_a_process_whose_name_is_no_text_is_in_nobodys_way(tmp_path: Path) -> None:
    program_file = shutil.copy(shutil.which("sleep") or "", tmp_path / "\udcff\udcfe")
    with subprocess.Popen(["sleep", "60"], executable=program_file, env={b"X": b"\xff"}) as child:
        try:
            while b"\xff" not in Path(f"/proc/{child.pid}/comm").read_bytes():
                time.sleep(0.01)
            assert daemon.read_process_file(str(child.pid), "comm") == "\ufffd\ufffd\n"
            assert daemon.read_process(str(child.pid)) == (str(child.pid), ["sleep", "60", ""], {"X": "\ufffd"})
        finally:
            child.kill()
