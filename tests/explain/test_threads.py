"""Messages as people have pasted them in public: each is explained by the symptom that its thread came to."""

from __future__ import annotations

import pytest

from gpuprov.catalog.symptoms import symptoms
from gpuprov.explain import explain, in_text

# fmt: off
THREADS = [
    ("NVIDIA/nccl#525", "[3] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device",
     "nccl-shared-memory"),
    ("NVIDIA/nccl-tests#166", "misc/shmutils.cc:112 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-KWfVyt",
     "nccl-shared-memory"),
    ("pytorch/ci-infra#490", "misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, error: No "
     "space left on device (28)", "nccl-shared-memory"),
    ("NVIDIA/nccl#1589", "misc/shmutils.cc:129 NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-glnlGK (size "
     "14156128), error: No such file or directory (2)", "nccl-shared-memory-attach"),
    ("NVIDIA/Megatron-LM#661", "Duplicate GPU detected : rank 3 and rank 0 both on CUDA device f000", "nccl-duplicate-gpu"),
    ("pytorch/pytorch#118369", "[E ProcessGroupNCCL.cpp:458] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL("
     "SeqNum=96120, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 25624887 milliseconds before timing out.", "nccl-watchdog"),
    ("FoundationVision/GenerateU#10", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 496.00 MiB. GPU 0 has a "
     "total capacty of 14.75 GiB of which 235.06 MiB is free. Process 20398 has 14.52 GiB memory in use.", "cuda-out-of-memory"),
    ("pytorch/pytorch#16417", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.00 MiB.", "cuda-out-of-memory"),
    ("xianlin7/SAMUS#39", "RuntimeError: No CUDA GPUs are available", "cuda-none-visible"),
    ("google/lasr#6", "RuntimeError: CUDA error: invalid device ordinal", "cuda-invalid-ordinal"),
    ("JuliaGPU/CUDAdrv.jl#106", "CUDA error: uncorrectable ECC error encountered (code #214, ERROR_ECC_UNCORRECTABLE)", "cuda-ecc"),
    ("pytorch/pytorch#167244", "RuntimeError: CUDA error: no kernel image is available for execution on the device",
     "cuda-no-kernel-image"),
    ("QData/C-Tran#30", "NVIDIA GeForce RTX 4090 with CUDA capability sm_89 is not compatible with the current PyTorch installation.",
     "cuda-no-kernel-image"),
    ("pytorch/pytorch#3871", "RuntimeError: cuda runtime error (46) : all CUDA-capable devices are busy or unavailable",
     "compute-mode-closed"),
    ("ggml-org/llama.cpp#11841", "CUDA error: CUDA-capable device(s) is/are busy or unavailable", "compute-mode-closed"),
    ("NVIDIA/nvidia-container-toolkit#714", "Error 805: MPS client failed to connect to the MPS control daemon or the MPS server.",
     "mps-not-reached"),
    ("globus-labs/mof-generation-at-scale#29", "Cannot find MPS control daemon process", "mps-no-daemon"),
    ("NVIDIA/k8s-device-plugin#634", "error checking MPS daemon health", "mps-kubernetes-health"),
    ("NVIDIA/DCGM#43", "Error: Unable to connect to host engine. Host engine connection invalid/disconnected.", "dcgm-not-reached"),
    ("NVIDIA/DCGM#133", "Error: unable to establish a connection to the specified host: 10.112.220.8", "dcgm-not-reached"),
    ("NVIDIA/DCGM#21", "Err: Failed to start DCGM Server: -7", "dcgm-start"),
    ("NVIDIA/k8s-device-plugin#182", "2020/10/14 18:04:53 Failed to initialize NVML: could not load NVML library.", "kubernetes-nvml"),
    ("NVIDIA/k8s-device-plugin#303", "If this is a GPU node, did you set the docker default runtime to 'nvidia'?", "kubernetes-nvml"),
    ("NVIDIA/k8s-device-plugin#33", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", "kubernetes-insufficient"),
    ("BiBiServ/bibigrid#705", "slurmd[12912]: slurmd: fatal: can't stat gres.conf file /dev/nvidia0: No such file or directory",
     "slurm-device-missing"),
    ("aws/aws-parallelcluster#2117", "error: gres_device_major: stat(/dev/nvidia0): No such file or directory",
     "slurm-device-missing"),
    ("ComputeCanada/puppet-magic_castle#27", "slurmd[57977]: fatal: gres.conf duplicate records for gpu", "slurm-duplicate"),
    ("NVIDIA/deepops#1214", "fatal: We were configured to autodetect nvml functionality, but we weren't able to find that lib "
     "when Slurm was configured", "slurm-without-nvml"),
    ("NVIDIA/deepops#1195", "error: _node_config_validate: gres/gpu: invalid GRES core specification (48-63,176-191) on node node01",
     "slurm-cores"),
    ("NVIDIA/open-gpu-kernel-modules#789", "[ 2052.745833] NVRM: gpuWaitForGfwBootComplete_TU102: failed to wait for GFW_BOOT: "
     "(progress 0x3)", "gpu-firmware-boot"),
    ("NVIDIA/open-gpu-kernel-modules#862", "No devices were found", "smi-no-devices"),
    ("Comfy-Org/ComfyUI#16438", "AssertionError: Torch not compiled with CUDA enabled", "torch-without-cuda"),
]
# fmt: on
BY_KEY = {symptom.key: symptom for symptom in symptoms()}


@pytest.mark.parametrize(("thread", "pasted", "key"), THREADS, ids=[f"{thread} {key}" for thread, _, key in THREADS])
def test_what_people_paste_in_public(thread: str, pasted: str, key: str) -> None:
    symptom = BY_KEY[key]
    assert explain(pasted)[0].name == " | ".join(symptom.signatures), thread
    log = f"2026-01-01 00:00:00 host program[1]: starting\n{pasted}\n2026-01-01 00:00:01 host program[1]: done\n"
    assert in_text(log, "a log")[0].name == " | ".join(symptom.signatures), thread


def test_causes_stand_in_the_order_of_likelihood_each_with_its_command_and_fix() -> None:
    lines = explain("slurmd: fatal: can't stat gres.conf file /dev/nvidia0")[0].lines
    assert [title for title, _ in lines] == [
        "cause",
        "check",
        "cure",
        "or",
        "check",
        "cure",
        "or",
        "check",
        "cure",
        "source",
    ]
    for symptom in symptoms():
        for other in symptom.others:
            assert other.cause
            assert other.check
            assert other.cure, symptom.key


def test_as_many_messages_are_known_beside_xids() -> None:
    messages = [said for symptom in symptoms() if not symptom.xids for said in symptom.signatures]
    assert len(messages) >= 150
    assert len({number for symptom in symptoms() for number in symptom.xids}) >= 150
