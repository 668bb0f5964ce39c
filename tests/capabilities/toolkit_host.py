"""A container host that is right in everything, told as the text its probes print."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuprov.catalog.container_toolkit import PACKAGES
from gpuprov.facts.probes.base import Output

DATA = Path(__file__).parents[1] / "engines" / "data"
VERSION, OLD = "1.20.1", "1.17.8"
DRIVER = "535.261.03"
DAEMON: dict[str, Any] = {
    "exec-opts": ["native.cgroupdriver=systemd"],
    "features": {"buildkit": True},
    "log-opts": {"max-size": "10m"},
    "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}},
}
"""daemon.json as a site has it, and NVIDIA's runtime in it."""
MAIN = """\
imports = ["/etc/containerd/conf.d/*.toml"]
# see the site's wiki
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.example/pause:3.9"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
"""
DROP_IN = MAIN.partition("wiki\n")[2] + (
    '  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\n'
    '    runtime_type = "io.containerd.runc.v2"\n'
    '    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]\n'
    '      BinaryName = "/usr/bin/nvidia-container-runtime"\n      SystemdCgroup = true\n'
)
CRIO = '[crio.runtime]\ncgroup_manager = "systemd"\n[crio.runtime.runtimes.runc]\nruntime_type = "oci"\n'
CRIO_DROP_IN = (
    '[crio.runtime.runtimes.nvidia]\nruntime_path = "/usr/bin/nvidia-container-runtime"\nruntime_type = "oci"\n'
)
CLOCK = "@clock 2000000000.5 100000.5\n"
STARTED, EARLIER, LATER = (
    50_000_000_000,
    1_999_940_000.0,
    1_999_960_000.0,
)  # microseconds after the boot; before and after that


def indented(text: str) -> str:
    return "".join(f" {line}\n" for line in text.splitlines())


def unit(active: str) -> str:
    return f"@unit {active}|enabled|{STARTED if active == 'active' else 0}\n"


def docker(
    config: object = DAEMON,
    info: dict[str, Any] | str | None = None,
    version: str = "20.10.24",
    active: str = "active",
    *,
    answers: bool = True,
) -> str:
    """docker with this daemon.json (text: as it stands); `info` is what docker info says beside the usual (text: all of
    it)."""
    text = config if isinstance(config, str) else json.dumps(config, indent=2)
    usual = {"Runtimes": {"runc": {}, "nvidia": {}}, "DefaultRuntime": "runc", "CgroupDriver": "systemd"}
    said = info if isinstance(info, str) else json.dumps({**usual, **(info or {})})
    head = f"@engine docker\n@version Docker version {version}\n{unit(active)}"
    file = f"@file /etc/docker/daemon.json {EARLIER}\n{indented(text)}"
    return head + file + (f"@live\n {said}\n" if answers else "")


def containerd(main: str = MAIN, drop_in: str = DROP_IN, dump: str | None = "", version: str = "1.6.20",
               active: str = "active",
               changed: float = EARLIER) -> str:  # fmt: skip
    """containerd; its dump is the drop-in file's content, where no other is given; None: it gives none."""
    head = f"@engine containerd\n@version containerd github.com/containerd/containerd {version}\n{unit(active)}"
    told = "" if dump is None else "@dump\n" + indented(dump or drop_in or main)
    other = f"@file /etc/containerd/conf.d/99-nvidia.toml {changed}\n{indented(drop_in)}" if drop_in else ""
    return f"{head}{told}@file /etc/containerd/config.toml {EARLIER}\n{indented(main)}{other}"


def crio(drop_in: str = CRIO_DROP_IN, live: str | None = "", active: str = "active") -> str:
    """cri-o; its status is its files' content, where no other is given."""
    files = f"@file /etc/crio/crio.conf {EARLIER}\n{indented(CRIO)}"
    files += f"@file /etc/crio/crio.conf.d/99-nvidia.toml {EARLIER}\n{indented(drop_in)}"
    said = "" if live is None else "@live\n" + indented(live or CRIO + drop_in)
    return f"@engine crio\n@version Version: 1.30.4\n{unit(active)}{files}{said}"


def k3s(
    name: str = "k3s",
    *,
    version: str = "1.33.5",
    runtime: str = "/usr/bin/nvidia-container-runtime",
    default: str = "",
    active: str = "active",
    settings: Mapping[str, str] | None = None,
    template: str = "",
    more: str = "",
) -> str:
    """k3s or RKE2, with what it wrote for containerd when it started; `settings`: its own files by name."""
    plugin = "'io.containerd.cri.v1.runtime'" if version >= "1.32" else '"io.containerd.grpc.v1.cri"'
    text = f"version = {3 if version >= '1.32' else 2}\n"
    text += f'[plugins.{plugin}.containerd]\n  default_runtime_name = "{default}"\n' if default else ""
    text += f'[plugins.{plugin}.containerd.runtimes.runc]\n  runtime_type = "io.containerd.runc.v2"\n'
    text += f'[plugins.{plugin}.containerd.runtimes.nvidia.options]\n  BinaryName = "{runtime}"\n' if runtime else ""
    folder = f"/var/lib/rancher/{name}/agent/etc/containerd"
    unit_name = "k3s.service" if name == "k3s" else "rke2-agent.service"
    head = (
        f"@engine {name}\n@version {name} version v{version}+{name}1 (0a1b2c3d)\n@service "
        f"{unit_name}\n{unit(active)}{more}"
    )
    files = {f"/etc/rancher/{name}/{path}": line for path, line in (settings or {}).items()}
    files |= {f"{folder}/config-v3.toml.tmpl": template} if template else {}
    files |= {f"{folder}/config.toml": text}
    listed = "".join(f"@file {path} {EARLIER}\n{indented(line)}" for path, line in files.items())
    return f"{head}{listed}@program /usr/bin/nvidia-container-runtime\n"


CRI_2 = '[plugins."io.containerd.grpc.v1.cri".containerd'
BARE = f"""\
# Use config version 2 to enable new configuration fields.
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
  {CRI_2}]
    snapshotter = "${{SNAPSHOTTER}}"
    # default_runtime_name is the default runtime name to use.
    default_runtime_name = "${{RUNTIME}}"
    {CRI_2}.runtimes.runc]
      runtime_type = "${{RUNTIME_TYPE}}"
"""
"""MicroK8s' template as it comes, in short."""
FILLED = (
    BARE.replace('v1.cri"]\n', 'v1.cri"]\nenable_cdi = true\n')
    + """
["plugins"."io.containerd.grpc.v1.cri"."containerd"."runtimes"."nvidia"]
runtime_type = "io.containerd.runc.v2"

["plugins"."io.containerd.grpc.v1.cri"."containerd"."runtimes"."nvidia"."options"]
BinaryName = "/usr/bin/nvidia-container-runtime"
"""
)


def microk8s(template: str = FILLED, written: str = "", version: str = "2.1.3", active: str = "active") -> str:
    """MicroK8s; what it wrote is its template, where no other is given."""
    args = "/var/snap/microk8s/current/args"
    head = f"@engine microk8s\n@version containerd github.com/containerd/containerd v{version}\n"
    head += f"@service snap.microk8s.daemon-containerd.service\n{unit(active)}"
    filled = (written or template).replace("${RUNTIME}", "runc")
    head += f"@file {args}/containerd-template.toml {EARLIER}\n{indented(template)}"
    return head + f"@file {args}/containerd.toml {EARLIER}\n{indented(filled)}"


def podman(version: str = "4.3.1") -> str:
    return f"@engine podman\n@version podman version {version}\n"


def packages(version: str = VERSION, state: str = "hi ", **others: str) -> str:
    """dpkg-query's lines of the four packages; `others` (underscores for dashes) have a version of their own, "" for
    none."""
    versions = dict.fromkeys(PACKAGES, version) | {name.replace("_", "-"): other for name, other in others.items()}
    return "".join(f"{state}|{name}|{v}-1|nvidia-container-toolkit\n" for name, v in versions.items() if v)


def index(*versions: str, without: str = "") -> str:
    """apt-cache madison's lines."""
    return "".join(
        f"{name} | {version}-1 | https://site.example/mirror  Packages\n"
        for name in PACKAGES for version in versions or (VERSION, OLD) if name != without
    )  # fmt: skip


def toolkit(
    version: str = VERSION,
    mode: str = "auto",
    *more: str,
    config: str = "",
    flags: str = "no-additional-gids-for-device-nodes",
) -> str:
    """nvidia-ctk, its configuration, device files with their links; `more` are further lines."""
    lines = [f"version NVIDIA Container Toolkit CLI version {version}"] if version else []
    lines += (config or f' [nvidia-container-runtime]\n mode = "{mode}"').splitlines() + [
        "linked /dev/nvidia0",
        "linked /dev/nvidiactl",
    ]
    lines += [f"flags {flags}"] * bool(flags)
    return "\n".join([*lines, *more]) + "\n"


def cdi(
    *names: str,
    path: str = "/var/run/cdi/nvidia.yaml",
    version: str = DRIVER,
    uvm: bool = True,
    of: str = "0.5.0",
    fields: tuple[str, ...] = (),
) -> str:
    devices = names or ("0", "GPU-3c1f6d5e")
    listed = "".join(f'    - name: "{name}"\n' for name in (*devices, "all"))
    later = "".join(f"@field {field}\n" for field in fields)
    return (
        f"@spec {path}\ncdiVersion: {of}\nkind: "
        f"nvidia.com/gpu\n{listed}{later}{'@uvm' if uvm else ''}\nlibcuda.so.{version}\n"
    )


GPU = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-3c1f6d5e)\n0, Disabled\n"
MIG = (
    "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-3c1f6d5e)\n"
    "  MIG 3g.40gb     Device  0: (UUID: MIG-a)\n  MIG 3g.40gb     Device  1: (UUID: MIG-b)\n0, Enabled\n"
)
USER = "@user gpuuser|/home/gpuuser|1|1|1\n" + indented(json.dumps({"runtimes": DAEMON["runtimes"]}))
PROBES: dict[str, Output | str] = {
    "container_engines": CLOCK + docker() + containerd() + crio() + podman(),
    "container_toolkit": toolkit(),
    "cdi_specifications": cdi(),
    "cuda_images": "off\n",
    "cuda_in_containers": "off\n",
    "gpu_devices": GPU,
    "rootless_users": USER,
}
"""The probes that are the toolkit's own."""
GOOD: dict[str, Output | str] = {**PROBES, "packages": packages(), "package_index": index()}
"""And those that it shares."""
