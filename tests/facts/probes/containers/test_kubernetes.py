"""A node of Kubernetes: what is printed on a host, with stand-ins of its programs, as facts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.containers import kubernetes
from gpuprov.facts.probes.containers.kubernetes import Device, Node, Service
from tests.facts.probes import run_script
from tests.rows import run_each

SYSTEMCTL = """for u do :; done
case $u in
kubelet.service) printf 'LoadState=loaded\\nActiveState=active\\nUnitFileState=enabled\\n' ;;
k3s.service) printf 'LoadState=loaded\\nActiveState=failed\\nUnitFileState=\\n' ;;
*) printf 'LoadState=not-found\\nActiveState=inactive\\nUnitFileState=\\n' ;;
esac"""
ANSWER = """echo "$@" >> "$0.log"; echo "Warning: this is deprecated" >&2
echo '{"metadata": {"labels": {"gpu": "on"}}, "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "64"}}}'"""
REFUSED = """echo 'error: You must be logged in to the server (Unauthorized)' >&2; exit 1"""
SUBJECT = "echo 'subject=O = system:nodes, CN = system:node:gpu-1.example.com'"
CONF = (
    "users:\n- name: default-auth\n  user:\n    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem\n"
)


def read(root: Path, **programs: str) -> Node:
    """The probe's answer on a host whose files lie below `root`, with these programs before the machine's own."""
    folder = root / "bin"
    folder.mkdir(exist_ok=True)
    for name in ("sort", "sed", "tr", "head", "cat", "grep", "uname", "timeout"):
        if not (folder / name).exists():
            os.symlink(f"/usr/bin/{name}", folder / name)
    script = kubernetes.NODE.script
    for path in ("/etc/kubernetes", "/etc/gpuprov", "/var/lib/rancher", "/usr/local", "/run/nvidia", "/proc/"):
        script = script.replace(path, f"{root}{path}")
    mounts = root / "proc/self/mounts"
    mounts.parent.mkdir(parents=True, exist_ok=True)
    mounts.touch()
    return kubernetes.parse_node(run_script(script, root, programs, path="/nowhere"))


def joined(root: Path) -> Path:
    path = root / "etc/kubernetes/kubelet.conf"
    path.parent.mkdir(parents=True)
    path.write_text(CONF, encoding="utf-8")
    return path


def test_a_node_that_answers(tmp_path: Path) -> None:
    path = joined(tmp_path)
    found = read(tmp_path, systemctl=SYSTEMCTL, kubectl=ANSWER, openssl=SUBJECT)
    assert found.services == (Service("kubelet.service", "active", "enabled"), Service("k3s.service", "failed", ""))
    assert (found.name, found.kubeconfig) == ("gpu-1.example.com", str(path))
    assert (found.labels, found.allocatable) == ({"gpu": "on"}, {"nvidia.com/gpu": "8", "cpu": "64"})
    assert (found.unasked, found.complaint) == ("", "")
    asked = (tmp_path / "bin/kubectl.log").read_text(encoding="utf-8")
    assert asked == f"--kubeconfig={path} --request-timeout=4s get --raw /api/v1/nodes/gpu-1.example.com\n"


SLICES = """case $* in
*resourceslices*) echo '{"items": [{"spec": {"driver": "gpu.nvidia.com", "pool": {"generation": 2, "resourceSliceCount": 1},
  "devices": [{"name": "gpu-0", "attributes": {"type": {"string": "gpu"}, "uuid": {"string": "GPU-0"}}}]}},
  {"spec": {"driver": "gpu.nvidia.com", "pool": {"generation": 1, "resourceSliceCount": 1}, "devices": []}}]}' ;;
*) echo '{"metadata": {}, "status": {"nodeInfo": {"kubeletVersion": "v1.34.2"}}}' ;;
esac; echo "$@" >> "$0.log"; :"""


def test_slices_are_asked_for_where_dra_is_rendered(tmp_path: Path) -> None:
    joined(tmp_path)
    first = read(tmp_path, systemctl=SYSTEMCTL, kubectl=SLICES, openssl=SUBJECT)
    assert (first.slices, first.kubelet) == (None, "v1.34.2")
    values = tmp_path / "etc/gpuprov/kubernetes/dra-driver-values.yaml"
    values.parent.mkdir(parents=True)
    values.touch()
    found = read(tmp_path, systemctl=SYSTEMCTL, kubectl=SLICES, openssl=SUBJECT)
    assert (found.slices, found.slices_complaint) == ((Device("gpu-0", "gpu", "GPU-0"),), "")
    log = (tmp_path / "bin/kubectl.log").read_text(encoding="utf-8").splitlines()
    assert log[-1].endswith("resourceslices?fieldSelector=spec.nodeName%3Dgpu-1.example.com")
    assert len(log) == 3
    refused = read(tmp_path, systemctl=SYSTEMCTL, kubectl=REFUSED, openssl=SUBJECT)
    assert (refused.slices, refused.slices_complaint) == (None, refused.complaint)


def test_a_node_without_a_certificate_has_the_hosts_name(tmp_path: Path) -> None:
    joined(tmp_path)
    found = read(tmp_path, systemctl=SYSTEMCTL, kubectl=REFUSED, openssl="exit 1", uname="echo GPU-1")
    assert found.name == "gpu-1"
    assert found.labels is None
    assert found.complaint == "error: You must be logged in to the server (Unauthorized)"


def test_k3s_has_credentials_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "var/lib/rancher/k3s/agent/kubelet.kubeconfig"
    path.parent.mkdir(parents=True)
    path.write_text(CONF, encoding="utf-8")
    found = read(tmp_path, systemctl=SYSTEMCTL, openssl=SUBJECT)
    assert found.kubeconfig == str(path)
    assert found.unasked == "kubectl is not installed on this host"


def test_what_a_cluster_has_put_on_the_host(tmp_path: Path) -> None:
    toolkit = tmp_path / "usr/local/nvidia/toolkit/nvidia-container-runtime"
    toolkit.parent.mkdir(parents=True)
    toolkit.write_text("#!/bin/sh\n", encoding="utf-8")
    toolkit.chmod(0o755)
    for pid, name in {
        "7": "nvidia-mig-mana",
        "8": "nvidia-device-p",
        "9": "bash",
        "10": "nvidia-device-p",
        "11": kubernetes.GPUSHARE,
    }.items():
        (tmp_path / "proc" / pid).mkdir(parents=True)
        (tmp_path / "proc" / pid / "comm").write_text(f"{name}\n", encoding="utf-8")
        owner = 1000 if name == "gpushare-device" else 0
        (tmp_path / "proc" / pid / "status").write_text(f"Name:\t{name}\nUid:\t{owner}\t0\t0\t0\n", encoding="utf-8")
    (tmp_path / "proc/self").mkdir()
    mount = f"overlay {tmp_path}/run/nvidia/driver overlay rw 0 0\n"
    (tmp_path / "proc/self/mounts").write_text(f"proc /proc proc rw 0 0\n{mount}", encoding="utf-8")
    found = read(tmp_path, systemctl=SYSTEMCTL)
    assert found.managers == ("driver", "toolkit", "nvidia-device-p", "nvidia-mig-mana")
    assert found.unasked.startswith("no credentials of a kubelet on this host")


def test_a_host_without(tmp_path: Path) -> None:
    assert read(tmp_path, systemctl="exit 1") == Node()


@run_each("answer", ["[]", "{}", '{"metadata": {"labels": 3}}', "null", ""])
def test_an_answer_that_is_no_node(answer: str) -> None:
    found = kubernetes.parse_node(Output(f"kubeconfig|/c\nname|n\nkubectl|/k\n@node\n{answer}\n"))
    assert found.labels is None or found.allocatable is None
    assert found.complaint


def test_files_are_read_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: 1\n\nb: |\n  x\n", encoding="utf-8")
    (tmp_path / "b.yaml").write_text("@file c.yaml", encoding="utf-8")
    script = kubernetes.FILES.script.replace(kubernetes.DIRECTORY, str(tmp_path))
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False, timeout=20)
    found = kubernetes.parse_files(Output(done.stdout))
    assert {name: text.rstrip() for name, text in found.items()} == {
        "a.yaml": "a: 1\n\nb: |\n  x",
        "b.yaml": "@file c.yaml",
    }
