"""--drain kubernetes: what is asked of the cluster. kubectl is a stand-in: it keeps one node in files, and knows no other verb."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import here

# Labels of a node of the GPU operator: https://github.com/NVIDIA/k8s-driver-manager
OPERANDS = (
    "container-toolkit",
    "dcgm",
    "dcgm-exporter",
    "device-plugin",
    "gpu-feature-discovery",
    "operator-validator",
)
LABELS = {
    "kubernetes.io/hostname": "gpu1",
    "nvidia.com/gpu.deploy.driver": "true",
    "nvidia.com/gpu.deploy.mig-manager": "false",
}
LABELS |= {f"nvidia.com/gpu.deploy.{name}": "true" for name in OPERANDS}
PAUSED = "paused-for-driver-upgrade"
KUBECTL = """# A stand-in for kubectl: the node gpu1 is the files labels, note, cordoned and pods beside it.
cd {folder}; echo "$*" >> asked
case "$*" in
"get node gpu1 --show-labels"*) echo "gpu1 Ready <none> 1d v1.31.0 $(paste -sd, labels)" ;;
*annotations*) cat note 2>/dev/null || true ;;
*unschedulable*) cat cordoned 2>/dev/null || true ;;
"annotate node gpu1 gpuprov/paused-") rm -f note ;;
"annotate --overwrite node gpu1 gpuprov/paused="*) echo "${{5#*=}}" > note ;;
"cordon gpu1") echo true > cordoned; echo "node/gpu1 cordoned" ;;
"uncordon gpu1") rm -f cordoned; echo "node/gpu1 uncordoned" ;;
"label --overwrite node gpu1 "*) sed -i "s,^${{5%%=*}}=.*,$5," labels
  grep -q 'device-plugin=true' labels || [ -e stuck ] || : > pods ;;
"drain gpu1 --ignore-daemonsets"*) [ ! -e refuses ] || {{ echo 'cannot delete Pods with local storage' >&2; exit 1; }} ;;
"get pods --all-namespaces --field-selector spec.nodeName=gpu1 --no-headers") cat pods ;;
*) echo "error: nodes \"$3\" not found" >&2; exit 1 ;;
esac
"""


def cluster(folder: Path, labels: dict[str, str]) -> None:
    here.program(folder, "kubectl", KUBECTL.format(folder=folder))
    (folder / "labels").write_text("".join(f"{key}={value}\n" for key, value in labels.items()))
    (folder / "pods").write_text(
        "gpu-operator nvidia-device-plugin-daemonset-x 1/1 Running 0 1d\nkube-system cilium-1 1/1 Running 0 1d\n"
    )
    (folder / "asked").touch()


PROGRAM = """
import sys
from gpuprov.onhost import kubernetes_node as cluster
try:
    action, node, *options = sys.argv[1:]
    told = cluster.pause(node, options) if action == "pause" else "put back" * cluster.resume(node)
    print(told, end="")
except cluster.Failed as error:
    sys.exit(str(error))
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "GPUPROV_PATIENCE": "0"}
    argv = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)


def node(folder: Path) -> dict[str, str]:
    return dict(line.split("=") for line in (folder / "labels").read_text().splitlines())


def test_operands_leave_and_come_back(tmp_path: Path) -> None:
    cluster(tmp_path, LABELS)
    done = run(tmp_path, "pause", "gpu1", "--timeout=20m")
    assert (done.returncode, done.stderr) == (0, "")
    assert {key.rpartition(".")[2] for key, value in node(tmp_path).items() if value == PAUSED} == set(OPERANDS)
    assert node(tmp_path)["nvidia.com/gpu.deploy.mig-manager"] == "false"
    assert node(tmp_path)["nvidia.com/gpu.deploy.driver"] == "true"
    assert (tmp_path / "cordoned").exists()
    asked = (tmp_path / "asked").read_text()
    assert "drain gpu1 --ignore-daemonsets --timeout=20m" in asked
    assert asked.index("annotate") < asked.index("label --overwrite"), "what is changed is recorded first"
    assert run(tmp_path, "pause", "gpu1").returncode == 0, "a run that was cut off is taken up"
    assert run(tmp_path, "resume", "gpu1").returncode == 0
    assert node(tmp_path) == LABELS
    assert not (tmp_path / "cordoned").exists()
    assert not (tmp_path / "note").exists()
    before = (tmp_path / "asked").read_text()
    assert run(tmp_path, "resume", "gpu1").stdout == ""
    assert not any(verb in (tmp_path / "asked").read_text()[len(before) :] for verb in ("label --", "cordon"))


def test_what_others_did_stays(tmp_path: Path) -> None:
    cluster(tmp_path, LABELS)
    (tmp_path / "cordoned").write_text("true")
    assert run(tmp_path, "pause", "gpu1").returncode == 0
    text = (tmp_path / "labels").read_text()
    (tmp_path / "labels").write_text(text.replace(f"device-plugin={PAUSED}", "device-plugin=false"))
    assert run(tmp_path, "resume", "gpu1").returncode == 0
    assert node(tmp_path)["nvidia.com/gpu.deploy.device-plugin"] == "false"
    assert (tmp_path / "cordoned").exists(), "it was cordoned before"


def test_what_is_refused(tmp_path: Path) -> None:
    cluster(tmp_path, LABELS | {"nvidia.com/gpu.deploy.dcgm": "paused-for-mig-change"})
    done = run(tmp_path, "pause", "gpu1")
    assert done.returncode == 1
    assert (
        "another change of driver or MIG is under way on node gpu1: nvidia.com/gpu.deploy.dcgm=paused-for-mig-change"
        in done.stderr
    )
    assert not (tmp_path / "cordoned").exists()
    cluster(tmp_path, LABELS)
    done = run(tmp_path, "pause", "gpu2")
    assert (done.returncode, "not found" in done.stderr) == (1, True)
    (tmp_path / "stuck").touch()
    done = run(tmp_path, "pause", "gpu1")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        "still on node gpu1: nvidia-device-plugin-daemonset-x",
    )
    (tmp_path / "refuses").touch()
    assert "local storage" in run(tmp_path, "pause", "gpu1").stderr


def test_a_cluster_without_the_operator(tmp_path: Path) -> None:
    cluster(tmp_path, {"kubernetes.io/hostname": "gpu1"})
    done = run(tmp_path, "pause", "gpu1")
    assert done.returncode == 0
    assert "has no labels nvidia.com/gpu.deploy.*" in done.stdout
    assert run(tmp_path, "resume", "gpu1").returncode == 0
    assert not (tmp_path / "cordoned").exists()


@pytest.mark.install
def test_the_role_asks_the_cluster_from_here(tmp_path: Path) -> None:
    cluster(tmp_path, LABELS)
    tasks = [{"ansible.builtin.include_role": {"name": "host", "tasks_from": one}} for one in ("drain", "unlock")]
    given = {"gpuprov_drain_command": "kubernetes --timeout=20m", "host_kubernetes_node": "gpu1"}
    done = here.play(tmp_path, {"vars": given, "tasks": tasks})
    assert done.returncode == 0, done.stdout + done.stderr
    asked = (tmp_path / "asked").read_text()
    assert "drain gpu1 --ignore-daemonsets --timeout=20m" in asked
    assert asked.index("drain gpu1") < asked.index("uncordon gpu1")
    assert node(tmp_path) == LABELS


@pytest.mark.install
def test_a_command_of_the_site_runs_where_a_gpu_is_held(tmp_path: Path) -> None:
    """By a shell, as it is written; what it says last is why it failed."""

    def drained(command: str, *, check: bool = False, **more: object) -> subprocess.CompletedProcess[str]:
        task = {"gpuprov_drain": {"state": "drained", "command": command, "services": [], **more}}
        return here.play(tmp_path, {"tasks": [task]}, check=check)

    assert "changed=0" in drained("touch ran").stdout, "nobody holds one here"
    assert "changed=1" in drained("touch ran", check=True, always=True).stdout
    assert not (tmp_path / "ran").exists()
    assert "changed=1" in drained("echo a && touch ran", always=True).stdout
    assert (tmp_path / "ran").exists()
    failed = drained("echo 'job 7 does not end' >&2; exit 3", always=True)
    assert failed.returncode == 2
    assert "job 7 does not end (exit status 3)" in failed.stdout


@pytest.mark.install
def test_hosts_that_wait_for_a_drain_get_its_time_back(tmp_path: Path) -> None:
    """Ansible goes task by task: what one host's jobs take, the others have waited; the rest of the act would have a minute."""
    begin = {"ansible.builtin.set_fact": {"host_began": 1000}}
    drain = {
        "ansible.builtin.include_role": {"name": "host", "tasks_from": "drain_users"},
        "when": "inventory_hostname == 'gpu1'",
    }
    show = {"ansible.builtin.debug": {"msg": "{{ inventory_hostname }} anew: {{ host_began | int > 1000 }}"}}
    given = {"gpuprov_drain_command": "true", "gpuprov_catalog": {"gpu_services": []}}
    done = here.play(tmp_path, {"vars": given, "tasks": [begin, drain, show]}, inventory="gpu1,gpu2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gpu2 anew: True" in done.stdout
    assert "gpu1 anew: True" in done.stdout
