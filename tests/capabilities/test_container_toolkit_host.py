"""Real dockerd and containerd of Debian on a simulated GPU host, NVIDIA's own nvidia-ctk: the runtime comes, all else
stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuprov.rules import engines
from gpuprov.simulate import hosts, inventory
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.host import SimulatedHost
from tests.engines.cluster_programs import K3S

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
INSTALL = """
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -q --no-install-recommends docker.io podman nvidia-kernel-dkms nvidia-smi libcuda1 > /dev/null 2>&1
"""
DAEMON = {
    "exec-opts": ["native.cgroupdriver=cgroupfs"],
    "features": {"buildkit": True},
    "log-opts": {"max-size": "10m", "max-file": "3"},
    "insecure-registries": ["registry.example:5000"],
}
FOREIGN = """version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.example/pause:3.9"
"""
# What nvidia.ko lists for the devices of MIG instances; a container has no module that would.
MINORS = """mkdir -p /proc/driver/nvidia-caps /dev/nvidia-caps
n=2; { echo config 1; echo monitor 2; for g in 0 1; do for i in $(seq 0 14); do n=$((n+1)); echo "gpu$g/gi$i/access $n"
  for c in 0 1 2 3 4 5 6 7; do n=$((n+1)); echo "gpu$g/gi$i/ci$c/access $n"; done; done; done
    } > /proc/driver/nvidia-caps/mig-minors
for i in $(seq 1 $n); do ln -sf /dev/null /dev/nvidia-caps/nvidia-cap$i; done
"""


@pytest.fixture(scope="module")
def host() -> Iterator[SimulatedHost]:
    name = f"e2e-ctk-{os.getpid()}"
    made = hosts.up(name, Description(gpu=Gpus(model="H100-SXM5-80GB", count=2), container_toolkit=True))
    hosts.run(name, INSTALL)
    hosts.reboot(name)
    yield made
    hosts.down(name)


def gpuprov(
    tmp_path: Path, host: SimulatedHost, verb: str, spec: dict[str, Any], *options: str
) -> subprocess.CompletedProcess[str]:
    wanted, way = tmp_path / "spec.yaml", tmp_path / "hosts.yaml"
    wanted.write_text(
        yaml.safe_dump({"all": {"vars": {"gpuprov": {"container_toolkit": spec}}, "hosts": {host.name: {}}}})
    )
    way.write_text(inventory.text([host]))
    command = [sys.executable, "-m", "gpuprov", verb, *options, str(wanted), str(way)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def apply(tmp_path: Path, host: SimulatedHost, **spec: Any) -> str:
    told = gpuprov(tmp_path, host, "apply", spec, "--yes", "--log-dir", str(tmp_path / "log"))
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout + told.stderr


def dump(host: SimulatedHost) -> dict[str, Any]:
    return tomllib.loads(hosts.run(host.name, "containerd config dump 2>/dev/null"))


def test_a_site_keeps_all_that_is_its_own(host: SimulatedHost, tmp_path: Path) -> None:
    name = host.name
    hosts.run(
        name, f"mkdir -p /etc/docker; echo '{json.dumps(DAEMON)}' > /etc/docker/daemon.json; systemctl restart docker"
    )
    hosts.run(name, "sed -i '1i # see the wiki of this site' /etc/containerd/config.toml; systemctl restart containerd")
    before, text = dump(host), hosts.run(name, "cat /etc/containerd/config.toml")
    run = "systemctl show -p InvocationID docker.service"
    docker_was = hosts.run(name, run)
    spec = {"runtimes": ["docker", "containerd", "podman"], "default_runtime": True}
    assert "1 changed" in apply(tmp_path, host, **spec)
    info = json.loads(hosts.run(name, "docker info --format '{{json .}}'"))
    assert info["Runtimes"]["nvidia"]["path"] == "nvidia-container-runtime"
    assert info["DefaultRuntime"] == "nvidia"
    daemon = json.loads(hosts.run(name, "cat /etc/docker/daemon.json"))
    assert engines.lost("docker", DAEMON, daemon) == []
    assert set(daemon) == {*DAEMON, "runtimes", "default-runtime"}
    assert hosts.run(name, run) == docker_was, "docker was restarted, though it takes this by reload"
    assert engines.lost("containerd", before, dump(host)) == []
    now = hosts.run(name, "cat /etc/containerd/config.toml")
    assert now == f'imports = ["/etc/containerd/conf.d/*.toml"]\n{text}'
    assert "GPU-" in hosts.run(name, "nvidia-ctk cdi list 2>/dev/null")
    assert "1 unchanged" in apply(tmp_path, host, **spec)
    hosts.reboot(name)
    assert gpuprov(tmp_path, host, "verify", spec).returncode == 0, "after a reboot"
    assert "1 changed" in apply(tmp_path, host, runtimes=["docker", "containerd", "podman"])
    assert hosts.run(name, "docker info --format '{{.DefaultRuntime}}'") == "runc\n"


def test_settings_that_cannot_survive_are_refused_and_put_back(host: SimulatedHost, tmp_path: Path) -> None:
    place = "/etc/containerd/conf.d/zz-site.toml"
    hosts.run(
        host.name, f"rm -f /etc/containerd/conf.d/*; cat > {place} <<'EOF'\n{FOREIGN}EOF\nsystemctl restart containerd"
    )
    main = hosts.run(host.name, "cat /etc/containerd/config.toml")
    told = gpuprov(tmp_path, host, "apply", {"runtimes": ["containerd"]}, "--yes", "--log-dir", str(tmp_path / "log"))
    assert told.returncode == 3, told.stdout
    assert "it is as it was" in told.stdout + told.stderr
    assert hosts.run(host.name, "cat /etc/containerd/config.toml; ls /etc/containerd/conf.d") == f"{main}zz-site.toml\n"
    assert hosts.run(host.name, "systemctl is-active containerd") == "active\n"
    hosts.run(host.name, f"rm {place}; systemctl restart containerd")


def test_k3s_is_restarted_once_by_a_stand_in_that_writes_what_k3s_writes(host: SimulatedHost, tmp_path: Path) -> None:
    name, unit = host.name, "/etc/systemd/system/k3s.service"
    hosts.run(name, f"cat > /usr/local/bin/k3s <<'EOF'\n{K3S}EOF\nchmod 755 /usr/local/bin/k3s")
    hosts.run(name, f"printf '[Service]\\nType=exec\\nExecStart=/usr/local/bin/k3s server\\n' > {unit}")
    hosts.run(name, f"printf '[Install]\\nWantedBy=multi-user.target\\n' >> {unit}; systemctl enable --now k3s")
    spec = {"runtimes": ["k3s"], "default_runtime": True}
    assert "k3s.service" in gpuprov(tmp_path, host, "plan", spec).stdout, "a restart is announced"
    assert "1 changed" in apply(tmp_path, host, **spec)
    written = tomllib.loads(hosts.run(name, "cat /var/lib/rancher/k3s/agent/etc/containerd/config.toml"))
    section = written["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]
    assert (section["default_runtime_name"], "nvidia" in section["runtimes"]) == ("nvidia", True)
    assert "1 unchanged" in apply(tmp_path, host, **spec)
    hosts.run(name, f"systemctl disable --now k3s; rm -rf {unit} /usr/local/bin/k3s /etc/rancher /var/lib/rancher")


def test_an_old_release_and_a_mig_change(host: SimulatedHost, tmp_path: Path) -> None:
    spec = {
        "version": "1.17.8",
        "mode": "cdi",
        "runtimes": ["docker"],
        "cdi_directory": "/etc/cdi",
        "rootless": ["gpuadmin"],
    }
    apply(tmp_path, host, **spec)
    shown = hosts.run(host.name, "dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\\n' '*nvidia-container*'")
    assert sorted(shown.split("\n"))[-4:] == [
        "hi  libnvidia-container-tools 1.17.8-1",
        "hi  libnvidia-container1 1.17.8-1",
        "hi  nvidia-container-toolkit 1.17.8-1",
        "hi  nvidia-container-toolkit-base 1.17.8-1",
    ]
    assert (
        hosts.run(host.name, "systemctl is-enabled gpuprov-cdi-refresh.path gpuprov-cdi-refresh.service").split()
        == ["enabled"] * 2
    )
    own = json.loads(hosts.run(host.name, "cat /home/gpuadmin/.config/docker/daemon.json"))
    assert own["runtimes"]["nvidia"]["path"] == "nvidia-container-runtime"
    assert hosts.run(host.name, "stat -c %U /home/gpuadmin/.config/docker/daemon.json") == "gpuadmin\n"
    hosts.run(host.name, MINORS + "nvidia-smi -i 0 -mig 1; nvidia-smi mig -i 0 -cgi 3g.40gb,1g.10gb -C")
    stale = gpuprov(tmp_path, host, "verify", spec)
    assert stale.returncode == 1
    assert "not in it: 0:0 0:1 MIG-" in " ".join(stale.stdout.split())
    assert "1 changed" in apply(tmp_path, host, **spec)
    listed = hosts.run(host.name, "nvidia-ctk cdi list 2>/dev/null").split()
    assert {"nvidia.com/gpu=0:0", "nvidia.com/gpu=0:1", "nvidia.com/gpu=1"} <= set(listed)
