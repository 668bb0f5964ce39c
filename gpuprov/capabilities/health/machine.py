"""Checks of the rest of the host: CPUs, memory, swap, drives and interfaces against the spec, and errors of the kernel itself."""

from __future__ import annotations

from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.health.fragment import Ctx
from gpuprov.capabilities.health.log import failed, findings, readable, reported, span, unfit
from gpuprov.probe.base import ProbeFailed
from gpuprov.probe.host.hardware import FILES, HARDWARE, FileSystem
from gpuprov.probe.kernel.kernel_log import KERNEL_LOG


@check("health.cpus", HARDWARE, fields=("sockets", "cores"), evidence="lscpu")
def cpus(ctx: Ctx) -> Outcome:
    """The host has as many CPU sockets and cores as the spec says."""
    asked = {"sockets": ctx.fragment.sockets, "cores": ctx.fragment.cores}
    wanted = {name: count for name, count in asked.items() if count is not None}
    if not wanted:
        return not_asked("neither sockets nor cores is in the spec")
    found = ctx.facts.get(HARDWARE)
    if not found.cores:
        raise ProbeFailed("the kernel does not tell its CPUs' sockets and cores")
    has = {"sockets": found.sockets, "cores": found.cores}
    expected = ", ".join(f"{count} {name}" for name, count in wanted.items())
    told = ", ".join(f"{has[name]} {name}" for name in wanted)
    if any(has[name] != count for name, count in wanted.items()):
        return fail(
            expected, told, "drain the host; look at its firmware's settings and event log: a CPU, or cores, are off"
        )
    return ok(told, expected)


@check("health.memory", HARDWARE, fields=("memory", "swap"), evidence="free -m; dmidecode -t memory")
def memory(ctx: Ctx) -> Outcome:
    """The host has at least as much memory as the spec says, and swap present or absent as it asks."""
    least, swap = ctx.fragment.memory, ctx.fragment.swap
    if least is None and swap == "any":
        return not_asked("neither memory nor swap is in the spec")
    found = ctx.facts.get(HARDWARE)
    if not found.memory:
        raise ProbeFailed("/proc/meminfo does not tell the memory")
    has = f"{found.memory / 1024:.1f} GiB" + ("" if swap == "any" else f", {found.swap} MiB swap")
    wanted = [f"at least {least} GiB"] * (least is not None) + [f"swap {swap}"] * (swap != "any")
    short = least is not None and found.memory < least * 1024
    if short or (swap == "none" and found.swap) or (swap == "present" and not found.swap):
        way = (
            "drain the host; look at its event log: a memory module is off"
            if short
            else "swapoff -a, or swapon -a; /etc/fstab"
        )
        return fail(", ".join(wanted), has, way)
    return ok(has, ", ".join(wanted))


@check("health.devices", HARDWARE, fields=("nvme", "interfaces"), evidence="ls /sys/class/nvme; ip -br link")
def devices(ctx: Ctx) -> Outcome:
    """The host has as many NVMe drives as the spec says, and the Ethernet interfaces that it names are present and up."""
    drives, names = ctx.fragment.nvme, ctx.fragment.interfaces
    if drives is None and not names:
        return not_asked("neither nvme nor interfaces is in the spec")
    found = ctx.facts.get(HARDWARE)
    bad = [f"{found.nvme} NVMe drives"] * (drives is not None and found.nvme != drives)
    bad += [
        f"{name} is {found.interfaces.get(name, 'not there')}" for name in names if found.interfaces.get(name) != "up"
    ]
    wanted = [f"{drives} NVMe drives"] * (drives is not None) + [f"{name} up" for name in names]
    if bad:
        return fail(
            ", ".join(wanted), ", ".join(bad), "lspci; dmesg | grep -E 'nvme|Link is Down'; the drive's or cable's seat"
        )
    return ok(", ".join(wanted))


@check("health.file_systems", FILES, fields=("mounts", "free_space", "free_inodes"), evidence="findmnt; df -h; df -i")
def file_systems(ctx: Ctx) -> Outcome:
    """Required mounts are present, responsive, and have enough free space and inodes."""
    if not ctx.fragment.mounts:
        return not_asked("mounts is not in the spec")
    files = ctx.facts.get(FILES)
    if not files.asked:
        return skip("a capture does not hold file systems: it knows no spec that names them")
    block, found = ctx.fragment, {one.path: one for one in files.systems}
    least = {"space": block.free_space, "inodes": block.free_inodes}
    bad, away = [], False
    for path in block.mounts:
        one = found.get(path)
        if one is None:
            raise ProbeFailed(f"the host told nothing of {path}")
        if not one.mounted:
            bad.append(f"nothing is mounted at {path}")
        elif not one.answers:
            bad.append(f"{path} ({one.mounted}) does not answer within 5 s")
        for what, percent in least.items():
            free = getattr(one, what)
            if free is not None and free < percent:
                bad.append(f"{path} has {free:.0f} % of its {what} free")
        away = away or not (one.mounted and one.answers)
    expected = (
        f"{', '.join(block.mounts)}: there, {block.free_space} % of space and {block.free_inodes} % of inodes free"
    )
    if bad:
        way = (
            "drain the host; systemctl list-units --failed '*.mount', and the file server"
            if away
            else f"du -xh --max-depth=2 {block.mounts[0]} | sort -h"
        )
        return fail(expected, "; ".join(bad), way, action="drain" if away else "")
    return ok("; ".join(map(_free, found.values())), expected)


def _free(one: FileSystem) -> str:
    return f"{one.path}: {'there' if one.space is None else f'{one.space:.0f} % free'}"


@check("health.open_files", FILES, fields=("open_files",), evidence="cat /proc/sys/fs/file-nr")
def open_files(ctx: Ctx) -> Outcome:
    """The kernel is not near its limit of open files, at which no program can open another."""
    handles = ctx.facts.get(FILES).handles
    if handles is None:
        raise ProbeFailed("/proc/sys/fs/file-nr does not tell the open files")
    opened, most = handles
    told, expected = f"{opened} of {most} open files", f"less than {ctx.fragment.open_files} % of {most} open files"
    if 100 * opened >= ctx.fragment.open_files * most:
        return fail(
            expected, told, "lsof | awk '{print $1, $2}' | sort | uniq -c | sort -n names who has them; fs.file-max"
        )
    return ok(told, expected)


@check("health.kernel", KERNEL_LOG, fields=("since",), evidence="journalctl -k -b -p err")
def kernel(ctx: Ctx) -> Outcome:
    """The kernel reports no crash or lock-up of its own, no file system that it made read-only, no drive that it gave up, and
    no memory error that ECC could not correct. Tasks that hang, stalls, timeouts of drives and file servers, and corrected errors are
    only reported."""
    log = readable(ctx)
    expected = "no trouble of the kernel's own"
    found = findings(log, "kernel")
    if bad := unfit(found):
        return failed(expected, bad, reported(found))
    return ok(f"none {span(log)}{reported(found)}", expected)


CHECKS = (cpus, memory, devices, file_systems, open_files, kernel)
