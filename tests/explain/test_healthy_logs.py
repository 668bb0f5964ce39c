"""Logs of programs that are well, line by line from public threads, show no symptom, whole and as they come through a
pipe."""

from __future__ import annotations

import io
import re
from pathlib import Path

import msgspec
import pytest
import yaml

from gpuprov.explain import explain
from gpuprov.explain.messages import symptoms_in
from tests.explain import whole_logs
from tests.rows import run_each


class HealthyLog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lines of a log, with the address of the thread."""

    name: str
    source: str
    lines: tuple[str, ...]


LOADED = yaml.safe_load((Path(__file__).parent / "healthy_logs.yaml").read_text(encoding="utf-8"))
LOGS = msgspec.convert(LOADED, list[HealthyLog])


def keys(log: str) -> list[tuple[str, str]]:
    return [(one.symptom.key, one.line) for one in symptoms_in(io.BytesIO(log.encode()))]


def test_there_are_many_kinds_each_with_its_address() -> None:
    assert len(LOGS) >= 30
    assert len({one.source for one in LOGS}) == len(LOGS)
    assert all(one.source.startswith("https://") for one in LOGS)


@run_each("log", LOGS, ids=lambda log: log.name)
def test_a_log_of_a_program_that_is_well_is_silent(log: HealthyLog) -> None:
    assert keys("\n".join(log.lines)) == []


def test_all_of_them_together_are_silent() -> None:
    assert keys("\n".join(line for log in LOGS for line in log.lines)) == []


@run_each("log", LOGS, ids=lambda log: log.name)
def test_a_message_of_a_host_that_is_well_is_answered_by_itself_only(log: HealthyLog) -> None:
    """It is silent with a line beside it, and says then, too, what a line beside it reports."""
    other = "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus."
    assert {key for key, _ in keys("\n".join((*log.lines, other)))} == {"xid-79", "gpu-lost"}


def test_a_harmless_message_that_is_pasted_is_explained() -> None:
    taint = "nvidia: module verification failed: signature and/or required key missing - tainting kernel"
    assert "nothing is wrong" in dict(explain(taint)[0].lines)["cause"]
    assert keys(taint) == [("module-unsigned-taint", taint)]
    assert keys(f"{taint}\n{taint}") == []


def test_a_driver_that_leaves_a_gpu_to_another_is_silent_in_a_log() -> None:
    line = "[ 3.026979] nouveau 0000:04:00.0: unknown chipset (132000a1)"
    assert keys(line) == [("nouveau-unknown-gpu", line)]
    assert keys(f"{line}\n[ 9.84] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  361.42") == []


def test_a_device_without_room_is_told_beside_bridges_without() -> None:
    device = "pci 0000:41:00.0: BAR 1: no space for [mem size 0x2000000000 64bit pref]"
    bridge = "pci 0000:40:01.0: BAR 13: no space for [io  size 0x1000]"
    assert keys("\n".join((bridge, device, bridge))) == [("pci-no-space", device)]


def test_the_whole_logs_are_of_many_hosts() -> None:
    assert len({log.source for log in whole_logs.LOGS}) == len({log.name for log in whole_logs.LOGS}) >= 30
    assert len({log.host for log in whole_logs.LOGS}) >= 15
    assert all(re.match(r"https://github\.com/.*/blob/[0-9a-f]{40}/", log.source) for log in whole_logs.LOGS)


def test_whole_logs_are_measured_in_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = whole_logs.LOGS[:2]
    (tmp_path / first.name).write_text("NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n")
    (tmp_path / second.name).write_text("usb 1-1: new device\n")
    whole_logs.measure(tmp_path)
    told = capsys.readouterr().out
    assert f"{first.name}: xid-79: " in told
    assert f"1 of 2 logs of 1 host is silent; {len(whole_logs.LOGS) - 2} are not there" in told
