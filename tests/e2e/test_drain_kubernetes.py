"""gpuprov drain and undrain against a real API server: cordon, Eviction API, PodDisruptionBudgets, operands, rights."""

from __future__ import annotations

import json
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.drain import in_play
from tests.e2e.kube import Kube, running
from tests.e2e.lab import GPUPROV

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
DEPLOY = "nvidia.com/gpu.deploy."
PAUSED = "paused-for-driver-upgrade"
OPERANDS = {f"{DEPLOY}{name}": "true" for name in ("driver", "device-plugin", "dcgm-exporter", "dra-driver")}
OPERANDS |= {f"{DEPLOY}mig-manager": "false"}
GUIDE = Path(__file__).parents[2] / "docs/how-to/drain.md"


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    with running(tmp_path_factory.mktemp("kube")) as server:
        yield server


@pytest.fixture
def node(kube: Kube, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A node of the test's own, and an inventory with it in tmp_path."""
    name = request.node.name.partition("[")[0].replace("_", "-")[-40:].strip("-")
    kube.create("Node", name, {"labels": OPERANDS}, {})
    (tmp_path / "inventory.yaml").write_text(f"all: {{hosts: {{gpu1: {{host_kubernetes_node: {name}}}}}}}\n")
    yield name
    kube.kubectl("delete", "pods", "--all", "--grace-period=0", "--force")
    kube.kubectl("delete", "node", name)
    kube.kubectl("delete", "poddisruptionbudgets", "--all")


@pytest.fixture
def gpuprov(kube: Kube, tmp_path: Path) -> Any:
    def run(verb: str, *words: str, config: str = "config", run: str = "fri") -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "KUBECONFIG": str(kube.folder / config),
        }
        command = [GPUPROV, verb, "gpu1", str(tmp_path / "inventory.yaml"), "--by", "kubernetes", "--run", run]
        command += ["--poll", "0.5", *(["--wait", "0"] if verb == "drain" else ["--unverified"]), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)

    return run


def labels(kube: Kube, node: str) -> dict[str, str]:
    return {key: value for key, value in kube.node(node)["metadata"]["labels"].items() if key.startswith(DEPLOY)}


def test_pods_leave_then_operands_and_all_comes_back(kube: Kube, node: str, gpuprov: Any) -> None:
    before = kube.node(node)
    kube.pod("train", node)
    kube.pod("plugin", node, "DaemonSet", nodeSelector={f"{DEPLOY}device-plugin": "true"})
    kube.pod("dra", node, "DaemonSet", nodeSelector={f"{DEPLOY}dra-driver": "true"})
    kube.pod("cilium", node, "DaemonSet")
    kube.pod("static", node, "Node", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}})
    done = gpuprov("drain")
    assert (done.returncode, "pod default/train is ending" in done.stdout) == (1, True), done
    assert kube.node(node)["spec"]["unschedulable"] is True
    assert labels(kube, node) == OPERANDS, "operands stay while pods are there"
    assert json.loads(kube.kubectl("get", "pod", "train", "-o", "json"))["metadata"]["deletionTimestamp"]
    kube.ended("train")
    done = gpuprov("drain")
    assert (done.returncode, "pod default/plugin" in done.stdout) == (1, True), done
    paused = OPERANDS | {f"{DEPLOY}device-plugin": PAUSED, f"{DEPLOY}dcgm-exporter": PAUSED}
    assert labels(kube, node) == paused, "the DRA driver goes last, and the driver's own label stays"
    kube.ended("plugin")
    done = gpuprov("drain")
    assert (done.returncode, "pod default/dra" in done.stdout) == (1, True), done
    assert labels(kube, node) == paused | {f"{DEPLOY}dra-driver": PAUSED}
    kube.ended("dra")
    done = gpuprov("drain")
    assert done.returncode == 0, done
    assert kube.kubectl("get", "pods", "-o", "name").split() == ["pod/cilium", "pod/static"]
    done = gpuprov("undrain")
    assert (done.returncode, done.stdout) == (0, f"gpu1 (node {node}): in service: unschedulable=false\n"), done
    after = kube.node(node)
    assert after["spec"] == before["spec"]
    assert labels(kube, node) == OPERANDS
    assert after["metadata"].get("annotations", {}) == before["metadata"].get("annotations", {})
    assert gpuprov("undrain").returncode == 0, "again"


def test_a_budget_is_respected_and_named(kube: Kube, node: str, gpuprov: Any) -> None:
    kube.create(
        "PodDisruptionBudget", "web", {}, {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}, "policy/v1"
    )
    kube.status(
        "poddisruptionbudget",
        "web",
        {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
    )
    kube.pod("web", node, metadata={"labels": {"app": "web"}})
    done = gpuprov("drain")
    assert done.returncode == 1, done
    assert "pod default/web: PodDisruptionBudget web lets none go (needs 1 healthy pods, has 1)" in done.stdout
    assert "deletionTimestamp" not in json.loads(kube.kubectl("get", "pod", "web", "-o", "json"))["metadata"]
    kube.status("poddisruptionbudget", "web", {"disruptionsAllowed": 1, "currentHealthy": 2})
    assert "pod default/web is ending" in gpuprov("drain").stdout


def test_what_nobody_would_make_again_is_waited_for(kube: Kube, node: str, gpuprov: Any) -> None:
    kube.pod("alone", node, "")
    kube.pod("scratch", node, volumes=[{"name": "v", "emptyDir": {}}])
    done = gpuprov("drain")
    assert "pod default/alone has no controller" in done.stdout, done
    assert "pod default/scratch has an emptyDir" in done.stdout
    done = gpuprov("drain", "--delete-emptydir-data")
    assert "pod default/scratch is ending" in done.stdout
    assert "deletionTimestamp" not in kube.kubectl("get", "pod", "alone", "-o", "json")


@pytest.mark.parametrize("how", ["cordon", "paused", "upgrade"])
def test_what_is_somebody_elses_stays(kube: Kube, node: str, gpuprov: Any, how: str) -> None:
    kube.pod("train", node)
    if how == "cordon":
        kube.kubectl("cordon", node)
    elif how == "paused":
        kube.kubectl("label", "--overwrite", "node", node, f"{DEPLOY}dcgm-exporter=paused-for-mig-change")
    else:
        kube.kubectl("label", "node", node, "nvidia.com/gpu-driver-upgrade-state=drain-required")
    before = kube.node(node)["metadata"]["resourceVersion"]
    done = gpuprov("drain")
    assert (done.returncode, "it is left as it is" in done.stdout) == (3, True), done
    assert gpuprov("undrain").returncode == 3
    assert kube.node(node)["metadata"]["resourceVersion"] == before, "not one byte was written"
    assert "deletionTimestamp" not in kube.kubectl("get", "pod", "train", "-o", "json")


def test_another_run_has_it(kube: Kube, node: str, gpuprov: Any) -> None:
    assert gpuprov("drain").returncode == 0
    before = kube.node(node)["metadata"]["resourceVersion"]
    for verb in ("drain", "undrain"):
        done = gpuprov(verb, run="sat")
        assert (done.returncode, "run fri has it" in done.stdout) == (3, True), done
    assert kube.node(node)["metadata"]["resourceVersion"] == before
    kube.kubectl("uncordon", node)
    done = gpuprov("drain")
    assert (done.returncode, "somebody else has uncordoned it" in done.stdout) == (3, True), done
    assert gpuprov("undrain").returncode == 0
    assert labels(kube, node) == OPERANDS


def test_a_label_that_somebody_has_changed_stays(kube: Kube, node: str, gpuprov: Any) -> None:
    assert gpuprov("drain").returncode == 0
    kube.kubectl("label", "--overwrite", "node", node, f"{DEPLOY}device-plugin=false")
    assert gpuprov("undrain").returncode == 0
    assert labels(kube, node) == OPERANDS | {f"{DEPLOY}device-plugin": "false"}


def test_the_rights_that_the_guide_names_are_enough(kube: Kube, node: str, gpuprov: Any) -> None:
    kube.pod("train", node, metadata={"labels": {"app": "train"}})
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "train"}}}
    kube.create("PodDisruptionBudget", "train", {}, spec, "policy/v1")
    done = gpuprov("drain", config="drainer")
    assert (done.returncode, "forbidden" in done.stdout) == (3, True), done
    rights = textwrap.dedent("    apiVersion" + GUIDE.read_text().split("    apiVersion")[1].split("\n\n")[0])
    kube.kubectl("create", "-f", "-", stdin=rights)
    kube.kubectl("create", "clusterrolebinding", "drainer", "--clusterrole=gpuprov-drain", "--user=drainer")
    done = gpuprov("drain", config="drainer")
    assert (done.returncode, "PodDisruptionBudget train" in done.stdout) == (1, True), done
    kube.ended("train")
    assert gpuprov("drain", config="drainer").returncode == 0
    assert gpuprov("undrain", config="drainer").returncode == 0


def test_a_node_that_is_not_there(node: str, gpuprov: Any, tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text("all: {hosts: {gpu1: {}}}\n")
    done = gpuprov("drain")
    assert (done.returncode, "Kubernetes knows no node gpu1" in done.stdout) == (3, True), done
    assert "host_kubernetes_node" in done.stdout


SENTINEL = {"nvsentinel.dgxc.nvidia.com/managed": "false", "k8saas.nvidia.com/ManagedByNVSentinel": "false"}
IGNORE = {"skyhook.nvidia.com/ignore": "true"}


def kind(kube: Kube, group: str, plural: str, name: str, version: str) -> None:
    """A kind of objects, as the operators' charts make it, without the schema of its fields."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    served = {"name": version, "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    spec = {"group": group, "scope": "Cluster", "names": {"plural": plural, "kind": name}, "versions": [served]}
    kube.create("CustomResourceDefinition", f"{plural}.{group}", {}, spec, "apiextensions.k8s.io/v1")
    kube.kubectl("wait", "--for=condition=established", f"crd/{plural}.{group}", "--timeout=30s")


def test_operators_of_nvidia_are_respected_and_kept_off(kube: Kube, node: str, gpuprov: Any) -> None:
    """Nothing is asked of operators that are not installed. The kinds stay for the tests after this one."""
    assert gpuprov("drain").returncode == 0
    assert not SENTINEL.keys() & kube.node(node)["metadata"]["labels"].keys()
    assert gpuprov("undrain").returncode == 0
    kind(kube, "janitor.dgxc.nvidia.com", "rebootnodes", "RebootNode", "v1alpha1")
    kind(kube, "nvsentinel.dgxc.nvidia.com", "maintenancerequests", "MaintenanceRequest", "v1")
    kind(kube, "skyhook.nvidia.com", "skyhooks", "Skyhook", "v1alpha1")
    before = kube.node(node)
    assert gpuprov("drain").returncode == 0
    assert (SENTINEL | IGNORE).items() <= kube.node(node)["metadata"]["labels"].items()
    assert gpuprov("undrain").returncode == 0
    after = kube.node(node)
    assert (after["metadata"]["labels"], after["spec"]) == (before["metadata"]["labels"], before["spec"])
    api = "janitor.dgxc.nvidia.com/v1alpha1"
    kube.create("RebootNode", "reboot-7", {}, {"nodeName": node, "force": False}, api)
    done = gpuprov("drain")
    assert (done.returncode, "rebootnodes.janitor.dgxc.nvidia.com reboot-7" in done.stdout) == (3, True), done
    kube.status("rebootnode", "reboot-7", {"completionTime": "2026-11-23T18:00:00Z"})
    event = {"nodeName": node, "isHealthy": False, "version": 1}
    api = "nvsentinel.dgxc.nvidia.com/v1"
    kube.create("MaintenanceRequest", "m", {}, {"healthEvent": event}, api)
    done = gpuprov("drain")
    assert (done.returncode, "maintenancerequests.nvsentinel.dgxc.nvidia.com m" in done.stdout) == (3, True), done
    kube.kubectl("delete", "maintenancerequest", "m")
    kube.kubectl("annotate", "node", node, "skyhook.nvidia.com/cordon_tune=true")
    done = gpuprov("drain")
    assert (done.returncode, "NodeWright is at work on it" in done.stdout) == (3, True), done
    kube.kubectl("annotate", "node", node, "skyhook.nvidia.com/cordon_tune-")
    assert gpuprov("drain").returncode == 0
    kube.kubectl("label", "node", node, "dgxc.nvidia.com/nvsentinel-state=quarantined")
    done = gpuprov("undrain")
    assert (done.returncode, "it stays cordoned" in done.stdout) == (3, True), done
    assert kube.node(node)["spec"]["unschedulable"] is True


def test_a_play_drains_takes_up_and_gives_back(kube: Kube, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `apply --drain kubernetes` asks; tests/roles/test_drain_kubernetes.py has the role that asks it."""
    monkeypatch.setenv("KUBECONFIG", str(kube.folder / "config"))
    monkeypatch.setattr(in_play, "PATIENCE", 1.0)
    monkeypatch.setattr(in_play, "POLL", 0.5)
    before = kube.node(node)
    kube.pod("plugin", node, "DaemonSet", nodeSelector={f"{DEPLOY}device-plugin": "true"})
    asked = in_play.parse_options("kubernetes --timeout=60s", "fri")
    assert asked
    with pytest.raises(GpuprovError, match="GPU operands are on it: pod default/plugin"):
        in_play.take_out(in_play.Asked(), node, "fri")
    kube.ended("plugin")
    assert in_play.take_out(asked, node, "sat") == "", "the next run takes up what this one has left"
    assert kube.node(node)["spec"]["unschedulable"] is True
    assert in_play.give_back(asked, node, "fri", green=True) == (False, "")
    assert in_play.give_back(asked, node, "sat", green=True) == (True, "")
    after = kube.node(node)
    assert (after["metadata"]["labels"], after["spec"]) == (before["metadata"]["labels"], before["spec"])
