"""Simulated hosts as QEMU machines with their own kernel: up, down, reboot, list. Touches only machines that it
made."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from pathlib import Path

import msgspec

from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import disk, disk_files, image, local_disks, qemu, tools
from gpuprov.simulate import machine_records as records
from gpuprov.simulate.description import Description
from gpuprov.simulate.devices import devices, table
from gpuprov.simulate.host import Listed, SimulatedHost, check_name, greets, key_pair, public_key
from gpuprov.simulate.parts import silicon

PATIENCE = 600.0  # seconds for a boot; 15 to 40 are usual under emulation, many times that on a machine that is busy
MOST = 250
VARIABLES = "variables.fd"
BOOT = "cat /proc/sys/kernel/random/boot_id"


def up(
    name: str, description: Description, *, tag: str | None = None, volumes: tuple[tuple[Path, str], ...] = ()
) -> SimulatedHost:
    """Start a host and wait until it answers ssh. Returns a running host unchanged and restarts a dead one.

    `tag`: a disk kept by `freeze`. `volumes`: folders of this machine to mount read-only, with their path inside.
    """
    check_name(name)
    tools.require("machine")
    known = describe(name)
    if known not in (None, description):
        raise GpuprovError(f"{name} is up with another description", fix=f"gpuprov simulate down {name}")
    made = False
    try:
        if known is None:
            _create(name, description, tag, volumes)
        if _process(name) is None:
            _start(name)
        made = True
        return _ready(name)
    except BaseException as error:
        # Leave nothing half-made behind; but of a boot that failed the console log stays to be read.
        if known is None and not (made and isinstance(error, GpuprovError)):
            down(name)
        raise


def down(name: str) -> bool:
    """Remove a host; return False if no host has this name."""
    if not records.is_kept(name):
        return False
    qemu.end(records.find_folder(name) / "pid")
    shutil.rmtree(records.find_folder(name))
    return True


def reboot(name: str) -> None:
    """Reboot from inside, and wait until the next boot's userland is up."""
    before = run(name, BOOT)
    run(name, "systemctl --no-block reboot")
    _comes_up(name, before)


def reset(name: str) -> None:
    """Press the reset button of a machine that nobody can log in to, and wait until its userland is up."""
    qemu.ask(control(name), "system_reset")
    _comes_up(name, "")


def _comes_up(name: str, before: str) -> None:
    """Wait for a boot other than this one."""
    port = qemu.ssh_port(control(name))
    deadline = time.monotonic() + PATIENCE
    while _process(name) and time.monotonic() < deadline:
        try:
            if greets("127.0.0.1", port) and run(name, BOOT) != before:
                break
        except GpuprovError:
            pass  # between the two boots there is nobody to ask
        time.sleep(0.5)
    _ready(name)


def control(name: str) -> Path:
    """Return QEMU's control socket, for `qemu.ask`."""
    return records.find_folder(name) / "control"


def refit(name: str, firmware: qemu.Firmware, variables: Path | None = None) -> SimulatedHost:
    """Power-cycle the machine with another firmware, with these variables or new ones. Its disk must have what that
    firmware boots."""
    folder, kept = records.find_folder(name), records.read(name)
    assert kept is not None
    run(name, "sync")
    qemu.end(folder / "pid")
    qemu.remember(firmware, folder / VARIABLES, variables)
    records.write(name, msgspec.structs.replace(kept, firmware=firmware))
    _start(name)
    return _ready(name)


def freeze(name: str, tag: str) -> None:
    """Save the current disk under a name, from which `up` starts copies. The machine keeps running."""
    run(name, "sync")
    folder, kept = records.find_folder(name), _frozen(tag)
    layers = sorted(folder.glob("layer-*.qcow2"))
    copy = folder / f"layer-{len(layers)}.qcow2"
    tools.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", layers[-1].name, "-F", "qcow2", str(copy)])
    try:
        qemu.copy_disk(control(name), copy)
        partial = kept.with_name(f".{kept.name}.{os.getpid()}")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for file in (*layers, copy, folder / "vmlinuz"):
            os.link(file, partial / file.name)
        shutil.rmtree(kept, ignore_errors=True)
        partial.rename(kept)
    finally:
        copy.unlink()


def discard(tag: str) -> None:
    """Delete a disk saved by `freeze`; machines started from it keep running."""
    shutil.rmtree(_frozen(tag), ignore_errors=True)


def describe(name: str) -> Description | None:
    """Return the description that the host was made from; None if there is no such host. Raises GpuprovError if
    another version of gpuprov made it."""
    kept = records.read(name)
    return kept.description if kept else None


def listing() -> list[Listed]:
    """List our hosts. `dead`: its process ended by itself; the console log is still there."""
    return [
        Listed(name, "machine", outline.distribution, "running" if _process(name) else "dead")
        for name, outline in records.list_outlines().items()
    ]


def fabric_address(name: str) -> str:
    """Return the machine's address in the network that all machines share."""
    kept = records.read(name)
    if kept is None:
        raise GpuprovError(f'no simulated machine is named "{name}"', fix="gpuprov simulate list")
    return f"{disk_files.FABRIC_PREFIX}{kept.number}"


def run(name: str, script: str) -> str:
    """Run a shell script as root inside and return its standard output."""
    try:
        return tools.run([*_ssh(name), "bash -e"], stdin=script)
    except GpuprovError as error:
        reason = str(error).partition(" failed ")[2]
        raise GpuprovError(f"{name}: {'a script failed ' * bool(reason)}{reason or error}", fix=error.fix) from None


def write(name: str, archive: bytes) -> None:
    """Unpack a tar archive over the host's root."""
    tools.feed([*_ssh(name), "tar -C / -xpf -"], archive, f"{name}: writing files")


def logs(name: str) -> str:
    """Return its console output since it was created, and the end of its journal if it answers."""
    console = qemu.plain(_console(name))
    try:
        return f"{console}\n{run(name, 'journalctl --no-pager --lines 80 2>&1 || true')}"
    except GpuprovError:
        return console


def _create(name: str, description: Description, tag: str | None, volumes: tuple[tuple[Path, str], ...]) -> None:
    if tag is None:
        built = disk.build(description.distribution, description.kernel)
        layers, kernel = [built.file], built.kernel
    else:
        layers, kernel = sorted(_frozen(tag).glob("layer-*.qcow2")), _frozen(tag) / "vmlinuz"
        if not layers:
            raise GpuprovError(f'no disk was kept under the name "{tag}"')
    with image.alone(records.find_base() / ".lock"):
        used = {outline.number for outline in records.list_outlines().values()}
        number = next((n for n in range(1, MOST + 1) if n not in used), 0)
        if not number:
            raise GpuprovError(f"{MOST} simulated machines are there already; no more fit in their network")
        folder = records.find_folder(name)
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier run that was killed half-way
        folder.mkdir()
        # Links and not copies: a layer lives as long as somebody stands on it, whatever becomes of the cache.
        for index, layer in enumerate(layers):
            os.link(layer, folder / f"layer-{index}.qcow2")
        os.link(kernel, folder / "vmlinuz")
        shown = tuple((str(here), inside) for here, inside in volumes)
        records.write(name, records.Kept(description=description, number=number, volumes=shown))
    top = f"layer-{len(layers) - 1}.qcow2"
    tools.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", top, "-F", "qcow2", str(folder / "overlay.qcow2")])
    (folder / "devices").write_text(table(devices(name, description)), encoding="utf-8")
    identity = [f"name {name}", f"fabric {disk_files.FABRIC_PREFIX}{number}", f"key {public_key(key_pair())}"]
    identity += [f"volume share{index} {inside}" for index, (_, inside) in enumerate(volumes)]
    (folder / "identity").write_text("\n".join(identity) + "\n", encoding="utf-8")


def _start(name: str) -> None:
    folder, kept = records.find_folder(name), records.read(name)
    assert kept is not None
    accel = qemu.accelerator(folder / "vmlinuz")
    size = {"cpus": kept.description.cpus, "memory": kept.description.memory}
    shares = [word for index, (here, _) in enumerate(kept.volumes) for word in qemu.share(index, Path(here))]
    tools.run(
        [
            *qemu.program(accel, **size, console=folder / "console.log"),
            *qemu.board(kept.firmware, folder / VARIABLES),
            *qemu.drive(folder / "overlay.qcow2", "qcow2"),
            *qemu.network(_group(), kept.number),
            *qemu.firmware(disk_files.IDENTITY, folder / "identity"),
            *(qemu.firmware(silicon.FW_CFG, folder / "devices") if kept.description.gpu else ()),
            *(*shares, *local_disks.build_arguments(folder, kept.description.nvme)),
            *("-name", name, "-qmp", f"unix:{folder / 'control'},server=on,wait=off"),
            *("-daemonize", "-pidfile", str(folder / "pid")),
        ]
    )


def _ready(name: str) -> SimulatedHost:
    kept = records.read(name)
    assert kept is not None
    deadline = time.monotonic() + PATIENCE
    port, state = qemu.ssh_port(control(name)), "no sshd"
    while state not in {"running", "degraded"}:
        if _process(name) is None or time.monotonic() > deadline:
            what = "its QEMU ended" if _process(name) is None else f"{state} after {PATIENCE:g} s"
            raise GpuprovError(
                f"{name}: {what}; the end of its console:\n{qemu.tail(_console(name))}",
                fix=f"gpuprov simulate logs {name}; then down {name}",
            )
        if greets("127.0.0.1", port):
            try:
                state = run(name, "systemctl is-system-running --wait 2>/dev/null || true").strip() or "no systemd"
            except GpuprovError:
                state = "no login"
        time.sleep(0.3)
    return SimulatedHost(name, "127.0.0.1", port, kept.description.user, str(key_pair()))


def _ssh(name: str) -> list[str]:
    port = qemu.ssh_port(control(name))
    quiet = ("-q", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null")
    alive = ("-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=8")
    return ["ssh", *quiet, *alive, "-i", str(key_pair()), "-p", str(port), "root@127.0.0.1"]


def _process(name: str) -> int | None:
    return qemu.process(records.find_folder(name) / "pid")


def _group() -> str:
    """Return the fabric's multicast group: one for each cache folder, so that two users' machines do not meet."""
    digest = hashlib.sha256(str(image.cache_dir()).encode()).digest()
    return f"239.{digest[0]}.{digest[1]}.{digest[2]}:{20000 + digest[3]}"


def _frozen(tag: str) -> Path:
    return image.cache_dir() / "frozen" / re.sub(r"[^A-Za-z0-9.-]", "_", tag)


def _console(name: str) -> str:
    try:
        return (records.find_folder(name) / "console.log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
