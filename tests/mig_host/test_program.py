"""The program against the stand-in NVML: applied, applied again, changed, refused, cut off, booted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.mig_host.on_host import A100, H100, USUAL, Machine, act, every, layout, program, user, users

pytestmark = pytest.mark.install  # programs, started again and again


def devices(machine: Machine) -> dict[str, str]:
    """By the profile of the GPU instance, the UUID of its MIG device."""
    found = {}
    with machine.binding() as nvml:
        handle = nvml.nvmlDeviceGetHandleByIndex(0)
        names = {one["id"]: one["profile"] for one in machine.run("state")["gpus"][0]["instances"]}
        for number in range(len(names)):
            device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            found[names[nvml.nvmlDeviceGetGpuInstanceId(device)]] = nvml.nvmlDeviceGetUUID(device)
    return found


def test_plan_changes_nothing_and_apply_does_what_it_said(h100: Machine) -> None:
    planned = h100.run("plan", USUAL)
    assert planned["changed"]
    assert h100.there() == []
    assert h100.run("apply", USUAL) == planned
    made = sorted((profile, sizes) for profile, _, sizes in h100.there())
    assert made == [("1g.10gb", [1]), ("1g.10gb", [1]), ("2g.20gb", [2]), ("3g.40gb", [3])]


@pytest.mark.parametrize("command", ["plan", "apply"])
def test_a_second_time_nothing_is_to_do(h100: Machine, command: str) -> None:
    h100.run("apply", USUAL)
    before = devices(h100)
    again = h100.run(command, USUAL)
    assert (again["changed"], again["steps"], again["problem"]) == (False, [], "")
    assert devices(h100) == before


def test_a_change_of_the_layout_leaves_what_matches(h100: Machine) -> None:
    h100.run("apply", every({"3g.40gb": 1, "2g.20gb": 1}))
    before = devices(h100)
    h100.run("apply", every({"3g.40gb": 1, "1g.10gb": 2}))
    after = devices(h100)
    assert after["3g.40gb"] == before["3g.40gb"]
    assert sorted(p for p, _, _ in h100.there()) == ["1g.10gb", "1g.10gb", "3g.40gb"]


def test_placements_and_compute_instances(h100: Machine) -> None:
    wanted = every([{"profile": "3g.40gb", "placement": 4, "compute": {"1c": 1, "2c": 1}}, {"profile": "1g.10gb+me"}])
    h100.run("apply", wanted)
    there = {profile: (start, sorted(sizes)) for profile, start, sizes in h100.there()}
    assert there["3g.40gb"] == (4, [1, 2])
    assert there["1g.10gb+me"][1] == [1]
    assert not h100.run("plan", wanted)["changed"]
    h100.run("apply", every([{"profile": "3g.40gb", "placement": 4}]))
    assert h100.there() == [("3g.40gb", 4, [3])]


def test_each_gpu_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "LOCK", str(tmp_path / "lock"))
    machine = Machine(tmp_path, H100, 3)
    (tmp_path / "models.json").write_text(json.dumps({"0x233010DE": H100}))
    machine.run(
        "apply",
        layout(
            {"gpus": [H100], "instances": {"7g.80gb": 1}},
            {"gpus": [1], "mode": "disabled"},
            {"gpus": ["0001:12:00.0"], "instances": {"3g.40gb": 2}},
        ),
    )
    assert [[p for p, _, _ in machine.there(gpu)] for gpu in range(3)] == [["7g.80gb"], [], ["3g.40gb", "3g.40gb"]]


def test_a_mig_parted_list(h100: Machine) -> None:
    entry = {"devices": "all", "mig-enabled": True, "mig-devices": {"1c.3g.40gb": 3}}
    h100.run("apply", {"version": 1, "mode": "enabled", "layout": [], "mig_parted": [entry]})
    assert [(p, c) for p, _, c in h100.there()] == [("3g.40gb", [1, 1, 1])]


def test_an_instance_in_use_is_refused_before_anything_is_destroyed(
    h100: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    h100.run("apply", every({"3g.40gb": 2}))
    used = h100.run("state")["gpus"][0]["instances"][1]["id"]
    before = devices(h100)
    monkeypatch.setattr(users, "list_users", lambda *_: [user(used, 0, unit="docker-abc.scope")])
    answer = h100.run("apply", every({"7g.80gb": 1}))
    assert answer["in_use"] == ["GPU 0 (0001:10:00.0): train (pid 4711, alice, docker-abc.scope)"]
    assert "Nothing was changed" in h100.problem
    assert not answer["changed"]
    assert devices(h100) == before
    assert not h100.run("apply", every({"3g.40gb": 1, "1g.10gb": 4}))["problem"]
    assert [start for profile, start, _ in h100.there() if profile == "3g.40gb"] == [4]


def test_services_that_are_stopped_for_it_are_not_in_the_way(h100: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    h100.run("apply", every({"3g.40gb": 2}))
    held = [user(2, 0, unit="gpuprov-mps@gpu0-mig4.service"), user(unit="nvidia-dcgm.service")]
    held += [user(1, 0, unit="gpuprov-mps@gpu0-mig0.service")]
    monkeypatch.setattr(users, "list_users", lambda *_: held)
    away = every([{"profile": "3g.40gb", "placement": 0}])
    answer = h100.run("plan", away, "--services=nvidia-dcgm.service,gpuprov-mps@*.service")
    assert answer["services"] == ["gpuprov-mps@gpu0-mig4.service"]
    assert answer["beside"] == ["gpuprov-mps@gpu0-mig0.service", "nvidia-dcgm.service"]
    assert answer["problem"] == ""


def test_who_only_has_the_gpu_open_is_named(h100: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "list_users", lambda *_: [user(computes=False, unit="kubepods-1.scope")])
    answer = h100.run("plan", USUAL)
    assert answer["problem"] == ""
    assert answer["watching"] == ["train (pid 4711, alice, kubepods-1.scope)"]


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (every({"3g.40gb": 3}), "GPU 0 (0001:10:00.0): 3 x 3g.40gb"),
        (every({"3g.20gb": 1}), "has no MIG profile 3g.20gb; it has: 1g.10gb"),
        (layout({"gpus": [5], "instances": {}}), "layout[0].gpus: no GPU here is 5"),
        (layout({"gpus": "all", "instances": {"3x": 1}}), 'layout[0].instances: "3x" is not a MIG profile'),
        ({"version": 1}, "what is wanted lacks 'mode'"),
        ([], "gpuprov apply writes it again"),
        ("{", "gpuprov apply writes it again"),
    ],
)
def test_what_cannot_be_is_one_line_and_changes_nothing(h100: Machine, wanted: object, text: str) -> None:
    h100.run("apply", every({"2g.20gb": 1}))
    answer = h100.run("apply", wanted)
    assert text in answer["problem"]
    assert text in h100.problem
    assert (answer["steps"], answer["changed"]) == ([], False)
    assert [profile for profile, _, _ in h100.there()] == ["2g.20gb"]


def test_a_failure_midway_says_what_is_there_and_the_next_run_goes_on(
    h100: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h100.binding() as nvml:
        real, made = nvml.nvmlGpuInstanceCreateComputeInstance, []

    def breaks(*arguments: Any) -> Any:
        made.append(1)
        if len(made) == 2:
            raise nvml.NVMLError(nvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
        return real(*arguments)

    monkeypatch.setattr(nvml, "nvmlGpuInstanceCreateComputeInstance", breaks)
    assert h100.run("apply", USUAL)["changed"]
    assert "the driver does not create 2c in 2g.20gb" in h100.problem
    assert "Now there is: GPU 0 MIG with " in h100.problem
    assert "with no compute instance" in h100.problem
    assert h100.run("apply", USUAL)["problem"] == ""
    assert not h100.run("plan", USUAL)["changed"]


def test_what_the_driver_does_not_do_is_noticed(h100: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(act, "make", lambda *_: None)
    assert "still to do: GPU 0 (0001:10:00.0): create 3g.40gb" in h100.run("apply", USUAL)["problem"]


def test_disabled(h100: Machine) -> None:
    h100.run("apply", USUAL)
    h100.run("apply", layout(mode="disabled"))
    gpu = h100.run("state")["gpus"][0]
    assert (gpu["current"], gpu["instances"]) == (False, [])


@pytest.mark.parametrize("model", [H100, A100])
def test_a_boot_brings_all_back_and_a_second_start_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setattr(program, "LOCK", str(tmp_path / "lock"))
    machine = Machine(tmp_path, model)
    machine.run("apply", USUAL)
    before = machine.there()
    machine.host.boot(2)
    assert machine.there() == []
    machine.run("boot")
    assert machine.said.count("\n") == (4 if model == A100 else 5)
    assert machine.there() == before
    machine.run("boot")
    assert machine.said == "matches the spec: nothing changed\n"


def test_ampere_with_a_client_names_it_and_takes_the_pending_mode_back(
    a100: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = a100.host.write("/dev/nvidia0", "")
    with device.open() as held, subprocess.Popen(["sleep", "60"], stdin=held) as holder:
        found = iter([[], [user(unit="late.service")]])
        monkeypatch.setattr(users, "list_users", lambda *_: next(found))
        a100.run("apply", USUAL)
        holder.kill()
    assert "MIG mode cannot be enabled: In use by another client" in a100.problem
    assert "used by train (pid 4711, alice, late.service)" in a100.problem
    monkeypatch.undo()
    monkeypatch.setattr(program, "LOCK", str(a100.folder / "lock"))
    gpu = a100.run("state")["gpus"][0]
    assert (gpu["current"], gpu["pending"]) == (False, False)


def test_a_virtual_machine_that_may_not_reset_its_gpu(a100: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with a100.binding() as nvml:
        monkeypatch.setattr(nvml, "nvmlDeviceSetMigMode", lambda *_: nvml.NVML_ERROR_NOT_SUPPORTED)
    assert a100.run("apply", USUAL)["reboot"]
    assert "reboot the virtual machine, then apply again" in a100.problem


def test_a_reset_by_nvidia_smi_where_nvml_could_not(
    a100: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho \"$@\" >> ${0%/*}/asked\necho 'GPU Reset could not run'; exit 15\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("os.path.isdir", lambda path: path == "/sys/module/nvidia_drm")
    with a100.binding() as nvml:
        monkeypatch.setattr(nvml, "nvmlDeviceSetMigMode", lambda *_: nvml.NVML_ERROR_RESET_REQUIRED)
    a100.run("apply", USUAL)
    assert not (tmp_path / "asked").exists()
    assert a100.run("apply", USUAL, "--may-reset")["reboot"]
    assert (tmp_path / "asked").read_text() == "--gpu-reset -i 0001:10:00.0\n"
    assert "GPU Reset could not run; nvidia_drm is loaded, which holds the GPU" in a100.problem
