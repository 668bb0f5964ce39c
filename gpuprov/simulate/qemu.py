"""QEMU: command line, choice of accelerator, and control socket."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

from gpuprov.core.errors import GpuprovError
from gpuprov.host_code.json_members import Json
from gpuprov.simulate import image, tools

PROGRAM = "qemu-system-x86_64"
VARIABLE = "GPUPROV_SIM_ACCEL"
ACCELERATORS: dict[str, tuple[str, ...]] = {
    "kvm": ("-accel", "kvm", "-cpu", "host"),
    # A CPU without AVX: emulated, its string functions are the quicker ones; boot took two thirds of the time of "max".
    "tcg": ("-accel", "tcg,thread=multi,tb-size=512", "-cpu", "Nehalem"),
}
TRIAL = 12.0  # seconds; with a KVM that works the kernel speaks within one
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|c)|\r")


def accelerator(kernel: Path) -> str:
    """Return kvm if a Debian kernel really starts under it, else tcg. The result is cached; the environment overrides
    it."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen and chosen not in ACCELERATORS:
        raise GpuprovError(f'{VARIABLE} is "{chosen}"; allowed: {", ".join(ACCELERATORS)}')
    if chosen:
        return chosen
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    here = "\0".join([os.uname().release, os.uname().version, tools.run([PROGRAM, "--version"])])
    verdict = image.cache_dir() / f"accelerator-{hashlib.sha256(here.encode()).hexdigest()[:16]}"
    with image.alone(verdict.with_suffix(".lock")):
        if not verdict.exists():
            # Some machines have /dev/kvm and yet an ordinary kernel hangs under it: only trying tells.
            verdict.write_text("kvm" if _speaks(kernel) else "tcg", encoding="utf-8")
        return verdict.read_text(encoding="utf-8")


def _speaks(kernel: Path) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        console = Path(folder) / "console"
        command = [*program("kvm", cpus=1, memory=512, console=console), "-kernel", str(kernel), "-no-reboot"]
        with subprocess.Popen(
            [*command, "-append", "console=ttyS0"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as trial:
            try:
                deadline = time.monotonic() + TRIAL
                while time.monotonic() < deadline and trial.poll() is None:
                    if console.exists() and b"Linux version" in console.read_bytes():
                        return True
                    time.sleep(0.1)
            finally:
                trial.kill()
    return False


Firmware = Literal["bios", "uefi", "secure-boot"]
# Debian's package ovmf: https://github.com/tianocore/edk2/tree/master/OvmfPkg
OVMF = Path("/usr/share/OVMF")
CODE: dict[Firmware, str] = {"uefi": "OVMF_CODE_4M.fd", "secure-boot": "OVMF_CODE_4M.secboot.fd"}
# Initial firmware variables of a machine; with Secure Boot, Microsoft's keys are enrolled, as on most machines.
VARIABLES: dict[Firmware, str] = {"uefi": "OVMF_VARS_4M.fd", "secure-boot": "OVMF_VARS_4M.ms.fd"}


def board(firmware: Firmware, variables: Path) -> list[str]:
    """Return arguments for UEFI with a machine's own variables; nothing for BIOS."""
    # Secure Boot needs SMM to protect the variables from the kernel.
    if firmware == "bios":
        return []
    smm = [*("-machine", "q35,smm=on"), *("-global", "driver=cfi.pflash01,property=secure,value=on")]
    return [
        *(smm if firmware == "secure-boot" else []),
        *("-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={_escape(OVMF / CODE[firmware])}"),
        *("-drive", f"if=pflash,unit=1,format=raw,file={_escape(variables)}"),
    ]


def remember(firmware: Firmware, variables: Path, given: Path | None) -> None:
    """Store the machine's firmware variables: the given ones, or initial ones."""
    if firmware == "bios":
        return
    new = given or OVMF / VARIABLES[firmware]
    if not new.is_file():
        raise GpuprovError(f"{new} is not there", fix="apt-get install ovmf")
    shutil.copyfile(new, variables)


def program(accel: str, *, cpus: int, memory: int, console: Path) -> list[str]:
    """Return the start of the command line: a machine without disk and network, its first serial line written to a
    file."""
    return [
        *(PROGRAM, *ACCELERATORS[accel], "-smp", str(cpus), "-m", str(memory), "-nodefaults", "-display", "none"),
        *("-vga", "none", "-device", "virtio-rng-pci,addr=8"),
        *("-chardev", f"file,id=console,path={_escape(console)},append=on", "-serial", "chardev:console"),
    ]


def drive(file: Path, form: str) -> list[str]:
    """Return arguments for /dev/vda. Data may be lost if this machine crashes, in exchange for speed."""
    return [
        *("-drive", f"file={_escape(file)},format={form},if=none,id=disk,cache=unsafe,discard=unmap"),
        *("-device", "virtio-blk-pci,drive=disk,addr=5,bootindex=1"),
    ]


def network(group: str, number: int) -> list[str]:
    """Return arguments for two networks: external with an ssh port forward (the kernel picks the port), and the group's
    shared fabric."""
    return [
        *("-netdev", "user,id=outside,hostfwd=tcp:127.0.0.1:0-:22"),
        *("-device", "virtio-net-pci,netdev=outside,addr=3,romfile="),
        *("-netdev", f"socket,id=fabric,mcast={group},localaddr=127.0.0.1"),
        *("-device", f"virtio-net-pci,netdev=fabric,addr=4,romfile=,mac=52:54:00:4d:00:{number:02x}"),
    ]


def firmware(name: str, file: Path) -> list[str]:
    """Expose a file to the machine under /sys/firmware/qemu_fw_cfg."""
    return ["-fw_cfg", f"name={name},file={_escape(file)}"]


def share(number: int, folder: Path) -> list[str]:
    """Share a folder of this machine, read-only, with the mount tag `shareN`."""
    return [
        *("-fsdev", f"local,id=share{number},path={_escape(folder)},security_model=none,readonly=on"),
        *("-device", f"virtio-9p-pci,fsdev=share{number},mount_tag=share{number}"),
    ]


def ask(control: Path, command: str, **arguments: object) -> Any:
    """Send QEMU a command on its control socket and return the answer."""
    # https://www.qemu.org/docs/master/interop/qemu-qmp-ref.html
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        try:
            connection.connect(str(control))
            with connection.makefile("rw", encoding="utf-8") as stream:
                answer: Any = None
                for execute, values in (("qmp_capabilities", {}), (command, arguments)):
                    stream.write(json.dumps({"execute": execute, "arguments": values}) + "\n")
                    stream.flush()
                    answer = _answer(stream.readline, control)
        except (OSError, ValueError) as error:
            raise GpuprovError(f"{control}: QEMU does not answer: {error}") from None
    if "error" in answer:
        raise GpuprovError(f"QEMU refuses {command}: {answer['error']['desc']}")
    return answer["return"]


def _answer(readline: Any, control: Path) -> Any:
    while line := readline():
        reply = json.loads(line)
        if "return" in reply or "error" in reply:  # the greeting and events are neither
            return reply
    raise GpuprovError(f"{control}: QEMU hung up")


def ssh_port(control: Path) -> int:
    """Return the port of this machine that leads to the simulated one's sshd."""
    table = str(ask(control, "human-monitor-command", **{"command-line": "info usernet"}))
    match = re.search(r"TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)\s", table)
    if match is None:
        raise GpuprovError(f"{control}: QEMU forwards no port")
    return int(match[1])


def copy_disk(control: Path, target: Path) -> None:
    """Write the current top layer of the disk into an existing file; the machine keeps running."""
    job: dict[str, Json] = {"device": "disk", "target": str(target), "format": "qcow2", "sync": "top"}
    ask(control, "drive-backup", **job, **{"mode": "existing", "job-id": "copy", "auto-dismiss": False})
    while True:
        jobs = [job for job in ask(control, "query-jobs") if job["id"] == "copy"]
        if jobs and jobs[0]["status"] == "concluded":
            ask(control, "job-dismiss", id="copy")
            if "error" in jobs[0]:
                raise GpuprovError(f"QEMU could not copy the disk: {jobs[0]['error']}")
            return
        time.sleep(0.1)


def process(file: Path) -> int | None:
    """Return the pid in this file if that process is still the QEMU that wrote it: its command line names the file."""
    try:
        number = int(file.read_text(encoding="utf-8"))
        words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return number if str(file).encode() in words and words[0].endswith(PROGRAM.encode()) else None


def end(file: Path) -> None:
    """End the QEMU of this pid file, if it is running."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + 10
        if number := process(file):
            os.kill(number, kind)
        while process(file) and time.monotonic() < deadline:
            time.sleep(0.05)


def plain(console: str) -> str:
    """Strip colours from a console log."""
    return _ESCAPES.sub("", console)


def tail(console: str, lines: int = 12) -> str:
    """Return the end of a console log."""
    return "\n".join(plain(console).splitlines()[-lines:])


def _escape(path: Path) -> str:
    # QEMU's option parser reads a doubled comma as one.
    return str(path).replace(",", ",,")
