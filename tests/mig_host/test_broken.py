"""What the program answers where NVML fails on the way, or what is wanted cannot be read for these GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuprov.host_code.mig.apply import Judged
from tests.clock import Clock
from tests.mig_host.on_host import USUAL, Given, Machine, layout, program


def test_nvml_that_does_not_come_back_after_a_reset(
    a100: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with a100.binding() as nvml:
        real, made = nvml.nvmlInit, []

        def dies() -> None:
            made.append(1)
            if len(made) > 1:
                raise nvml.NVMLError(nvml.NVML_ERROR_DRIVER_NOT_LOADED)
            real()

        monkeypatch.setattr(program, "time", Clock())
        monkeypatch.setattr("tests.mig_host.on_host.Machine.binding", lambda _: Given(nvml))
        monkeypatch.setattr(nvml, "nvmlInit", dies)
        monkeypatch.setattr(nvml, "nvmlDeviceSetMigMode", lambda *_: nvml.NVML_ERROR_RESET_REQUIRED)
        nvml.nvmlShutdown()
        answer = a100.run("apply", USUAL, "--may-reset")
        monkeypatch.undo()
        nvml.nvmlInit()
    assert answer["changed"]
    assert a100.problem.startswith("Driver Not Loaded. Now there is: what NVML does not tell")


@pytest.mark.parametrize("gpus", [[5], ["GPU-1"]])
def test_a_refusal_has_all_that_an_answer_has(h100: Machine, gpus: list[Any]) -> None:
    """Who reads it asks for `in_use` and `resets` of every answer."""
    whole = h100.run("plan", USUAL)
    refused = h100.run("plan", layout({"gpus": gpus, "instances": {"3g.40gb": 1}}))
    assert not {*whole} - {*refused}
    assert (refused["driver"], refused["changed"], refused["in_use"]) == (True, False, [])
    assert "no GPU here is" in refused["problem"]


def test_nvml_that_fails_after_the_change(h100: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    real, judged = Judged, []

    def fails(nvml: Any, *arguments: Any) -> Any:
        judged.append(1)
        if len(judged) == 2:
            raise nvml.error(nvml.lib.NVML_ERROR_GPU_IS_LOST)
        return real(nvml, *arguments)

    monkeypatch.setattr(program, "Judged", fails)
    answer = h100.run("apply", USUAL)
    assert (answer["changed"], answer["reboot"]) == (True, False)
    assert answer["problem"].startswith("NVML: ")
