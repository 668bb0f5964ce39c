"""What the role brings to a host: which daemons the devices give, and what their units do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuprov.catalog import mps as catalogue
from tests.capabilities.mps_host import MIG, A, B
from tests.capabilities.mps_programs import CUT, GPUS, Programs, config, folder, programs, running

__all__ = ["folder", "programs"]


def names(programs: Programs, given: dict[str, Any], gpus: list[dict[str, Any]] = GPUS) -> dict[str, list[str]]:
    return {one["name"]: one["devices"] for one in programs.devices.daemons(given, gpus)}


def test_daemons_of_each_scope(programs: Programs) -> None:
    groups = [{"gpus": ["3b:00.0"], "name": "left"}, {"gpus": [A[:12]]}]
    assert names(programs, config()) == {"host": [A, B]}
    assert names(programs, config("gpu")) == {"gpu0": [A], "gpu1": [B]}
    assert names(programs, config("groups", groups=groups)) == {"left": [B], "group1": [A]}
    assert names(programs, config("mig"), CUT) == {
        "gpu0-mig4": [MIG[0]],
        "gpu1-mig0-ci0": [MIG[1]],
        "gpu1-mig0-ci1": ["MIG-c"],
    }
    pipes = [(one["pipe"], one["log"]) for one in programs.devices.daemons(config("gpu"), GPUS)]
    assert pipes[0] == ("/run/nvidia-mps/gpu0", "/var/log/nvidia-mps/gpu0")
    assert programs.devices.daemons(config(), GPUS)[0]["pipe"] == "/tmp/nvidia-mps"
    assert programs.devices.daemons(config(protocol="v3"), GPUS)[0]["pipe"] == "/run/nvidia-mps"


@pytest.mark.parametrize(
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
def test_devices_that_cannot_have_them(
    programs: Programs, given: dict[str, Any], gpus: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(programs.devices.Problem, match=message.replace("(", r"\(")):
        programs.devices.daemons(given, gpus)


def test_a_host_without_a_driver_is_judged_later(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> None:
        raise OSError("cannot open shared object file")

    monkeypatch.setattr(programs.devices.ctypes, "CDLL", missing)
    assert "no libnvidia-ml.so.1" in programs.devices.judge(config())["unknown"]
    monkeypatch.setattr(programs.daemon, "known_names", lambda: ["gpu0", "host"])
    monkeypatch.setattr(programs.daemon, "running", lambda _name: None)
    monkeypatch.setattr(programs.daemon, "enabled", lambda name: name == "host")
    told, later = programs.program.settle(config("gpu", count=2), False)
    assert told == [
        "gpuprov-mps@host.service: stopped and removed",
        "gpuprov-mps@gpu0.service: enabled",
        "gpuprov-mps@gpu1.service: enabled",
    ]
    assert "no libnvidia-ml.so.1" in later
    assert programs.program.settle(config("mig", count=2), False)[0] == [], "which there are is not known"
    assert programs.program.names_without_driver(
        config("groups", groups=[{"gpus": [0]}, {"gpus": [1], "name": "b"}])
    ) == ["group0", "b"]


def test_answers_are_json(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(_config: dict[str, Any], _change: bool) -> None:
        raise programs.devices.Problem("2 clients use it")

    monkeypatch.setattr(programs.program, "settle", refused)
    assert programs.program.main("apply", json.dumps(config())) == 0
    assert json.loads(capsys.readouterr().out) == {"changed": [], "problem": "2 clients use it", "later": ""}
    assert programs.program.main("start", "host") == 1, "there is no mps.json here"


def test_environments_of_clients(programs: Programs, folder: Path) -> None:
    control = running(programs, folder, A, container_directory=str(folder / "snippets"))
    assert programs.daemon.write_environments(control.daemon, control.config, control) is True
    assert programs.daemon.write_environments(control.daemon, control.config, control) is False
    pipe = str(folder / "pipe")
    assert f"CUDA_MPS_PIPE_DIRECTORY={pipe}\n" in (folder / "run/gpu0.env").read_text()
    snippet = (folder / "snippets/gpu0.yaml").read_text()
    assert f"volumes:\n  - {pipe}:{pipe}\nipc: host\n" in snippet
    assert "CUDA_VISIBLE_DEVICES" not in snippet
    (folder / "run/gpu01.env").touch()
    control.config["container_directory"] = ""
    assert programs.daemon.write_environments(control.daemon, control.config, control) is True
    assert list(folder.glob("snippets/*")) == [], "a folder that is not asked for any more"
    assert programs.daemon.remove_environments(control.config, "gpu0") is True
    assert programs.daemon.remove_environments(control.config, "gpu0") is False
    assert [path.name for path in folder.glob("run/*")] == ["gpu01.env"]


def test_a_mig_device_is_named_to_its_clients(programs: Programs) -> None:
    one = programs.devices.daemons(config("mig"), CUT)[0]
    found = programs.daemon.client_environments(one, config("mig"))
    assert found["gpu0-mig4"]["CUDA_VISIBLE_DEVICES"] == MIG[0]


def test_what_protocol_3_is_started_with(programs: Programs) -> None:
    given = config("gpu", protocol="v3", percentage=50, memory={"all": "8G"}, partitions=[4], user="1000")
    one = programs.devices.daemons(given, GPUS)[0]
    assert programs.daemon.command(one, given) == [
        catalogue.CONTROL,
        "-f",
        "-p",
        "3",
        "-a",
        "/run/gpuprov/mps/gpu0.toml",
    ]
    assert programs.daemon.command(one, given | {"user": ""})[2:5] == ["-p", "3", "-m"]
    assert programs.daemon.toml(one, given) == (
        f'schema_version = "1.0"\n[servers.gpuprov]\nallowed_devices = "{A}"\nactive_thread_percentage = "50"\n'
        'client_priority = "0"\nuid = 1000\npinned_memory_limit = "8G"\n'
        f'[[servers.gpuprov.devices]]\nuuid = "{A}"\n[[servers.gpuprov.devices.sm_partitions]]\nname = "p0"\nchunks = 4\n'
    )
    assert (
        programs.daemon.client_environments(one, given)["gpu0"]["CUDA_MPS_PIPE_DIRECTORY"]
        == "/run/nvidia-mps/gpu0/gpuprov"
    )
    assert programs.daemon.command(one, config(partitions=[4]))[-1] == "-S"


def test_a_user_that_is_not_there(programs: Programs) -> None:
    assert programs.daemon.uid_of(config(user="root")) == 0
    with pytest.raises(programs.devices.Problem, match="no user gpuprov-nobody"):
        programs.daemon.uid_of(config(user="gpuprov-nobody"))


def test_the_users_server(programs: Programs, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs.daemon, "SETTLING", 0.0)
    control = running(programs, folder, A, user=str(os.getuid()))
    assert programs.daemon.start_server(control.config, control) is False, "it ended at once"
    (folder / "pipe/servers").write_text(f"999999999\n{os.getpid()}\n")
    assert programs.daemon.serves(os.getuid(), control)
    assert not programs.daemon.serves(os.getuid() + 1, control)
    assert programs.daemon.start_server(control.config, control) is False, "it runs already"
    assert "start_server -uid" in (folder / "pipe/log").read_text()


def test_a_daemon_with_clients_is_not_restarted(programs: Programs, folder: Path) -> None:
    (folder / "pipe/servers").write_text("800\n")
    process = ("700", [catalogue.CONTROL, "-f"], {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe")})
    given = config(control=str(folder / "control"))
    with pytest.raises(programs.devices.Problem, match=r"2 clients use it: pid 900 901; end or drain them"):
        programs.program.refuse_clients("gpu0", given, process, "other devices")
    (folder / "pipe/servers").write_text("")
    programs.program.refuse_clients("gpu0", given, process, "other devices")


def test_why_a_daemon_is_another(programs: Programs) -> None:
    one = programs.devices.daemons(config(), GPUS)[0]
    words, environment = programs.daemon.command(one, config()), programs.daemon.environment(one)
    assert programs.program.differs(one, config(), ("7", [*words, ""], environment)) == ""
    moved = environment | {"CUDA_VISIBLE_DEVICES": A}
    assert (
        programs.program.differs(one, config(), ("7", words, moved)) == f"CUDA_VISIBLE_DEVICES is {A}, wanted {A},{B}"
    )
    assert "started as" in programs.program.differs(one, config(partitions=[4]), ("7", words, environment))


def test_a_program_that_was_replaced(programs: Programs, tmp_path: Path) -> None:
    copy = tmp_path / "sleep"
    shutil.copy2("/bin/sleep", copy)
    with subprocess.Popen([copy, "30"]) as process:
        assert not programs.daemon.replaced(str(process.pid))
        copy.unlink()
        assert programs.daemon.replaced(str(process.pid))
        one = programs.devices.daemons(config(), GPUS)[0]
        assert programs.program.differs(one, config(), (str(process.pid), [], {})) == "its program was replaced"
        process.kill()
    assert not programs.daemon.replaced("0")
