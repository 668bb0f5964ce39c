"""Checks of the rest of the host: CPUs, memory, swap, drives and interfaces against the spec, and errors of the kernel
itself."""

from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.health.fragment import Ctx
from gpuprov.capabilities.health.log import failed, findings, readable, reported, span, unfit
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.facts.probes.host.hardware import FILES, HARDWARE, FileSystem
from gpuprov.facts.probes.kernel.kernel_log import KERNEL_LOG


@check("health.cpus", HARDWARE, fields=("sockets", "cores"), evidence="lscpu")
def cpus(ctx: Ctx) -> Outcome:
    """The host has as many CPU sockets and cores as the spec says."""
    options = {"sockets": ctx.fragment.sockets, "cores": ctx.fragment.cores}
    required = {name: count for name, count in options.items() if count is not None}
    if not required:
        return not_asked("neither sockets nor cores is in the spec")
    hardware = ctx.facts.get(HARDWARE)
    if not hardware.cores:
        raise ProbeFailed("the kernel does not tell its CPUs' sockets and cores")
    has = {"sockets": hardware.sockets, "cores": hardware.cores}
    expected = ", ".join(f"{count} {name}" for name, count in required.items())
    listed = ", ".join(f"{has[name]} {name}" for name in required)
    if any(has[name] != count for name, count in required.items()):
        return fail(
            expected, listed, "drain the host; look at its firmware's settings and event log: a CPU, or cores, are off"
        )
    return ok(listed, expected)


@check("health.memory", HARDWARE, fields=("memory", "swap"), evidence="free -m; dmidecode -t memory")
def memory(ctx: Ctx) -> Outcome:
    """The host has at least as much memory as the spec says, and swap present or absent as it asks."""
    least, swap = ctx.fragment.memory, ctx.fragment.swap
    if least is None and swap == "any":
        return not_asked("neither memory nor swap is in the spec")
    hardware = ctx.facts.get(HARDWARE)
    if not hardware.memory:
        raise ProbeFailed("/proc/meminfo does not tell the memory")
    has = f"{hardware.memory / 1024:.1f} GiB" + ("" if swap == "any" else f", {hardware.swap} MiB swap")
    required = [f"at least {least} GiB"] * (least is not None) + [f"swap {swap}"] * (swap != "any")
    short = least is not None and hardware.memory < least * 1024
    if short or (swap == "none" and hardware.swap) or (swap == "present" and not hardware.swap):
        way = (
            "drain the host; look at its event log: a memory module is off"
            if short
            else "swapoff -a, or swapon -a; /etc/fstab"
        )
        return fail(", ".join(required), has, way)
    return ok(has, ", ".join(required))


@check("health.devices", HARDWARE, fields=("nvme", "interfaces"), evidence="ls /sys/class/nvme; ip -br link")
def devices(ctx: Ctx) -> Outcome:
    """The host has as many NVMe drives as the spec says, and the Ethernet interfaces that it names are present and
    up."""
    drives, names = ctx.fragment.nvme, ctx.fragment.interfaces
    if drives is None and not names:
        return not_asked("neither nvme nor interfaces is in the spec")
    hardware = ctx.facts.get(HARDWARE)
    bad = [f"{hardware.nvme} NVMe drives"] * (drives is not None and hardware.nvme != drives)
    bad += [
        f"{name} is {hardware.interfaces.get(name, 'not there')}"
        for name in names
        if hardware.interfaces.get(name) != "up"
    ]
    required = [f"{drives} NVMe drives"] * (drives is not None) + [f"{name} up" for name in names]
    if bad:
        return fail(
            ", ".join(required),
            ", ".join(bad),
            "lspci; dmesg | grep -E 'nvme|Link is Down'; the drive's or cable's seat",
        )
    return ok(", ".join(required))


@check("health.file_systems", FILES, fields=("mounts", "free_space", "free_inodes"), evidence="findmnt; df -h; df -i")
def file_systems(ctx: Ctx) -> Outcome:
    """Required mounts are present, responsive, and have enough free space and inodes."""
    if not ctx.fragment.mounts:
        return not_asked("mounts is not in the spec")
    files = ctx.facts.get(FILES)
    if not files.specified:
        return skip("a capture holds no file systems, as no spec names them to it")
    block, by_path = ctx.fragment, {system.path: system for system in files.systems}
    least = {"space": block.free_space, "inodes": block.free_inodes}
    bad, away = [], False
    for path in block.mounts:
        volume = by_path.get(path)
        if volume is None:
            raise ProbeFailed(f"the host told nothing of {path}")
        if not volume.mounted:
            bad.append(f"nothing is mounted at {path}")
        elif not volume.answers:
            bad.append(f"{path} ({volume.mounted}) does not answer within 5 s")
        for what, percent in least.items():
            free = getattr(volume, what)
            if free is not None and free < percent:
                bad.append(f"{path} has {free:.0f} % of its {what} free")
        away = away or not (volume.mounted and volume.answers)
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
    return ok("; ".join(map(_free, by_path.values())), expected)


def _free(file_system: FileSystem) -> str:
    return f"{file_system.path}: {'there' if file_system.space is None else f'{file_system.space:.0f} % free'}"


@check("health.open_files", FILES, fields=("open_files",), evidence="cat /proc/sys/fs/file-nr")
def open_files(ctx: Ctx) -> Outcome:
    """The kernel is not near its limit of open files, at which no program can open another."""
    handles = ctx.facts.get(FILES).handles
    if handles is None:
        raise ProbeFailed("/proc/sys/fs/file-nr does not tell the open files")
    opened, most = handles
    usage, expected = f"{opened} of {most} open files", f"less than {ctx.fragment.open_files} % of {most} open files"
    if 100 * opened >= ctx.fragment.open_files * most:
        return fail(
            expected, usage, "lsof | awk '{print $1, $2}' | sort | uniq -c | sort -n names who has them; fs.file-max"
        )
    return ok(usage, expected)


@check("health.kernel", KERNEL_LOG, fields=("since",), evidence="journalctl -k -b -p err")
def kernel(ctx: Ctx) -> Outcome:
    """The kernel reports no crash or lock-up of its own, no file system that it made read-only, no drive that it gave
    up, and no memory error that ECC could not correct. Tasks that hang, stalls, timeouts of drives and file servers,
    and corrected errors are only reported."""
    log = readable(ctx)
    expected = "no trouble of the kernel's own"
    matched = findings(log, "kernel")
    if bad := unfit(matched):
        return failed(expected, bad, reported(matched))
    return ok(f"none {span(log)}{reported(matched)}", expected)


CHECKS = (cpus, memory, devices, file_systems, open_files, kernel)


# The start of nvidia-smi's complaint about a GPU that it cannot reach. The address follows, then the reason: the GPU
# is lost (`Unknown Error`, `GPU is lost`), the driver did not start it (`Not Found`), or the device file may not be
# opened.
NO_HANDLE = "the device handle for"


def not_answering(expected: str, words: str, *, complaint: bool) -> Outcome:
    """Judge a complaint of nvidia-smi, or GPUs that are on the bus but not in its list."""
    lowered = words.casefold()
    if NO_HANDLE in lowered and "not found" in lowered:
        return fail(expected, words, "the driver did not start it: journalctl -k -b | gpuprov explain - says why")
    if NO_HANDLE in lowered and "permission" in lowered:
        return fail(expected, words, "run as root; ls -l /dev/nvidia*")
    if not complaint or "lost" in lowered or NO_HANDLE in lowered:
        return fail(expected, words, "restart the host; gpuprov explain 79", action="reboot")
    return fail(expected, words, "gpuprov explain nvidia_driver.user_space", action="none")
