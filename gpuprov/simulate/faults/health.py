"""Faults of a host in use: GPU counters and kernel messages. Only for simulated containers, whose kernel log is a
file."""

from __future__ import annotations

from gpuprov.simulate.faults.base import Fault
from gpuprov.simulate.parts.kernel_log import LOG

GPUS = """bus() { awk -F '\\t' -v n="$1" '$1 == "gpu" && $2 == n { print substr($3, 1, 10) }' /etc/gpuprov-sim/devices; }"""


def _gpu(name: str, what: str, caught_by: str) -> Fault:
    return Fault(name, f"{what} (parameter: the GPU's index)", caught_by, parameter="0")


def _line(name: str, what: str, caught_by: str, *lines: str, gpu: bool = False) -> Fault:
    """Return a fault that logs kernel lines as real hosts do, at the time of planting. $b in them is the GPU's
    address."""
    commands = "\n".join(f'say "{line}"' for line in lines)
    plant = (
        f"{GPUS}\n"
        + ('b=$(bus "$1")\n' if gpu else "")
        + f'say() {{ printf \'%s.000001 %s kernel: %s\\n\' "$(date +%s)" "$(hostname)" "$1" >> {LOG}; }}\n{commands}'
    )
    summary = f"{what} (parameter: the GPU's index)" if gpu else what
    return Fault(
        name,
        summary,
        caught_by,
        plant=plant,
        heal=f"sed -i 1q {LOG}",
        parameter="0" if gpu else "",
        kinds=("container",),
    )


FLAPS = f"""for i in /sys/class/infiniband/*/device/net/*; do break; done
[ -e "$i" ] || {{ echo 'no RDMA device here has a network interface' >&2; exit 1; }}
d=$(readlink -f "${{i%/net/*}}"); n=$(date +%s)
for w in up down up down up down up; do
  printf '%s.000001 %s kernel: mlx5_core %s %s: Link %s\\n' "$n" "$(hostname)" "${{d##*/}}" "${{i##*/}}" "$w" >> {LOG}
done"""
SWAP, DOWN = "/gpuprov-sim-swap", "/run/gpuprov-sim/interface-down"
TABLE: tuple[Fault, ...] = (
    _gpu("gpu-ecc-errors", "ECC counts uncorrectable errors of a GPU's memory", "health.ecc_errors"),
    _gpu("gpu-row-pending", "a row of a GPU's memory waits for its remapping, which a reset brings",
         "health.remapped_rows"),
    _gpu("gpu-row-failed", "the remapping of a row of a GPU's memory failed", "health.remapped_rows"),
    _gpu("gpu-hot", "a GPU is hotter than where its hardware slows it down", "health.temperature"),
    _gpu("gpu-power-brake", "a GPU is slowed down by the power brake of the chassis", "health.slowdown"),
    _gpu("gpu-ecc-off", "ECC is off in a GPU, as a colleague or its vendor left it", "health.ecc_mode"),
    _gpu("gpu-reset-required", "the driver says that a GPU is to be reset, which ends it", "health.recovery"),
    _gpu("gpu-reset-fails", "a GPU is to be reset, and its reset fails: only a restart of the host ends it",
         "health.recovery"),
    _gpu("gpu-power-held", "a GPU is held at half of the power limit that is set, as by the BMC", "health.power"),
    _gpu("gpu-pcie-replays", "a GPU has had 67 PCIe replays since its reset", "health.pcie_replays"),
    _gpu("gpu-slow-clock", "a GPU computes at the clock of an idle one, and nothing is said to lower it",
         "health.clocks"),
    Fault("gpus-prohibited", "the GPUs are in compute mode Prohibited: no program may compute on them",
          "health.compute_mode",
          plant="nvidia-smi -c 2 >/dev/null", heal="nvidia-smi -c 0 >/dev/null"),
    Fault("gpu-files-closed", "root alone may open the GPUs' device files", "health.device_files",
          plant="chmod 600 /dev/nvidia[0-9]*", heal="chmod 666 /dev/nvidia[0-9]*"),
    Fault("gpus-hidden", "CUDA_VISIBLE_DEVICES is set to nothing for everybody", "health.environment",
          plant="echo 'CUDA_VISIBLE_DEVICES=' >> /etc/environment",
          heal="sed -i '/^CUDA_VISIBLE_DEVICES=$/d' /etc/environment"),
    Fault("gpu-memory-held", "half of a GPU's memory is in use, and no process is on it (parameter: the GPU's index)",
          "health.processes", parameter="0", kinds=("machine",)),
    _gpu("nvlink-errors", "the first NVLink of a GPU counts replays and recoveries", "health.nvlink_errors"),
    _gpu("vbios-differs", "a GPU has another VBIOS than its like", "health.firmware"),
    _line("pcie-uncorrected", "the root port of a GPU has uncorrected errors", "health.pcie_errors",
          "pcieport 0000:15:01.0: AER: Uncorrected (Fatal) error received: $b.0",
          "pcieport 0000:15:01.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)",
          gpu=True),
    _line("hca-hot", "an HCA is too hot", "health.rdma_log",
          "mlx5_core 0000:5c:00.0: temp_warn:194:(pid 0): High temperature on sensors with bit set 0x0 0x1."),
    _line("hca-dead", "the firmware of an HCA does not run any more", "health.rdma_log",
          "mlx5_core 0000:5c:00.0: poll_health:792:(pid 0): device's health compromised - reached miss count"),
    _line("nccl-crash", "a program crashed in NCCL", "health.programs",
          "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in "
          "libnccl.so.2"),
    _line("filesystem-read-only", "the kernel made a file system read-only", "health.kernel",
          "EXT4-fs (nvme0n1p2): Remounting filesystem read-only"),
    Fault("mount-full", "the file system that is mounted at /srv is full", "health.file_systems",
          plant="mountpoint -q /srv || { echo '/srv is no mount point' >&2; exit 1; }; "
          "dd if=/dev/zero of=/srv/.gpuprov-sim-fill bs=64k 2>/dev/null || true",
          heal="rm -f /srv/.gpuprov-sim-fill"),
    Fault("rdma-link-flaps", "the link of an RDMA device's interface went down and came back three times",
          "health.link_flaps",
          plant=FLAPS, heal=f"sed -i 1q {LOG}", kinds=("container",)),
    Fault("interface-down", "an interface is down, as without a cable (parameter: its name)", "health.devices",
          parameter="eth1",
          plant=f'ip link set dev "$1" down && echo "$1" > {DOWN}',
          heal=f'if read -r i < {DOWN}; then ip link set dev "$i" up; rm {DOWN}; fi'),
    Fault("cpu-offline", "the last CPU is off", "health.cpus", kinds=("machine",),
          plant='c=$(ls -d /sys/devices/system/cpu/cpu[1-9]*/online | sort -V | tail -n 1); echo 0 > "$c"',
          heal='for c in /sys/devices/system/cpu/cpu[1-9]*/online; do echo 1 > "$c"; done'),
    Fault("swap-on", "somebody has given the host swap", "health.memory", kinds=("machine",),
          plant=f"fallocate -l 16M {SWAP} && chmod 600 {SWAP} && mkswap {SWAP} >/dev/null && swapon {SWAP}",
          heal=f"swapoff {SWAP} 2>/dev/null || true; rm -f {SWAP}"),
    Fault("open-files-low", "nine of ten files that the kernel opens are open", "health.open_files", kinds=("machine",),
          plant="set -- $(cat /proc/sys/fs/file-nr); echo $(($1 + $1 / 9)) > /proc/sys/fs/file-max",
          heal="echo 9223372036854775807 > /proc/sys/fs/file-max"),
    _line("xid-program", "a program of a user made a GPU memory page fault: Xid 31", "health.programs",
          "NVRM: Xid (PCI:$b): 31, pid=4711, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS",
          gpu=True),
    _line("xid-reset", "the GSP of a GPU does not answer: Xid 119, then 154", "health.xid",
          "NVRM: Xid (PCI:$b): 119, pid=4711, name=nvidia-smi, Timeout after 6s of waiting for RPC response from "
          "GPU0 GSP!",
          "NVRM: Xid (PCI:$b): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", gpu=True),
    _line("xid-off-the-bus", "a GPU has fallen off the bus: Xid 79", "health.xid",
          "NVRM: Xid (PCI:$b): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", gpu=True),
    _line("reset-required", "the driver refuses a GPU until it is reset", "health.driver_log",
          "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) "
          "returned from status"),
    _line("sxid-fatal", "a link of an NVSwitch has a fatal error: SXid 20034", "health.sxid",
          "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
          "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Severity 1 Engine instance 48 Sub-engine instance 00"),
)  # fmt: skip
