"""Words of other tools, and of people, for values of a spec."""

# Words that people use for true and false.
ON, OFF = ("enabled", "unlimited", "if-needed", "on", "yes"), ("disabled", "never", "off", "no")
YAML_BOOLEANS = " (YAML reads yes, no, on and off as true and false)"
BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
# Words that people use where true or false is asked for.
SWITCHES = {
    **BOOLEANS,
    **dict.fromkeys(("y", "1", "enabled", "enable", "present", "active"), True),
    **dict.fromkeys(("n", "0", "disabled", "disable", "absent", "never", "none"), False),
}
# Words of other tools, and of people, for a value.
OTHER_WORDS = {
    "autodetect": "nvml",  # Slurm's AutoDetect=nvml
    "ib": "infiniband",
    "ethernet": "roce",
    "exclusive": "exclusive_process",
    "ofed": "doca-ofed",
    "mlnxofed": "doca-ofed",  # its successor: https://docs.nvidia.com/doca/sdk/mlnx_ofed-to-doca-ofed-transition-guide/index.html
    "mofed": "doca-ofed",
    "pt": "passthrough",  # Linux's iommu=pt
    "always": "if-needed",
    "allow": "if-needed",
    "allowed": "if-needed",
    "permitted": "if-needed",
    "forbidden": "never",
    "closed": "proprietary",
    "infinity": "unlimited",  # systemd's LimitMEMLOCK=infinity
    "infinite": "unlimited",
    "opensource": "open",
    "closedsource": "proprietary",
    "afinet": "ipv4",  # NCCL's NCCL_IB_ADDR_FAMILY
    "afinet6": "ipv6",
    "none": "nothing",
    "1h": "hourly",
    "1d": "daily",
    "15m": "15min",
}
# Words of other tools for a block whose software is to be removed: Ansible's and Puppet's.
GONE = ("absent", "purged", "removed")
REMOVES = "nvidia_absent: {} removes NVIDIA's software"
# Words of other tools for a block that is there.
THERE = (*ON, "present", "installed", "blacklist", "blacklisted", "managed", "enable")

# Names that other tools, and people, use for a block, with what to write here.
EXAMPLES: dict[str, str] = {
    "cuda": 'cuda_toolkit: {versions: ["12.8"]} (the toolkit) or nvidia_driver: {cuda: "12.8"} (a driver that runs it)',
    "driver": 'nvidia_driver: {version: "580"}',
    "nvidia": 'nvidia_driver: {version: "580"}',
    "drivers": 'nvidia_driver: {version: "580"}',
    "nvlink": "fabric_manager: {}",
    "nvswitch": "fabric_manager: {}",
    "fabricmanager": "fabric_manager: {}",
    "docker": "container_toolkit: {runtimes: [docker]}",
    "containerd": "container_toolkit: {runtimes: [containerd]}",
    "crio": "container_toolkit: {runtimes: [crio]}",
    "cri-o": "container_toolkit: {runtimes: [crio]}",
    "podman": "container_toolkit: {runtimes: [podman]}",
    "toolkit": "container_toolkit: {}",
    "mig_manager": "mig: {}",
    "gpu_operator": "kubernetes: {gpu_operator: {}}",
    "nvidia_container_toolkit": "container_toolkit: {}",
    "infiniband": "rdma: {fabric: infiniband}",
    "ib": "rdma: {fabric: infiniband}",
    "ofed": "rdma: {stack: doca-ofed}",
    "mofed": "rdma: {stack: doca-ofed}",
    "mlnx_ofed": "rdma: {stack: doca-ofed}",
    "doca_ofed": "rdma: {stack: doca-ofed}",
    "peermem": "gpudirect_rdma: {}",
    "gpudirect": "gpudirect_rdma: {}",
    "gdr": "gpudirect_rdma: {}",
    "gpudirect_storage": "gds: {}",
    "nvidia_fs": "gds: {}",
    "cufile": "gds: {}",
    "mpi": "hpc: {}",
    "openmpi": "hpc: {}",
    "ucx": "hpc: {}",
    "hpcx": 'hpc: {hpcx: {url: "https://.../hpcx-v....tbz", sha256: "..."}}',
    "enroot": "slurm: {containers: {enroot: true}}",
    "pyxis": "slurm: {containers: {enroot: true, pyxis: true}}",
    "gres": "slurm: {}",
    "sharp": "rdma: {nccl: {sharp: true}}",
    "instance_store": "scratch: {}",
    "local_disks": "scratch: {}",
    "raid0": "scratch: {}",
    "persistenced": "persistence: {}",
    "persistence_mode": "persistence: {}",
    "dcgm_exporter": "dcgm: {}",
    "k8s": "kubernetes: {}",
    "device_plugin": "kubernetes: {}",
    "vfio": "passthrough: {}",
    "pci_passthrough": "passthrough: {}",
    "vgpu": "vgpu_guest: {}",
    "secure_boot": "nvidia_driver: {signing: {key_file: ..., certificate_file: ...}}",
    "secureboot": "nvidia_driver: {signing: {key_file: ..., certificate_file: ...}}",
    "time_slicing": "kubernetes: {device_plugin: {sharing: {time_slicing: {...}}}}",
    "timeslicing": "kubernetes: {device_plugin: {sharing: {time_slicing: {...}}}}",
    "model": "gpu: {model: H100-SXM5-80GB, count: 8}",
    "count": "gpu: {model: H100-SXM5-80GB, count: 8}",
    "gpus": "gpu: {model: H100-SXM5-80GB, count: 8}",
}

# Names of what gpuprov does not manage, and `gpuprov explain` knows.
OUTSIDE = ("bluefield", "elastic-gpu", "jetson", "orionx", "qgpu", "tegra", "vcuda", "volcano")


def find_example(key: str) -> str:
    """Return what to write for another name of a block; empty if it is none."""
    plain = key.casefold()
    squeezed = {name.replace("_", ""): example for name, example in EXAMPLES.items()}  # devicePlugin
    return EXAMPLES.get(plain.replace("-", "_")) or EXAMPLES.get(plain) or squeezed.get(plain, "")
