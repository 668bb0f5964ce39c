"""The module gpuprov_gpu_settings, and the same program at boot, on the stand-in NVML: judged whole, set, read back,
kept or lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.host_code.modules import on_host, step
from tests.simulate.nvml_host import Host, holding

pytestmark = pytest.mark.install  # programs, started again and again

nvml, act, program = (on_host(f"gpu_settings.{name}") for name in ("nvml", "act", "__main__"))
Run = Callable[..., dict[str, Any]]


@pytest.fixture(name="host")
def fixture_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Two H100 whose driver is loaded."""
    host = Host(tmp_path / "host", "H100-SXM5-80GB", 2)
    on(host, monkeypatch)
    return host


def on(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPROV_SIM_ROOT", str(host.root))
    monkeypatch.setattr(nvml, "LIBRARY", str(host.library))
    monkeypatch.setattr(on_host("reasons"), "FOLDER", str(host.root / "reboot-required.d"))
    monkeypatch.setattr(act, "RECORD", str(host.root / "run/gpuprov/gpu_settings.json"))
    monkeypatch.setattr(act, "MODULE", str(host.write("/sys/module/nvidia/version", "1").parent))


@pytest.fixture(name="run")
def fixture_run(host: Host, capsys: pytest.CaptureFixture[str]) -> Run:
    """The module as Ansible runs it; `all` are settings of every GPU."""

    def run(per_gpu: Any = (), *, check: bool = False, without_driver: bool = False, **settings: Any) -> dict[str, Any]:
        arguments: dict[str, Any] = {"all": settings, "per_gpu": list(per_gpu), "without_driver": without_driver}
        return step(capsys, "gpu_settings", check=check, **arguments)

    return run


EVERYTHING = {
    "ecc": "disabled",
    "power_limit": 500,
    "locked_clocks": {"graphics": [1200, 1755], "memory": [2619, 2619]},
    "compute_mode": "exclusive_process",
}
FIRST = "GPU 0 (0001:10:00.0)"


def state(host: Host, gpu: int = 0) -> dict[str, Any]:
    """What NVML says of a GPU, by NVIDIA's own binding."""
    with host.client() as client:
        handle = client.nvmlDeviceGetHandleByIndex(gpu)
        return {
            "ecc": tuple(client.nvmlDeviceGetEccMode(handle)),
            "power": client.nvmlDeviceGetPowerManagementLimit(handle) // 1000,
            "clock": client.nvmlDeviceGetClockInfo(handle, 0),
            "application": client.nvmlDeviceGetApplicationsClock(handle, 0),
            "mode": client.nvmlDeviceGetComputeMode(handle),
        }


FRESH = {"ecc": (1, 1), "power": 700, "clock": 345, "application": 1980, "mode": 0}


def test_everything_is_set_once(host: Host, run: Run) -> None:
    first = run(**EVERYTHING)
    assert first["changed"]
    assert len(first["steps"]) == 10
    assert state(host) == state(host, 1) == {"ecc": (1, 0), "power": 500, "clock": 1200, "application": 1980, "mode": 3}
    assert "power limit: 700 W" in first["diff"]["before"]
    assert "power limit: 500 W" in first["diff"]["after"]
    assert first["reboot"] == f"the ECC mode of {FIRST}, GPU 1 (0001:11:00.0) changes at a boot"
    again = run(**EVERYTHING)
    assert (again["changed"], again["steps"], again["diff"]["before"]) == (False, [], "")
    assert again["reboot"] == first["reboot"]
    assert on_host("reasons").read_reasons() == {"gpu_settings": first["reboot"]}


def test_check_mode_says_what_would_be_and_changes_nothing(host: Host, run: Run) -> None:
    said = run(check=True, **EVERYTHING)
    assert said["changed"]
    assert f"{FIRST}: power limit: 700 W -> 500 W" in said["steps"]
    assert state(host) == FRESH
    assert not (host.root / "run/gpuprov/gpu_settings.json").exists()


def test_one_gpu_otherwise_and_back_to_its_own(host: Host, run: Run) -> None:
    run([{"gpus": [1], "settings": {"power_limit": 300}}], power_limit=500)
    assert (state(host)["power"], state(host, 1)["power"]) == (500, 300)
    run(power_limit="default", compute_mode="default")
    assert state(host) == state(host, 1) == FRESH


def test_application_clocks_and_back(host: Host, run: Run) -> None:
    run(application_clocks={"memory": 2619, "graphics": 1755})
    assert state(host)["application"] == 1755
    assert not run(application_clocks={"memory": 2619, "graphics": 1755})["changed"]
    assert run(application_clocks="default")["changed"]
    assert state(host) == FRESH


def test_settings_are_put_back_and_of_a_gpu_that_others_changed_since_nothing(
    host: Host, run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words of the receipt are those of the checks."""
    monkeypatch.setattr(on_host("receipt"), "RECEIPT", str(host.root / "receipt.json"))
    run(**EVERYTHING)
    run([{"gpus": [1], "settings": {"power_limit": 300}}])
    words = {
        "power_limit": ("500 W", "700 W"),
        "compute_mode": ("exclusive_process", "default"),
        "ecc": ("disabled", "enabled"),
        "locked_clocks": ("graphics 1200 to 1755 MHz, memory 2619 to 2619 MHz", "graphics default, memory default"),
    }
    lasting = on_host("lasting")
    lines = [
        lasting.format_setting(lasting.Lasting(f"gpu_settings.{name}", gpu, f"{gpu}: {name}", *both, lasting.DRIVER))
        for gpu in (FIRST, "GPU 1 (0001:11:00.0)")
        for name, both in words.items()
    ]
    done = step(capsys, "settings", settings=lines)
    assert len(done["restored"]) == 7
    assert done["warnings"] == [
        "not put back: GPU 1 (0001:11:00.0): power_limit = 500 W: changed by others since it was applied: it is 300 W"
    ]
    assert state(host) == FRESH
    assert state(host, 1) == {**FRESH, "power": 300}
    assert not step(capsys, "settings", settings=lines)["changed"]


REFUSED = [
    ({"power_limit": 100}, "power_limit is 100 W; allowed: 200 to 700 W"),
    ({"power_limit": 701}, "allowed: 200 to 700 W"),
    (
        {"application_clocks": {"memory": 1593, "graphics": 1755}},
        "application_clocks.memory is 1593 MHz; allowed: 2619 MHz",
    ),
    (
        {"application_clocks": {"memory": 2619, "graphics": 1756}},
        "graphics is 1756 MHz; allowed with 2619: 119 clocks from 210 to 1980 MHz",
    ),
    (
        {"locked_clocks": {"graphics": [1200, 2000]}},
        "locked_clocks.graphics is 2000 MHz; allowed: 119 clocks from 210 to 1980 MHz",
    ),
    ({"locked_clocks": {"memory": [2600, 2619]}}, "locked_clocks.memory is 2600 MHz; allowed: 2619 MHz"),
]


@pytest.mark.parametrize(("settings", "said"), REFUSED)
def test_one_refusal_keeps_all_gpus_as_they_are(host: Host, run: Run, settings: dict[str, Any], said: str) -> None:
    answer = run([{"gpus": [1], "settings": settings}], compute_mode="prohibited")
    assert (answer["failed"], answer["changed"]) == (True, False)
    assert answer["msg"].startswith("GPU 1 (0001:11:00.0): ")
    assert said in answer["msg"]
    assert state(host) == state(host, 1) == FRESH


def test_a_gpu_that_is_not_here(host: Host, run: Run) -> None:
    answer = run([{"gpus": [7], "settings": {"power_limit": 500}}])
    assert "no GPU here is 7; there are: 0 0001:10:00.0, 1 0001:11:00.0" in answer["msg"]


def test_a_running_program_is_kept_from_no_limit_and_from_a_closed_door(host: Host, run: Run) -> None:
    files = [host.write("/dev/nvidia0", ""), host.write("/dev/nvidia-uvm", "")]
    with holding(*files) as pid:
        assert run(power_limit=400, locked_clocks={"graphics": [1200, 1200]})["changed"]
        answer = run(compute_mode="exclusive_process")
        assert (
            f"{FIRST}: compute_mode exclusive_process would keep processes out that compute here (pid {pid})"
            in answer["msg"]
        )
        assert not run(compute_mode="default")["changed"]
    assert run(compute_mode="exclusive_process")["changed"]


def test_a_gpu_in_mig_mode_has_the_default_compute_mode(host: Host, run: Run) -> None:
    with host.client() as client:
        client.nvmlDeviceSetMigMode(client.nvmlDeviceGetHandleByIndex(0), 1)
    assert (
        f"{FIRST}: compute_mode is prohibited, and a GPU in MIG mode takes default only"
        in run(compute_mode="prohibited")["msg"]
    )
    assert not run(compute_mode="default")["changed"]
    assert run([{"gpus": [1], "settings": {"compute_mode": "prohibited"}}], power_limit=400)["changed"]


def test_without_root_nothing_is_claimed(host: Host, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML refuses whoever may not: the folder of its state is not there for him."""
    (host.root / "var/lib/gpuprov-sim").rename(host.root / "var/lib/elsewhere")
    answer = run(power_limit=400)
    assert answer["failed"]
    assert "power limit 400 W: Insufficient Permissions; root may" in answer["msg"]


def test_what_reads_otherwise_afterwards_is_a_failure(host: Host, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml.Nvml, "call", lambda self, name, *rest: None if "Set" in name else CALL(self, name, *rest))
    answer = run(power_limit=400)
    assert "power limit is 700 W, not 400 W, after it was set: something else sets it too" in answer["msg"]


CALL = nvml.Nvml.call


def test_what_a_gpu_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(tmp_path / "t4", "T4", 1)
    lines = (host.root / "etc/gpuprov-sim/nvml.tsv").read_text().splitlines(keepends=True)
    host.write(
        "/etc/gpuprov-sim/nvml.tsv",
        "".join(one for one in lines if not one.startswith(("ecc\t", "power_", "clock_memory"))),
    )
    on(host, monkeypatch)
    answer = act.run(
        {
            "all": {
                "ecc": "enabled",
                "power_limit": 60,
                "application_clocks": "default",
                "locked_clocks": {"memory": [1, 2]},
            },
            "per_gpu": [],
        },
        change=True,
    )
    told = " ".join(answer.problems)
    assert "it has no ECC mode that can be set; leave ecc out" in told
    assert "it has no power limit that can be set; leave power_limit out" in told
    assert "it has no application clocks (Not Supported); take locked_clocks in their place" in told


def test_a_host_without_a_driver(host: Host, run: Run) -> None:
    host.remove("/proc/driver/nvidia/version")
    answer = run(power_limit=400)
    assert (answer["failed"], answer["msg"]) == (True, "NVML does not answer: Driver Not Loaded")
    later = run(power_limit=400, without_driver=True)
    assert (later["changed"], later["msg"]) == (False, later["later"])
    assert later["later"].startswith("NVML does not answer: Driver Not Loaded. gpuprov-gpu-settings.service sets")
    assert "msg" not in run(without_driver=True), "nothing is asked for"


def test_a_lost_gpu_is_said(host: Host, run: Run) -> None:
    host.write("/var/lib/gpuprov-sim/faults/gpu-lost", "1\n")
    assert "a GPU does not answer: GPU is lost" in run(power_limit=400)["msg"]


def written(host: Host, config: object) -> str:
    return str(host.write("/etc/gpuprov/gpu_settings.json", config if isinstance(config, str) else json.dumps(config)))


def test_a_boot_undoes_it_and_the_unit_does_it_again(host: Host, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run(**EVERYTHING)
    file = written(host, {"version": 1, "all": EVERYTHING, "per_gpu": []})
    host.boot(2)
    (host.root / "run/gpuprov/gpu_settings.json").unlink()
    assert state(host) == {**FRESH, "ecc": (0, 0)}
    assert program.main(["--config", file]) == 0
    assert f"{FIRST}: power limit: 700 W -> 500 W\n" in capsys.readouterr().out
    assert state(host) == {"ecc": (0, 0), "power": 500, "clock": 1200, "application": 1980, "mode": 3}
    assert program.main(["--config", file]) == 0
    assert capsys.readouterr().out == ""


def test_locks_are_of_one_loading_of_the_driver(host: Host, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    locks = {"locked_clocks": {"graphics": [1200, 1755]}}
    assert run(**locks)["changed"]
    assert not run(**locks)["changed"]
    monkeypatch.setattr(act, "MODULE", str(host.write("/sys/module/later/version", "1").parent))
    assert run(**locks)["changed"]
    assert run(locked_clocks={"graphics": "default"})["changed"]
    assert state(host) == FRESH
    assert not run(locked_clocks={"graphics": "default"})["changed"]


def test_a_lock_that_somebody_took_away_is_seen_by_a_clock_above_it(host: Host, run: Run) -> None:
    locks = {"locked_clocks": {"graphics": [210, 300]}}
    assert run(**locks)["changed"]
    with host.client() as client:
        client.nvmlDeviceResetGpuLockedClocks(client.nvmlDeviceGetHandleByIndex(0))
    assert run(**locks)["steps"] == [f"{FIRST}: locked graphics clocks: 210 to 300 MHz -> 210 to 300 MHz"]


def test_a_lock_that_nobody_can_see_to_be_gone_is_set_again_without_a_word(host: Host, run: Run) -> None:
    """As after the driver let go of an idle GPU."""
    run(**EVERYTHING)
    with host.client() as client:
        for gpu in (0, 1):
            client.nvmlDeviceResetGpuLockedClocks(client.nvmlDeviceGetHandleByIndex(gpu))
    assert state(host)["clock"] == 345
    assert not run(check=True, **EVERYTHING)["changed"]
    assert state(host)["clock"] == 345
    assert not run(**EVERYTHING)["changed"]
    assert state(host)["clock"] == 1200


def test_at_boot_one_gpus_problem_is_not_the_others(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    entries = [{"gpus": [1], "settings": {"power_limit": 9999}}]
    file = written(host, {"version": 1, "all": {"power_limit": 400}, "per_gpu": entries})
    assert program.main(["--config", file]) == 1
    assert (state(host)["power"], state(host, 1)["power"]) == (400, 700)
    assert "gpuprov-gpu-settings: GPU 1 (0001:11:00.0): power_limit is 9999 W" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"all": {}}'])
def test_a_configuration_that_cannot_be_read(host: Host, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert program.main(["--config", written(host, text)]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_the_boot_waits_for_the_driver_only_so_long(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.remove("/proc/driver/nvidia/version")
    assert program.main(["--config", written(host, {"all": {}, "per_gpu": []}), "--wait", "0"]) == 1
    assert "NVML does not answer: Driver Not Loaded" in capsys.readouterr().err


def test_a_damaged_record_is_no_record(host: Host, run: Run) -> None:
    locks = {"locked_clocks": {"graphics": [1200, 1755]}}
    run(**locks)
    for text in ("{", "[]", '{"module": 1}', "null"):
        host.write("/run/gpuprov/gpu_settings.json", text)
        assert run(**locks)["changed"]


def test_processes_that_compute_are_told_by_a_driver_of_branch_470() -> None:
    """Its NVML has the function as _v2 only: https://docs.nvidia.com/deploy/archive/R470/nvml-api/"""

    class Old:
        def nvmlDeviceGetComputeRunningProcesses_v2(self, _device: Any, count: Any, found: Any) -> int:
            found[0].pid, count._obj.value = 4711, 1
            return 0

    old = object.__new__(nvml.Nvml)
    old.library = Old()
    assert old.computing(None) == [4711]
