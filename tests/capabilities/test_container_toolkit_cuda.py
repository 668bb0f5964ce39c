"""container_toolkit.cuda: what CUDA in containers comes to. The engines' words are those of docker 20.10, podman 4.3
and containerd 1.6, each with that fault."""

from __future__ import annotations

from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from tests.capabilities.asking import Row, judge
from tests.rows import run_each

CUDA, IMAGE = "container_toolkit.cuda", "site/cuda:1"
ASKED = ContainerToolkit(runtimes=("docker", "podman"), cuda_image=IMAGE)
PULLING = ContainerToolkit(runtimes=("docker",), cuda_image=IMAGE, cuda_pull=True)
GPU, MIG = "GPU-1|0000:19:00.0|Default", "MIG-2|0000:3b:00.0|Default"
HELD, FORBIDDEN = "GPU-3|0000:5d:00.0|Exclusive_Process", "GPU-4|0000:5e:00.0|Prohibited"
OCI = "Error: runc: runc create failed: unable to start container process: error during container init:"
GONE = "/usr/lib/x86_64-linux-gnu/libnvidia-pkcs11-openssl3.so.535.161.08"


def said(*lines: str) -> dict[str, str]:
    return {"cuda_in_containers": "".join(f"{line}\n" for line in lines)}


def run(end: str, device: str = GPU, engine: str = "podman") -> str:
    return f"run|{engine}|{device}|{end}"


ROWS = [
    Row("not asked for", CUDA, None, said("off"), "n/a", "no image is named"),
    Row("a record of a host", CUDA, ASKED, said("off"), "skip", "no container was started when this record was made"),
    Row("it runs", CUDA, ASKED, said(run("|0|", engine="docker"), run("|0|"), run("|0|", MIG)), "pass",
        "CUDA runs on each device in docker, podman"),
    Row("no unified memory", CUDA, ASKED, said("no-uvm|"), "fail", "there is no /dev/nvidia-uvm",
        "modprobe nvidia_uvm"),
    Row("none in the container", CUDA, ASKED, said(run("open|2|/dev/nvidia-uvm")), "fail",
        "podman: 0000:19:00.0: there is no /dev/nvidia-uvm", "container_toolkit.cdi"),
    Row("a cgroup", CUDA, ASKED, said(run("|0|", engine="docker"), run("open|1|/dev/nvidia0")), "fail",
        "podman: 0000:19:00.0: a cgroup denies /dev/nvidia0", "container_toolkit.daemon_reload"),
    Row("a mode", CUDA, ASKED, said(run("open|13|/dev/nvidiactl")), "fail", "may not open /dev/nvidiactl",
        "NVreg_DeviceFileMode"),
    Row("Fabric Manager is dead", CUDA, ASKED, said(run("cuInit|802|")), "fail",
        "podman: 0000:19:00.0: cuInit: 802 CUDA_ERROR_SYSTEM_NOT_READY", "Install Fabric Manager"),
    Row("compute mode", CUDA, ASKED, said(run("cuDevicePrimaryCtxRetain|999|", FORBIDDEN)), "fail",
        "999 CUDA_ERROR_UNKNOWN: compute mode Prohibited", "gpu_settings.compute_mode"),
    Row("a job holds it", CUDA, ASKED, said(run("cuDevicePrimaryCtxRetain|46|", HELD), run("|0|", engine="docker")),
        "skip", "podman: 0000:5d:00.0: in use by somebody else (compute mode Exclusive_Process)"),
    Row("no libcuda", CUDA, ASKED, said(run("load|0|libcuda.so.1: cannot open shared object file")), "fail",
        "podman: 0000:19:00.0: libcuda.so.1: cannot open", "see container_toolkit.cdi"),
    Row("an image without the linker's cache", CUDA, ASKED, said(run("load|1|libcuda.so.1: cannot open")), "fail",
        "podman: 0000:19:00.0: libcuda.so.1: cannot open", "no /etc/ld.so.cache"),
    Row("a stale specification", CUDA, ASKED, said(
        f'start|podman|{OCI} error mounting "{GONE}" to rootfs at "{GONE}": stat {GONE}: no such file or directory'),
        "fail", "podman: the CDI specification has files of driver 535.161.08, which are gone: it is stale",
        "nvidia-cdi-refresh"),
    Row("no specification", CUDA, ASKED, said(
        "start|podman|Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all"), "fail",
        "podman: no CDI specification names the GPUs", "container_toolkit.cdi"),
    Row("no runtime", CUDA, ASKED, said(
        "start|docker|docker: Error response from daemon: Unknown runtime specified nvidia. See 'docker run --help'."),
        "fail", "docker: NVIDIA's runtime is not registered", "container_toolkit.registered"),
    Row("no runtime, in newer words", CUDA, ASKED, said(
        "start|docker|docker: Error response from daemon: unknown or invalid runtime name: nvidia"), "fail",
        "docker: NVIDIA's runtime is not registered"),
    Row("no image", CUDA, ASKED, said("image|docker|Error: No such image: site/cuda:1",
                                      "image|podman|Error: inspecting object: site/cuda:1: image not known"), "fail",
        "docker has no image site/cuda:1; podman has no image site/cuda:1",
        "docker pull site/cuda:1, or cuda_pull: true"),
    Row("no image, and apply may pull it", CUDA, PULLING, said("image|docker|Error: No such image: site/cuda:1"),
        "fail",
        "docker has no image", "gpuprov apply, which pulls it"),
    Row("no daemon", CUDA, ASKED,
        said("image|docker|Cannot connect to the Docker daemon at unix:///var/run/docker.sock."),
        "fail", "docker does not answer: Cannot connect", "container_toolkit.registered"),
    Row("words that nobody knows", CUDA, ASKED, said("start|podman|Error: the moon is full"), "fail",
        "podman starts no container: Error: the moon is full", "gpuprov explain"),
    Row("no answer", CUDA, ASKED, said(run("hang|0|12")), "fail", "no answer within 12 s"),
    Row("drained", CUDA, ASKED, said("drained|Slurm (broken fan)"), "skip",
        "drained by Slurm (broken fan): no container"),
    Row("another one is running", CUDA, ASKED, said("turn|"), "skip", "another container of this check is running"),
]  # fmt: skip


@run_each("row", ROWS, ids=lambda row: row.name)
def test_what_containers_say(row: Row) -> None:
    judge(row)
