"""Simulated machines that really boot: one is made, changed, rebooted, kept and copied."""

from __future__ import annotations

import io
import os
import signal
import tarfile
from collections.abc import Iterator

import pytest

from gpuprov.capabilities.health.fragment import Health
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.host.hardware import FILES, HARDWARE
from gpuprov.simulate import disk_files, faults, machine
from gpuprov.simulate.description import Description, Gpus
from tests.capabilities.asking import ask

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
FIRST, SECOND, TAG = "e2e-machine-a", "e2e-machine-b", "e2e-machine"
DESCRIPTION = Description(kind="machine", gpu=Gpus(model="H100-SXM5-80GB", count=2), memory=1024)


@pytest.fixture(scope="module")
def first() -> Iterator[str]:
    machine.up(FIRST, DESCRIPTION)
    yield FIRST
    for name in (FIRST, SECOND):
        machine.down(name)
    machine.discard(TAG)


def test_it_is_a_debian_with_its_own_kernel_bootloader_and_gpus(first: str) -> None:
    said = machine.run(
        first, "hostname; findmnt -no SOURCE /boot; grep -c ^menuentry /boot/grub/grub.cfg; lspci -D -d 10de: | wc -l"
    )
    assert said.split() == [first, "/dev/vda1", "1", "2"]
    assert "Linux version" in machine.logs(first)
    assert ("machine", "running") in {(row.kind, row.state) for row in machine.listing() if row.name == first}


def test_a_reboot_takes_a_new_command_line_and_keeps_the_disk(first: str) -> None:
    content = b'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX gpuprov.test=1"\n'
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo("etc/default/grub.d/99-test.cfg")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    machine.write(first, buffer.getvalue())
    machine.run(first, "update-grub 2>&1")
    machine.reboot(first)
    assert "gpuprov.test=1" in machine.run(first, "cat /proc/cmdline")


def test_what_a_machine_is_made_of_can_be_spoilt(first: str) -> None:
    """CPUs, swap and open files, which a container has of its machine: each fault is found by its check, and gone when
    healed."""
    there = HARDWARE.parse(Output(machine.run(first, HARDWARE.script)))
    asked = Health(sockets=there.sockets, cores=there.cores, swap="none")
    planted = {"cpu-offline": HARDWARE, "swap-on": HARDWARE, "open-files-low": FILES}

    def status(fault: str) -> str:
        probe = planted[fault]
        return ask(faults.find(fault).caught_by, asked, **{probe.name: machine.run(first, probe.script)}).status

    for fault in planted:
        assert status(fault) == "pass", fault
        faults.plant(first, fault, machine.run)
        assert status(fault) == "fail", fault
        faults.heal(first, fault, machine.run)
        assert status(fault) == "pass", fault


def test_a_copy_is_another_host_on_the_same_network(first: str) -> None:
    machine.freeze(first, TAG)
    machine.up(SECOND, DESCRIPTION, tag=TAG)
    assert machine.run(SECOND, "hostname; ls /etc/default/grub.d/99-test.cfg").split()[0] == SECOND
    assert " 0% packet loss" in machine.run(SECOND, f"ping -c 3 -W 5 {machine.fabric_address(first)}")
    with pytest.raises(GpuprovError, match="failed"):
        machine.run(SECOND, f"grep {disk_files.DONE!r} /etc/hostname")


def test_a_machine_whose_process_ended_is_dead_and_its_console_is_kept(first: str) -> None:
    process = machine._process(first)
    assert process is not None
    os.kill(process, signal.SIGKILL)
    while machine._process(first):
        pass
    assert [row.state for row in machine.listing() if row.name == first] == ["dead"]
    assert "Linux version" in machine.logs(first)
    assert machine.down(first)
    assert first not in {row.name for row in machine.listing()}
