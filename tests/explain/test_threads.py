"""Messages as people have pasted them in public: each is explained by the symptom that its thread came to."""

from __future__ import annotations

import re

import pytest
import yaml

from gpuprov.capabilities import BY_NAME
from gpuprov.catalog.symptoms import addresses, symptoms
from gpuprov.explain import all_checks, explain, fields, in_text
from gpuprov.spec.build import convert

# fmt: off
THREADS = [
    ("Azure/azhpc-images#506", "State : Completed Status : Insufficient Resources CliqueId : 0", "fabric-status"),
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
    ("horovod/horovod#98", "machine [0] misc/ibvwrap.cu:269 WARN Call to ibv_create_qp failed", "rdma-create-cq"),
    ("NVIDIA/nccl#1129", "misc/ibvwrap.cc:280 NCCL WARN Call to ibv_create_qp failed", "rdma-create-cq"),
    ("NVIDIA/nccl#1191", "misc/ibvwrap.cc:190 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory",
     "rdma-create-cq"),
    ("NVIDIA/nccl-tests#206", "misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
     "rdma-create-cq"),
    ("openucx/ucx#7930", "[1644567389.121214] [hostname:183563:0] ib_md.c:340  UCX  ERROR ibv_reg_mr(address=0x7f1bae800000, "
     "length=39845888, access=0xf) failed: Cannot allocate memory", "rdma-create-cq"),
    ("NVIDIA/cudf-spark#7632", "ERROR mlx5_0: ibv_create_cq() failed: Cannot allocate memory.", "rdma-create-cq"),
    ("stackhpc/ansible-role-openhpc#13", "slurmd[21031]: fatal: Unable to determine this slurmd's NodeName", "slurm-node-name"),
    ("aws/aws-parallelcluster#1517", "[2020-08-13T10:20:03.698] error: Node ip-10-2-1-120 has low real_memory size (63622 < 64000)",
     "slurm-memory"),
    ("stackhpc/ansible-role-openhpc#115", "alaska-control slurmctld[208988]: error: _slurm_rpc_node_registration "
     "node=alaska-login-0: Invalid argument", "slurm-registration-refused"),
    ("clustervision/trinityX#98", "[2016-09-22T15:29:43.492] error: Node node001 appears to have a different slurm.conf than the "
     "slurmctld.", "slurm-conf-differs"),
    ("NVIDIA/gpu-operator#1371", "NVRM: installed in this system is not supported by the", "gpu-unknown-to-driver"),
    ("ComputeCanada/puppet-magic_castle#27", "slurmd[57977]: fatal: gres.conf duplicate records for gpu", "slurm-duplicate"),
    ("NVIDIA/deepops#1214", "fatal: We were configured to autodetect nvml functionality, but we weren't able to find that lib "
     "when Slurm was configured", "slurm-without-nvml"),
    ("NVIDIA/deepops#1195", "error: _node_config_validate: gres/gpu: invalid GRES core specification (48-63,176-191) on node node01",
     "slurm-cores"),
    ("NVIDIA/open-gpu-kernel-modules#789", "[ 2052.745833] NVRM: gpuWaitForGfwBootComplete_TU102: failed to wait for GFW_BOOT: "
     "(progress 0x3)", "gpu-firmware-boot"),
    ("NVIDIA/open-gpu-kernel-modules#862", "No devices were found", "smi-no-devices"),
    ("Comfy-Org/ComfyUI#16438", "AssertionError: Torch not compiled with CUDA enabled", "torch-without-cuda"),
    ("Bing-su/adetailer#346", "RuntimeError: CUDA error: an illegal memory access was encountered", "cuda-illegal-address"),
    ("pytorch/pytorch#77159", "RuntimeError: cuda runtime error (710) : device-side assert triggered at /pytorch/aten/src/THC/generic/"
     "THCTensorMath.cu:29", "cuda-device-assert"),
    ("huggingface/accelerate#157", "RuntimeError: CUDA error: unspecified launch failure", "cuda-launch-failure"),
    ("pytorch/pytorch#49081", "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing "
     "env variable CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero.", "cuda-unknown-error"),
    ("pytorch/pytorch#31179", "RuntimeError: cuda runtime error (999) : unknown error at "
     "/opt/conda/conda-bld/pytorch_1573049306803/work/"
     "aten/src/THC/THCGeneral.cpp:50", "cuda-unknown-error"),
    ("pytorch/pytorch#40403", "Cannot re-initialize CUDA in forked subprocess", "cuda-forked"),
    ("QwenLM/Qwen#120", "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", "cublas-not-initialized"),
    ("tensorflow/tensorflow#9489", "2017-12-30 21:18:15.018347: E tensorflow/stream_executor/cuda/cuda_blas.cc:366] failed to create "
     "cublas handle: CUBLAS_STATUS_NOT_INITIALIZED", "cublas-not-initialized"),
    ("ggml-org/llama.cpp#3230", "CUDA error 217 at ggml-cuda.cu:6292: peer access is not supported between these two devices",
     "peer-access-unsupported"),
    ("ray-project/ray_lightning#24", "z-pc:909608:910337 [0] transport/p2p.cc:238 NCCL WARN failed to open CUDA IPC handle : 217 peer "
     "access is not supported between these two devices", "peer-access-unsupported"),
    ("ggml-org/whisper.cpp#1879", "./main: error while loading shared libraries: libcuda.so.1: cannot open shared object "
     "file: No such "
     "file or directory", "libcuda-missing"),
    ("hiyouga/LlamaFactory#1169", "misc/cudawrap.cc:179 NCCL WARN Failed to find CUDA library libcuda.so "
     "(NCCL_CUDA_PATH='') : libcuda.so"
     ": cannot open shared object file: No such file or directory", "libcuda-missing"),
    ("pytorch/pytorch#108861", "RuntimeError: DataLoader worker (pid 11011) is killed by signal: Bus error. It is possible that "
     "dataloader's workers are out of shared memory. Please try to raise your shared memory limit", "torch-shared-memory"),
    ("tengshaofeng/ResidualAttentionNetwork-pytorch#2", "ERROR: Unexpected bus error encountered in worker. This might be caused by "
     "insufficient shared memory (shm).", "torch-shared-memory"),
    ("Intellindust-AI-Lab/DEIM#105", "[rank1]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 1] Heartbeat monitor timed out! "
     "Process will be "
     "terminated after dumping debug info. workMetaList_.size()=103", "nccl-heartbeat"),
    ("NVIDIA/nccl#1232", "NCCL WARN socketProgress: Connection closed by remote peer node2<42830>", "nccl-peer-closed"),
    ("NVIDIA/nccl#795", "misc/socket.cc:518 NCCL WARN Net : Call to recv from 10.200.84.247<58355> failed : Broken pipe",
     "nccl-peer-closed"),
    ("NVIDIA/nccl#975", "[5] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to fe80::966d:ae03:a2:8cf0%ib1<17943> failed : "
     "Software caused connection abort", "nccl-connect-failed"),
    ("NVIDIA/nccl-tests#188", "user:16901:16967 [2] misc/socket.cc:441 NCCL WARN socketFinalizeAccept: wrong type 4 != 3",
     "nccl-connect-failed"),
    ("NVIDIA/nccl#952", "NCCL INFO NET/IB : No device found", "nccl-no-ib-device"),
    ("pytorch/pytorch#177472", "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the "
     "operation cannot "
     "be performed in the present state'.", "nccl-nvls"),
    ("NVIDIA/nccl#1029", "[6] init.cc:263 NCCL WARN Cuda failure 'initialization error'", "nccl-initialization-error"),
    ("pytorch/pytorch#130113", "node155:3052669:3052713 [1] NCCL INFO P2P is disabled between connected GPUs 2 and 1. You "
     "can repress this "
     "message with NCCL_IGNORE_DISABLED_P2P=1.", "nccl-p2p-disabled"),
    ("NVIDIA/nvidia-docker#1447", "nvidia-container-cli: container error: cgroup subsystem devices not found: unknown.",
     "container-cgroup-devices"),
    ("NVIDIA/nvidia-docker#1760", "nvidia-container-cli: ldcache error: process /sbin/ldconfig failed with error code: 1",
     "container-ldconfig"),
    ("NVIDIA/enroot#128", "E0711 07:13:39.552177 1 nvc_ldcache.c:403] could not start /usr/sbin/ldconfig: mount operation "
     "failed: /dev: "
     "operation not permitted", "container-ldconfig"),
    ("NVIDIA/nvidia-container-runtime#136", "nvidia-container-cli: mount error: stat failed: "
     "/var/lib/docker/overlay2/3e69c4833ad6cf727"
     "48f7f259e8a408d4f567593d68432f69c8a5ae25a8e078e/merged/usr/local/cuda-10.2/compat/libcuda.so.440.118.02: no such "
     "file or directory",
     "container-compat-library"),
    ("NVIDIA/nvidia-container-toolkit#556", "nvidia-container-cli: initialization error: driver rpc error: failed to process request: "
     "unknown.", "container-driver-error"),
    ("NVIDIA/nvidia-docker#1252", "stderr: nvidia-container-cli: initialization error: driver error: failed to process request",
     "container-driver-error"),
    ("NVIDIA/libnvidia-container#2", "nvidia-container-cli: error while loading shared libraries: "
     "libnvidia-container.so.1: cannot open "
     "shared object file: No such file or directory", "container-library-cache"),
    ("NVIDIA/nvidia-container-toolkit#885", 'Error: setting up CDI devices: failed to inject devices: failed to stat CDI host device '
     '"/dev/dri/renderD129": no such file or directory', "container-cdi-stale"),
    ("ssst0n3/fake-nvidia#4", "nvidia-ctk: symbol lookup error: nvidia-ctk: undefined symbol: nvmlDeviceGetMaxMigDeviceCount",
     "container-cdi-generate"),
    ("sgl-project/sglang#5515", 'Failed to create pod sandbox: rpc error: code = Unknown desc = RuntimeHandler "nvidia" not supported',
     "kubernetes-runtime-handler"),
    ("NVIDIA/gpu-operator#441", "2022/11/14 14:40:53 Error: failed to create FS watcher: too many open files", "kubernetes-inotify"),
    ("kubernetes/kubernetes#130145", "Pod Allocate failed due to requested number of devices unavailable for "
     "nvidia.com/gpu. Requested:1, "
     "Available: 0, which is unexpected", "kubernetes-devices-unavailable"),
    ("awslabs/awsome-distributed-ai#195", "Reason=gres/gpu count reported lower than configured (0 < 8)", "slurm-gres-count"),
    ("ComputeCanada/puppet-magic_castle#361", "slurmctld: _node_config_validate: gres/gpu: Count changed on node nodegpu1 (4 != 3)",
     "slurm-gres-count"),
    ("koesterlab/setup-slurm-action#4", "[2023-11-09T22:49:00.525] error: Node configuration differs from hardware: CPUs=2:4(hw) "
     "Boards=1:1(hw) SocketsPerBoard=1:1(hw) CoresPerSocket=2:2(hw) ThreadsPerCore=1:2(hw)", "slurm-hardware-differs"),
    ("nateGeorge/slurm_gpu_ubuntu#7", "[2023-10-16T10:42:01.138] error: Couldn't find the specified plugin name for "
     "cgroup/v2 looking at "
     "all files", "slurm-cgroup-plugin"),
    ("SckyzO/slurm_exporter#207", "Ignoring file-less GPU gpu:model_a from final GRES list", "slurm-fileless-gpu"),
    ("cupy/cupy#1930", "1 device is currently being used by one or more other processes (e.g., CUDA application, graphics "
     "application such "
     "as an X server, or a monitoring application such as another instance of nvidia-smi).", "smi-reset-in-use"),
    ("NVIDIA/gpu-operator#118", "GPU 00000000:C1:00.0 is currently in use by another process.", "smi-reset-in-use"),
    ("NVIDIA/ansible-role-nvidia-driver#3", "Failed to query NVIDIA devices. Please ensure that the NVIDIA device files "
     "(/dev/nvidia*) "
     "exist, and that user 0 has read and write permissions for those files.", "persistenced-failed"),
    ("ollama/ollama#11932", "localhost nvidia-persistenced[103913]: nvidia-persistenced failed to initialize. Check syslog for more "
     "details.", "persistenced-failed"),
    ("NVIDIA/open-gpu-kernel-modules#1230", "[  115.083711] NVRM: GPU6 _kgspBootGspRm: unexpected WPR2 already up, cannot "
     "proceed with "
     "booting GSP", "gsp-wpr2"),
    ("NVIDIA/nvtrust#77", "[  299.098320] NVRM: RmInitAdapter: Cannot initialize GSP firmware RM", "gsp-init"),
    ("NVIDIA/open-gpu-kernel-modules#1151", "May 27 16:50:10 fedora kernel: NVRM: osInitNvMapping: *** Cannot attach "
     "gpu", "gpu-not-mapped"),
    ("Bumblebee-Project/Bumblebee#638", "[ 1428.836717] NVRM: Can't find an IRQ for your NVIDIA card!", "gpu-no-irq"),
    ("NVIDIA/nvtrust#77", "NVRM: gpuHandleSanityCheckRegReadError_GH100: Possible bad register read: addr: 0x110804,  "
     "regvalue: 0xbadf4100"
     ",  error code: Unknown SYS_PRI_ERROR_CODE", "gpu-bad-register"),
    ("src-d/coreos-nvidia#3", "insmod: ERROR: could not insert module /opt/nvidia/lib/modules/4.14.16/video/nvidia.ko: "
     "Unknown symbol in "
     "module", "module-unknown-symbol"),
    ("hhfeuer/nvhda#16", "modprobe: ERROR: could not insert 'nvhda': Exec format error", "module-exec-format"),
    ("NVIDIA/dcgm-exporter#148", 'time="2023-08-01T02:47:46Z" level=fatal msg="Failed to watch metrics: Error watching fields: The '
     'third-party Profiling module returned an unrecoverable error"', "dcgm-profiling"),
    ("NVIDIA/DCGM#218", "ERROR [2141:2143] [[Profiling]] DCP metrics are supported for Volta, Turing, Ampere or Ada GPUs "
     "architectures "
     "only", "dcgm-architecture"),
    ("NVIDIA/dcgm-exporter#327", 'level=info msg="Not collecting DCP metrics: Error getting supported metrics: Profiling '
     'is not supported '
     'for this group of GPUs or GPU"', "dcgm-no-profiling"),
    ("NVIDIA/dcgm-exporter#22", "Not collecting DCP metrics: Error getting supported metrics: This request is serviced by "
     "a module of DCGM "
     "that is not currently loaded", "dcgm-no-profiling"),
    ("NVIDIA/k8s-device-plugin#1614", "nvidia-cuda-mps-server exited with status 1", "mps-server-exited"),
    ("NVIDIA/k8s-device-plugin#679", "[2024-04-25 02:10:31.389 Control    74] NEW CLIENT 0 from user 1000: Server is not "
     "ready, push client "
     "to pending list", "mps-pending-user"),
    ("openucx/ucx#5199", "[master:19546:0:19546] ib_mlx5_log.c:139  Transport retry count exceeded on mlx5_0:1/IB (synd "
     "0x15 vend 0x81 "
     "hw_synd 0/0)", "rdma-retry-exceeded"),
    ("openucx/ucx#9515", "[a670n1:162239:0:162239] ib_mlx5_log.c:177  Local protection on mlx5_0:1/IB (synd 0x4 vend 0x51 "
     "hw_synd 0/2)",
     "rdma-local-protection"),
    ("openucx/ucx#8229", "ib_iface.c:1035 UCX  ERROR ibv_create_cq(cqe=4096) failed: Cannot allocate memory", "rdma-create-cq"),
    ("nminoru/pib#2", "libibverbs: Warning: no userspace device-specific driver found for /sys/class/infiniband_verbs/uverbs1",
     "rdma-no-userspace-driver"),
    ("linux-rdma/perftest#262", "libibverbs: Warning: couldn't load driver 'libmana-rdmav34.so': libmana-rdmav34.so: "
     "cannot open shared "
     "object file: No such file or directory", "rdma-no-userspace-driver"),
    ("JosephKJ/OWOD#81",
     "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost. Reboot the system to recover thi"
     "s GPU",
     "gpu-lost"),
    ('NVIDIA/gpu-operator#20', 'WARNING: infoROM is corrupted at gpu 0000:B3:00.0', 'inforom-corrupted'),
    ('qixuema/envs#4', 'NVIDIA-SMI has failed because it couldn‘t communicate with the NVIDIA driver.', 'driver-not-loaded'),
    ("jurkovic-nikola/OpenLinkHub#174",
     "[10582.980815] NVRM: GPU 0000:01:00.0 is already bound to vfio-pci.",
     "vfio-bound"),
    ('beclab/Olares#3963', '[  201.910514] NVRM: GPU 0000:01:00.0 is already bound to NovaCore.', 'nova-bound'),
    ("NVIDIA/open-gpu-kernel-modules#862", "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2b85) installed in this system requires "
     "use of the NVIDIA open kernel modules.", "proprietary-on-blackwell"),
    ("NVIDIA/open-gpu-kernel-modules#862", "NVRM: installed in this system requires use of the NVIDIA open kernel modules.",
     "proprietary-on-blackwell"),
    ("NVIDIA/open-gpu-kernel-modules#393", "[  +0.000001] NVRM: None of the NVIDIA devices were initialized.", "probe-failed"),
    ("NVIDIA/open-gpu-kernel-modules#322", "NVRM: nvidia.ko because it does not include the required GPU", "open-module-no-gsp"),
    ("NVIDIA/open-gpu-kernel-modules#872", "No devices were found", "smi-no-devices"),
    ("NVIDIA/nvidia-container-toolkit#268", "Failed to initialize NVML: Insufficient Permissions", "container-nvml-permissions"),
    ("NVIDIA/gpu-operator#679", "nvidia-container-cli: initialization error: nvml error: insufficient permissions: unknown",
     "container-nvml-permissions"),
    ("NVIDIA/mig-parted#181", "  GPU 00000000:01:00.0: In use by another client", "smi-reset-in-use"),
    ("aws/aws-ofi-nccl#67", "WARN: Function: find_ofi_provider Line: 543: NET/OFI Couldn't find any optimal provider",
     "efa-no-provider"),
    ("NVIDIA/gpu-operator#671", "modprobe: ERROR: could not insert 'nvidia_modeset': No such device", "module-no-device"),
    ("negativo17/nvidia-driver#97", "nvidia: version magic '5.4.18-100.fc30.x86_64 SMP mod_unload ' should be "
     "'5.4.18-200.fc31.x86_64 SMP mod_unload '", "module-exec-format"),
    ("a driver that is not built for this kernel", "modprobe: FATAL: Module nvidia-peermem not found in directory "
     "/lib/modules/6.8.0-60-generic", "peermem-not-found"),
    ("NVIDIA/nvidia-container-toolkit#147", "nvidia-container-cli: ldcache error: process /sbin/ldconfig.real failed with error "
     "code: 1: unknown", "container-ldconfig"),
    ("NVIDIA/libnvidia-container#154", "nvidia-container-cli: mount error: failed to add device rules: unable to find any existing "
     "device filters attached to the cgroup: bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted: unknown.",
     "container-cgroup-filter"),
    ("microsoft/pai#2962", "ERROR: The Nouveau kernel driver is currently in use by your system.", "nouveau-bound"),
    ("Arc-Compute/LibVF.IO#20", "ERROR: An NVIDIA kernel module 'nvidia-drm' appears to already be loaded in your kernel.",
     "installer-module-loaded"),
    ("NVIDIA/cuda-samples#286", "WARNING: An NVIDIA kernel module 'nvidia-drm' appears to be already loaded in your kernel.",
     "installer-module-loaded"),
    ("pop-os/shop#121", "trying to overwrite '/lib/udev/rules.d/71-nvidia.rules', which is also in package "
     "nvidia-kernel-common-418 418.56-0pop0~1553121653~18.10~82fab6d", "apt-overwrite"),
    ("rajeshroy402/DeepStream-dGPU-Installation#6", " nvidia-dkms-510 : Depends: nvidia-kernel-common-510 (>= 510.73.05) but "
     "510.47.03-0ubuntu1 is to be installed", "apt-unmet-dependencies"),
    ("NVIDIA/ansible-role-nvidia-driver#11", "E: Unable to correct problems, you have held broken packages.",
     "apt-unmet-dependencies"),
    ("NVIDIA/yum-packaging-precompiled-kmod#50", "  - package nvidia-kmod-common-3:555.42.02-1.el8.noarch from cuda-rhel8-x86_64 "
     "requires nvidia-kmod = 3:555.42.02, but none of the providers can be installed", "dnf-no-kmod"),
    ("NVIDIA/nvidia-docker#1163", "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "smi-no-library"),
    ("ComputationalRadiationPhysics/cuda_memtest#31", "ERROR: CUDA error: the provided PTX was compiled with an unsupported "
     "toolchain., line 148", "cuda-ptx-version"),
    ("leptonai/gpud, log_matcher.go", "[ERROR] [tid 841] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id "
     "00000000:86:00.0 physical id 3 port 33", "fabric-manager-nvswitch-error"),
    ("NVIDIA/nccl#1043", "[ERROR] [tid 527118] failed to find the GPU handle 12766911663723876521 in the multicast team",
     "fabric-manager-gpu-handle"),
    ("NVIDIA/gpu-operator#2868", "modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument", "peermem-invalid-argument"),
    ("NVIDIA/open-gpu-kernel-modules#943",
     "nvidia 0000:06:00.0: loading /lib/firmware/nvidia/570.133.20/gsp_ga10x.bin failed with error -4",
     "gsp-firmware-missing"),
    ("NVIDIA/open-gpu-kernel-modules#795",
     "kernel: NVRM: kgspWaitForGfwBootOk_TU102: failed to wait for GFW boot complete: 0x55 VBIOS version 95.04."
     "69.40.36",
     "gpu-firmware-boot"),
    ("pytorch/pytorch#74235",
     "NVRM: Xid (PCI:0000:01:00): 109, pid=4124, name=python, Ch 00000028, errorString CTX SWITCH TIMEOUT, Info"
     " 0x2c014",
     "xid-109"),
    ("NVIDIA/open-gpu-kernel-modules#829",
     "[605633.376794] NVRM: Xid (PCI:0000:06:00): 120, GSP task exception: store access page fault (cause:0xf) "
     "@ pc:0x13ebd80, partition:2#0, task:3",
     "xid-120"),
    ("Dunedan/mbp-2016-linux#60",
     "[   85.546912] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
     "pci-region-invalid"),
    ("CachyOS/CachyOS-PKGBUILDS#1038",
     "[    4.302611] NVRM: GPU 0000:01:00.0: Failed to enable MSI; falling back to PCIe virtual-wire interrupts"
     ".",
     "gpu-no-irq"),
    ('NVIDIA/nvtrust#55', '[   38.034696] NVRM: installed in this system is not supported by the', 'gpu-unknown-to-driver'),
    ("pop-os/ubuntu-drivers-common#12",
     "[   38.259574] nvidia 0000:01:00.0: can't change power state from D3cold to D0 (config space inaccessible"
     ")",
     "gpu-lost"),
    ("Cyridd/cmpunlocker#4",
     "[   21.238209] NVRM: RmInitAdapter: osInitNvMapping failed, bailing out of RmInitAdapter",
     "gpu-not-mapped"),
    ("gbionics/jaxsim#50",
     "E external/xla/xla/stream_executor/cuda/cuda_driver.cc:268] failed call to cuInit: CUDA_ERROR_UNKNOWN: un"
     "known error",
     "cuda-unknown-error"),
    ('JuliaGPU/CUDA.jl#606', 'unspecified launch failure (code 719, ERROR_LAUNCH_FAILED)', 'cuda-launch-failure'),
    ("pytorch/pytorch#1040",
     "THCudaCheck FAIL file=torch/csrc/cuda/Module.cpp line=109 error=38 : no CUDA-capable device is detected",
     "cuda-no-device"),
    ("NVIDIA/nvidia-docker#1235",
     "nvidia-container-cli: initialization error: cuda error: no cuda-capable device is detected",
     "cuda-no-device"),
    ("modelscope/ms-swift#7992",
     "[rank4]:[E205 18:11:06.375750231 ProcessGroupNCCL.cpp:1870] [PG ID 12 PG GUID 99(EXPERT_MODEL_PARALLEL_GR"
     "OUP) Rank 4] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring "
     "enqueued collectives.",
     "nccl-heartbeat"),
    ('torch/cutorch#677', 'cublas runtime error : library not initialized at THCGeneral.c', 'cublas-not-initialized'),
    ('NVIDIA/nccl#451', 'misc/ibvwrap.cc:212 NCCL WARN Call to ibv_open_device failed', 'nccl-no-ib-device'),
    ('NVIDIA/nccl#451', 'transport/net_ib.cc:148 NCCL WARN NET/IB : Unable to open device mlx5_bond_0', 'nccl-no-ib-device'),
    ('getainode/ainode#87', 'NCCL WARN Failed to initialize any NET plugin', 'nccl-no-ib-device'),
    ("NVIDIA/nccl#1672",
     "[2025-04-06 22:31:56] ccw-gpu-128:3485254:3487188 [0] transport/nvls.cc:598 NCCL WARN Cuda failure 1 'inv"
     "alid argument'",
     "nccl-nvls"),
    ("NVIDIA/nccl#1788",
     "[2025-07-21 19:05:29] node004:27907:27907 [1] transport/nvls.cc:254 NCCL WARN Cuda failure 401 'the opera"
     "tion cannot be performed in the present state'",
     "nccl-nvls"),
    ('NVIDIA/nccl#925', 'ibvwrap.c:160 NCCL WARN Call to ibv_modify_qp failed with error No such device', 'nccl-modify-qp'),
    ("NVIDIA/nccl#928",
     "NCCL WARN NET/IB : Got completion from peer fe80::966d:ae03:8b:df54%ib0<33397> with error 4, opcode 32611"
     ", len 32611, vendor err 81 (Send)",
     "nccl-completion-error"),
    ("NVIDIA/nccl#1837",
     "[trainer0|0]:ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor AF_INET6("
     "10)",
     "nccl-no-interface"),
    ("NVIDIA/nccl-tests#185",
     "dgxh100-4:460770:460869 [0] misc/socket.cc:30 NCCL WARN socketProgressOpt: Call to recv from 11.1.128.128"
     "<52035> failed : Connection reset by peer",
     "nccl-peer-closed"),
    ("NVIDIA/nccl-tests#15",
     "gpu-bql-144-103:18553:18611 [0] include/socket.h:360 WARN Call to connect failed : Connection timed out",
     "nccl-connect-failed"),
    ("NVIDIA-ISAAC-ROS/isaac_ros_visual_slam#132",
     "docker: Error response from daemon: unknown or invalid runtime name: nvidia.",
     "container-unknown-runtime"),
    ("basujindal/stable-diffusion#217",
     'Error response from daemon: could not select device driver "nvidia" with capabilities: [[gpu]]',
     "container-unknown-runtime"),
    ('NVIDIA/nvidia-docker#1657', 'nvidia-container-cli: initialization error: driver rpc error: timed out', 'container-driver-error'),
    ("NVIDIA/nvidia-docker#1385",
     "nvidia-container-cli: mount error: stat failed: /Tesla V100-SXM2-16GB: no such file or directory",
     "container-gpu-name-as-path"),
    ("NVIDIA/k8s-device-plugin#1400",
     "nvidia-container-cli: ldcache error: process /sbin/ldconfig terminated with signal 9",
     "container-ldconfig"),
    ("NVIDIA/nvidia-docker#1616",
     "nvidia-container-cli: ldcache error: process /sbin/ldconfig.real failed with error code: 1: unknown",
     "container-ldconfig"),
    ("NVIDIA/nvidia-container-runtime#127",
     "nvidia-container-cli: mount error: open failed: /sys/fs/cgroup/devices/system.slice/containerd.service/ku"
     "bepods-besteffort-pod098b3bb9_8f7c_463a_adec_4a2ce0901848.slice/devices.allow: no such file or directory:"
     " unknown",
     "container-cgroup-devices"),
    ("NVIDIA/k8s-device-plugin#1397",
     "Warning  UnexpectedAdmissionError  28m   kubelet  Allocate failed due to device plugin GetPreferredAlloca"
     "tion rpc failed with err: rpc error: code = Unknown desc = error getting list of preferred allocation dev"
     "ices: unable to get device link information: error calling nvml.Init: Unknown Error, which is unexpected",
     "kubernetes-nvml"),
    ("NVIDIA/nvidia-container-toolkit#1611",
     'nvidia-ctk[1600]: time="2026-01-25T00:45:43+11:00" level=error msg="failed to generate CDI spec: failed t'
     "o create device CDI specs: failed to construct device spec generators: failed to initialize NVML: Driver "
     'Not Loaded"',
     "driver-not-loaded"),
    ("kubernetes-sigs/dra-driver-nvidia-gpu#1143",
     "CUDA_MPS_PIPE_DIRECTORY must be set to start or to communicate with MPS control daemon",
     "mps-no-daemon"),
    ("kubernetes-sigs/dra-driver-nvidia-gpu#1153",
     "[2026-05-31 23:48:21.671 Control 11107] NEW CLIENT 11801 from user 1000: Server is not ready, push client"
     " to pending list",
     "mps-pending-user"),
    ("ovis-hpc/ldms#1636",
     "ERROR     : dcgm_sampler dcgmConnect() failed: Host engine connection invalid/disconnected(-21)",
     "dcgm-not-reached"),
    ("NVIDIA/gpu-operator#544",
     "nv-fabricmanager[3228]: fabric manager NVIDIA GPU driver interface version 530.30.02 don't match with dri"
     "ver version 530.41.03. Please update with matching NVIDIA driver package.",
     "fabric-manager-version"),
    ("NVIDIA/gpu-operator#610",
     "nv-fabricmanager[4177]: request to query NVSwitch device information from NVSwitch driver failed with err"
     "or:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]",
     "fabric-manager-no-nvswitch"),
    ("Azure/azhpc-images#213",
     "ibpanic: [769778] main: stat of IB device 'mlx5_an0' failed: No such file or directory",
     "ib-device-gone"),
    ("openucx/ucx#6000",
     "[mgmt:24113:0:24113] ib_mlx5_log.c:143  Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0"
     "x81 hw_synd 0/0)",
     "rdma-retry-exceeded"),
    ('uccl-project/uccl#641', 'Failed to modify QP to RTR: Connection timed out', 'nccl-modify-qp'),
    ("SlinkyProject/slurm-operator#57",
     "[2025-10-06T15:42:05] error: Discarding the following config-only GPU due to lack of File specification:",
     "slurm-fileless-gpu"),
    ("SlinkyProject/slurm-operator#205",
     "Reason=gres/gpu GRES autodetected core affinity 0-15 on node ai-hpc-31-24-ai doesn't match socket boundar"
     "ies. (Socket 0 is cores 0-31). Consider setting Parameters=l3cache_as_socket",
     "slurm-cores"),
    ("BiBiServ/bibigrid#705",
     "Feb 02 09:51:48 bibigrid-worker slurmd[12912]: slurmd: error: Waiting for gres.conf file /dev/nvidia0",
     "slurm-device-missing"),
    ('clearlinux/distribution#1970', 'Compiler version check failed:', 'dkms-build-failed'),
    ('NVIDIA/dcgm-exporter#604',
     'Unable to determine the device handle for GPU 000:BA:80.0: Unknown Error',
     'gpu-lost'),
    ('NVIDIA/k8s-device-plugin#156',
     '2020/02/09 00:20:15 Could not register device plugin: rpc error: code = Unimplemented desc = unknown serv'
     'ice deviceplugin.Registration',
     'kubernetes-plugin-not-registered'),
    ('NVIDIA/k8s-device-plugin#82',
     '2018/11/27 03:44:12 Could not register device plugin: context deadline exceeded',
     'kubernetes-plugin-not-registered'),
    ('NVIDIA/k8s-device-plugin#324',
     'nvidia-container-cli.real: container error: cgroup subsystem devices not found',
     'container-cgroup-devices'),
    ('NVIDIA/k8s-device-plugin#28',
     'nvidia-container-cli: ldcache error: process /sbin/ldconfig failed with error code: 127',
     'container-ldconfig'),
    ('Lightning-AI/pytorch-lightning#14986',
     'hpc-25-14:18622:18835 [0] bootstrap.cc:131 NCCL WARN Bootstrap Root : rank 1 of 8 ranks has already check'
     'ed in',
     'nccl-rank-twice'),
    ('OpenRLHF/OpenRLHF#621',
     'raised the following async exception: NCCL error: remote process exited or there was a network error, NCC'
     'L version 2.21.5',
     'nccl-peer-closed'),
    ('modelscope/ms-swift#6107',
     '[0] misc/ibvwrap.cc:182 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Invalid argument',
     'rdma-gpu-memory-refused'),
    ('turingaicloud/quickstart#6',
     'ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.',
     'nccl-system-error'),
    ('NVIDIA/nccl#1016',
     'ProcessGroupNCCL.cpp:1275, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.'
     '18.1',
     'nccl-system-error'),
    ('NVIDIA/open-gpu-kernel-modules#446',
     '[   22.275339] NVRM: _kgspLogXid119: ********************************* GSP Timeout **********************'
     '************',
     'gsp-timeout'),
    ('NVIDIA/open-gpu-kernel-modules#446',
     'NVRM: Xid (PCI:0000:83:00): 119, pid=849, name=nv_open_q, Timeout after 6s of waiting for RPC response fr'
     'om GPU0 GSP! Expected function 4097 (GSP_INIT_DONE) (0x0 0x0).',
     'xid-119'),
    ('NVIDIA/nvidia-docker#1225',
     'nvidia-container-cli.real: initialization error: driver error: failed to process request',
     'container-driver-error'),
    ('NVIDIA/nvidia-docker#1190',
     'OCI runtime create failed: unable to retrieve OCI runtime error exec: "nvidia-container-runtime": executa'
     'ble file not found in $PATH: : unknown.',
     'runtime-not-installed'),
    ('NVIDIA/nvidia-docker#1012',
     'nvidia-container-cli: initialization error: cuda error: unknown error',
     'container-driver-error'),
    ('Atinoda/text-generation-webui-docker#20',
     'nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared ob'
     'ject file: no such file or directory: unknown',
     'toolkit-no-nvml'),
    ('siderolabs/extensions#511',
     'fabric manager config file item: FABRIC_NODE_CONFIG_FILE has an invalid value',
     'fabric-manager-config'),
    ('NVIDIA/nccl#1488',
     "transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'",
     'nccl-nvls'),
    ('SoftRoCE/rxe-dev#48',
     "libibverbs: Warning: couldn't load driver 'rxe': librxe-rdmav2.so: cannot open shared object file: No suc"
     'h file or directory',
     'rdma-no-userspace-driver'),
    ('ofiwg/libfabric#975',
     'librdmacm: Fatal: no RDMA devices found',
     'rdma-no-devices'),
    ('dsx-ai-factory/infra-controller#5251',
     "libibverbs: Warning: couldn't open config directory '/etc/libibverbs.d'.",
     'rdma-no-userspace-driver'),
    ('dsx-ai-factory/infra-controller#5251',
     'No IB devices found',
     'rdma-no-devices'),
    ('NVIDIA/nccl#1044',
     "libibverbs: Warning: couldn't load driver 'libipathverbs-rdmav25.so': libipathverbs-rdmav25.so: cannot op"
     'en shared object file: No such file or directory',
     'rdma-no-userspace-driver'),
    ('NVIDIA/gpu-monitoring-tools#141',
     'Error watching fields: This request is serviced by a module of DCGM that is not currently loaded',
     'dcgm-no-profiling'),
    ('NVIDIA/dcgm-exporter#22',
     '[[Profiling]] DcgmModuleProfiling failed to initialize. See the logs.',
     'dcgm-profiling'),
    ('NVIDIA/k8s-device-plugin#1614',
     '[2026-02-06 09:34:36.380 Control   261] User did not send valid credentials',
     'mps-pending-user'),
    ('NVIDIA/nvidia-container-toolkit#277',
     'Receive command failed, assuming client exit. Client process disconnected',
     'mps-server-exited'),
    ('NVIDIA/k8s-device-plugin#685',
     '[2024-04-29 11:22:10.441 Control    73] Server encountered a fatal exception. Shutting down',
     'mps-server-exited'),
    ('NVIDIA/k8s-device-plugin#685',
     'Legacy Server   425] Failed to start : invalid argument',
     'mps-legacy-server'),
    ('bottlerocket-os/bottlerocket#4673',
     'DriverError(CUDA_ERROR_MPS_CONNECTION_FAILED, "MPS client failed to connect to the MPS control daemon or '
     'the MPS server")',
     'mps-not-reached'),
    ('NVIDIA/DCGM#95',
     'unable to destroy compute instance id  0 from gpu  0 gpu instance id  3: in use by another client',
     'mig-instance-in-use'),
    ('Project-HAMi/HAMi#1044',
     'Failed to display compute instances: Insufficient Permissions',
     'mig-insufficient-permissions'),
    ('NVIDIA/gpu-operator#549',
     'Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: no runtime '
     'for "nvidia" is configured',
     'container-unknown-runtime'),
    ('NVIDIA/gpu-operator#492',
     '[83260.063553] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:',
     'pci-region-invalid'),
    ('NVIDIA/gpu-operator#492',
     'NVRM: BAR1 is 0M @ 0x0 (PCI:0000:14:00.0)',
     'pci-region-invalid'),
    ('NVIDIA/gpu-operator#492',
     '[83260.063557] nvidia: probe of 0000:14:00.0 failed with error -1',
     'probe-failed'),
    ('system76/firmware-open#66',
     'NVRM: The system BIOS may have misconfigured your GPU.',
     'pci-region-invalid'),
    ('system76/firmware-open#66',
     'NVRM: None of the NVIDIA devices were initialized.',
     'probe-failed'),
    ('Bumblebee-Project/Bumblebee#628',
     'NVRM: failed to copy vbios to system memory.',
     'vbios-unreadable'),
    ('NVIDIA/open-gpu-kernel-modules#270',
     '[drm:nv_drm_load [nvidia_drm]] *ERROR* [nvidia-drm] [GPU ID 0x00000100] Failed to allocate NvKmsKapiDevic'
     'e',
     'drm-no-device'),
    ('NVIDIA/open-gpu-kernel-modules#344',
     'nvidia: module verification failed: signature and/or required key missing - tainting kernel',
     'module-unsigned-taint'),
    ('hpcaitech/ColossalAI#4381',
     'Error 804: forward compatibility was attempted on non supported HW (Triggered internally at  /opt/conda/c'
     'onda-bld/pytorch_1659484809662/work/c10/cuda/CUDAFunctions.cpp:109.)',
     'cuda-forward-compatibility'),
    ('haotian-liu/LLaVA#683',
     'RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling '
     'NumCudaDevices() that might have already set an error? Error 802: system not yet initialized',
     'fabric-not-ready'),
    ('deepspeedai/DeepSpeed#5392',
     'Error 803: system has unsupported display driver / cuda driver combination',
     'cuda-forward-compatibility'),
    ('torch/cutorch#798',
     'THCudaCheck FAIL file= torch/extra/cutorch/lib/THC/THCGeneral.c line=70 error=30 : unknown error',
     'cuda-unknown-error'),
    ('kubernetes/kubernetes#97131',
     'Pod Allocate failed due to device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Un'
     'known desc = Unable to retrieve list of available devices: error creating nvml.Device 5: nvml: GPU is los'
     't, which is unexpected',
     'gpu-lost'),
    ('Project-HAMi/HAMi#596',
     'Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 1, Availabl'
     'e: 0, which is unexpected',
     'kubernetes-devices-unavailable'),
    ('openshift/instaslice-operator#140',
     'Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nv'
     'idia.com/mig-1g.5gb, which is unexpected',
     'kubernetes-devices-unavailable'),
    ('NVIDIA/k8s-device-plugin#231',
     'Unable to determine the device handle for GPU 0000:C1:00.0: GPU is lost.  Reboot the system to recover th'
     'is GPU',
     'gpu-lost'),
    ('NVIDIA/nccl-tests#166',
     'misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node1<57557>',
     'nccl-peer-closed'),
    ('NVIDIA/nccl#1647',
     'NCCL INFO Failed to open libibverbs.so[.1]',
     'nccl-no-verbs'),
    ('NVIDIA/cuda-samples#361',
     "nvcc fatal   : Unsupported gpu architecture 'compute_100'",
     'nvcc-architecture'),
    ('ggml-org/llama.cpp#13271',
     "nvcc fatal : Unsupported gpu architecture 'compute_120'",
     'nvcc-architecture'),
    ('NVIDIA/k8s-device-plugin#1134',
     'E0123 16:54:07.207904       1 factory.go:112] Incompatible strategy detected auto',
     'kubernetes-nvml'),
    ('NVIDIA/k8s-device-plugin#1552',
     'I1204 07:31:31.770000       1 main.go:381] No devices found. Waiting indefinitely.',
     'kubernetes-nvml'),
    ('NVIDIA/k8s-device-plugin#1220',
     'If this is a GPU node, did you configure the NVIDIA Container Toolkit?',
     'kubernetes-nvml'),
    ('NVIDIA/open-gpu-kernel-modules#259',
     'Unable to determine the device handle for GPU 0000:D8:00.0: Not Found',
     'gpu-not-started'),
    ('NVIDIA/open-gpu-kernel-modules#246',
     'Unable to determine the device handle for gpu 0000:01:00.0: Not Found',
     'gpu-not-started'),
    ('NVIDIA/nvidia-container-toolkit#69',
     'Unable to determine the device handle for GPU0000:65:00.0: Unknown Error',
     'gpu-lost'),
    ('AliyunContainerService/gpushare-scheduler-extender#80',
     'nvidia-container-cli: device error: unknown device id: no-gpu-has-10MiB-to-run',
     'kubernetes-gpushare'),
    ('AliyunContainerService/gpushare-scheduler-extender#120',
     'nvidia-container-cli: device error: no-gpu-has-3MiB-to-run: unknown device',
     'kubernetes-gpushare'),
    ('dkms-project/dkms#521',
     'dkms: autoinstall for kernel 6.8.0-45-generic was skipped since the kernel headers for this kernel do not seem to be installed',
     'kernel-headers-missing'),
    ('linux-surface/linux-surface#1884',
     'Building module(s)........................(bad exit status: 2)',
     'dkms-build-failed'),
    ('linux-surface/linux-surface#1219',
     '[    2.567912] Loading of unsigned module is rejected',
     'module-key-rejected'),
    ('NVIDIA/nvidia-container-toolkit#361',
     'dpkg: error processing package nvidia-kernel-dkms (--configure):',
     'dkms-build-failed'),
    ('pytorch/pytorch#58155',
     'RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution',
     'cuda-nvlink'),
    ('NVIDIA/nvidia-container-toolkit#289',
     'nvidia-container-cli: mount error: file creation failed: /var/lib/docker/overlay2/706b/merged/usr/lib/x86_64-linux-gnu/libn'
     'vidia-ml.so.1: file exists: unknown.',
     'container-library-in-image'),
    ('servo/ci-runners#57',
     'E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 2448 (unattended-upgr)',
     'apt-locked'),
    ('tinygrad/open-gpu-kernel-modules#20',
     'rmmod: ERROR: Module nvidia is in use by: nvidia_uvm nvidia_modeset',
     'module-in-use'),
    ('Bumblebee-Project/Bumblebee#1075',
     'modprobe: FATAL: Module nvidia_drm is in use.',
     'module-in-use'),
    ('elementary/terminal#757',
     'dpkg: error processing package nvidia-dkms-555 (--configure):',
     'dkms-build-failed'),
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
    told = [title for title, _ in lines]
    assert told[: told.index("source") + 1] == [
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
        read = any(one.startswith("http") for one in addresses(symptom))
        assert read or symptom.confidence != "confirmed", f"{symptom.key}: no source that can be read"
        for other in symptom.others:
            assert other.cause
            assert other.check
            assert other.cure, symptom.key


def test_fixes_name_blocks_and_fields_that_there_are() -> None:
    wrong = []
    checks = {check.id for check in all_checks()}
    for symptom in symptoms():
        for cure in (symptom.cure, *(other.cure for other in symptom.others)):
            for name, block in re.findall(r"\b([a-z_]+): (\{(?:[^{}]|\{[^{}]*\})*\})", cure):
                if name in BY_NAME and "..." not in block:
                    _, findings = convert(yaml.safe_load(block), BY_NAME[name].fragment, (name,))
                    wrong += [(symptom.key, one[1]) for one in findings]
            for words in re.findall(r"(?<![\w/.-])[a-z_]+(?:\.[a-z_]+)+(?![\w/.-])", cure):
                if words.split(".")[0] in BY_NAME and not fields.named(words) and words not in checks:
                    wrong.append((symptom.key, words))
    assert not wrong


def test_as_many_messages_are_known_beside_xids() -> None:
    assert sum(not symptom.xids for symptom in symptoms()) >= 150
    messages = [said for symptom in symptoms() if not symptom.xids for said in symptom.signatures]
    assert len(messages) >= 150
    assert len({number for symptom in symptoms() for number in symptom.xids}) >= 150
