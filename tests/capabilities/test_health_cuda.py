"""health.cuda: what CUDA on each device comes to."""

from __future__ import annotations

from gpuprov.capabilities.health.fragment import Health
from tests.capabilities.asking import Row, judge
from tests.rows import run_each

CUDA = "health.cuda"
ASKED = Health(cuda_user="nobody")
GPU, MIG = "GPU-1|0000:19:00.0|Default", "MIG-2|0000:3b:00.0|Default"
HELD = "GPU-3|0000:5d:00.0|Exclusive_Process"


def runs(*lines: str) -> dict[str, str]:
    return {"cuda_runs": "".join(f"{line}\n" for line in lines)}


ROWS = [
    Row("device files of everybody's", "health.device_files", None, {}, "pass", "2 files"),
    Row("device files of a group", "health.device_files", None, {"device_files": "file|660|root:video|/dev/nvidia0\n"},
        "pass",
        "of root:video alone"),
    Row("device files of root's", "health.device_files", None, {"device_files": "file|600|root:root|/dev/nvidia0\n"},
        "fail",
        "/dev/nvidia0: mode 0600 (root:root), root's alone", "chmod 0666 /dev/nvidia0"),
    Row("no device files", "health.device_files", None, {"device_files": ""}, "n/a"),
    Row("no variable in the way", "health.environment", None, {}, "pass"),
    Row("GPUs hidden", "health.environment", None, {"environment": "env|/etc/environment|CUDA_VISIBLE_DEVICES=\n"},
        "fail",
        "/etc/environment sets CUDA_VISIBLE_DEVICES=",
        "take CUDA_VISIBLE_DEVICES out of /etc/environment; then log in again"),
    Row("not asked for", CUDA, None, runs("off"), "n/a", "no user is named"),
    Row("a record of a host on which nobody was named", CUDA, ASKED, runs("off"), "skip",
        "was not run when this record"),
    Row("it runs", CUDA, ASKED, runs(f"run|{GPU}||0|", f"run|{MIG}||0|"), "pass", "CUDA runs on 2 devices as nobody"),
    Row("on one", CUDA, ASKED, runs(f"run|{GPU}||0|"), "pass", "CUDA runs on 1 device as nobody"),
    Row("Fabric Manager is dead", CUDA, ASKED, runs(f"run|{GPU}|cuInit|802|", f"run|{MIG}||0|"), "fail",
        "0000:19:00.0: cuInit: 802 CUDA_ERROR_SYSTEM_NOT_READY",
        "Install Fabric Manager of exactly the driver version"),
    Row("user space of another driver", CUDA, ASKED, runs(f"run|{GPU}|cuInit|803|"), "fail",
        "803 CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
    Row("a number that nobody knows", CUDA, ASKED, runs(f"run|{MIG}|cuMemAlloc|950|"), "fail",
        "MIG-2 on 0000:3b:00.0: cuMemAlloc: 950", 'gpuprov explain "CUDA error 950"'),
    Row("a copy that comes back otherwise", CUDA, ASKED, runs(f"run|{GPU}|compare|0|"), "fail", "came back otherwise",
        "out of service"),
    Row("no answer", CUDA, ASKED, runs(f"run|{GPU}|hang|0|30"), "fail", "no answer within 30 s"),
    Row("a crash", CUDA, ASKED, runs(f"run|{GPU}|crash|0|"), "fail", "crashed in libcuda"),
    Row("no library", CUDA, ASKED, runs(f"run|{GPU}|load|0|libcuda.so.1: cannot open shared object file"), "fail",
        "libcuda.so.1: cannot open", "nvidia_driver.user_space"),
    Row("no right to a device file", CUDA, ASKED, runs(f"run|{GPU}|open|0|/dev/nvidiactl"), "fail",
        "0000:19:00.0: may not open /dev/nvidiactl", "ls -l /dev/nvidia*"),
    Row("not root", CUDA, ASKED, runs(f"run|{GPU}|become|0|[Errno 1] Operation not permitted"), "fail",
        "cannot become this user", "ansible_become: true"),
    Row("a job holds it", CUDA, ASKED, runs(f"run|{GPU}||0|", f"run|{HELD}|cuDevicePrimaryCtxRetain|46|"), "skip",
        "0000:5d:00.0: in use by somebody else (compute mode Exclusive_Process)"),
    Row("a job has all its memory", CUDA, ASKED, runs(f"run|{GPU}|cuMemAlloc|2|"), "skip", "in use to the last"),
    Row("unavailable, and nobody may hold it", CUDA, ASKED, runs(f"run|{GPU}|cuDevicePrimaryCtxRetain|46|"), "fail",
        "46 CUDA_ERROR_DEVICE_UNAVAILABLE"),
    Row("one held, one broken", CUDA, ASKED, runs(f"run|{HELD}|cuInit|46|", f"run|{GPU}|cuInit|999|"), "fail",
        "0000:19:00.0: cuInit: 999 CUDA_ERROR_UNKNOWN"),
    Row("no unified memory", CUDA, ASKED, runs("no-uvm|"), "fail", "there is no /dev/nvidia-uvm",
        "modprobe nvidia_uvm"),
    Row("no such user", CUDA, ASKED, runs("no-user|nobody"), "fail", "the host has no user nobody", "health.cuda_user"),
    Row("no device", CUDA, ASKED, runs("no-device|No devices were found"), "fail", "No devices were found",
        "see health.gpus"),
]  # fmt: skip


@run_each("row", ROWS, ids=lambda row: row.name)
def test_what_cuda_says(row: Row) -> None:
    judge(row)
