"""The Kubernetes adapter: what it changes, what it leaves, and what it waits for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.drain.kubernetes.adapter import Kubernetes
from tests.fleet.drain.kubectl import Kubectl, pod

pytestmark = pytest.mark.install

DEPLOY, PAUSED = "nvidia.com/gpu.deploy.", "paused-for-driver-upgrade"
OURS = {"gpuprov/drain": json.dumps({"run": "fri"})}
SENTINEL = {"nvsentinel.dgxc.nvidia.com/managed": "false", "k8saas.nvidia.com/ManagedByNVSentinel": "false"}
WRIGHT = {"skyhook.nvidia.com/ignore": "true"}
BOTH = ["apps", "nvsentinel.dgxc.nvidia.com", "janitor.dgxc.nvidia.com", "skyhook.nvidia.com"]


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return Kubectl(tmp_path)


def test_one_change_cordons_and_names_the_run(kubectl: Kubectl) -> None:
    step = Kubernetes().drain("gpu1", "fri")
    assert (step.state, step.read) == ("done", 'unschedulable=true gpuprov/drain={"run": "fri"}')
    assert kubectl.changes == ["patch"]
    assert Kubernetes().drain("gpu1", "fri").state == "done"
    assert Kubernetes().drained("gpu1", "fri").state == "done"
    assert kubectl.changes == ["patch"], "again changes nothing"
    assert Kubernetes().returned("gpu1", "fri", green=False).state == "refused"
    assert Kubernetes().returned("gpu1", "fri", green=True).state == "done"
    assert Kubernetes().returned("gpu1", "fri", green=True).state == "done"
    assert kubectl.node["spec"] == {}
    assert kubectl.node["metadata"]["annotations"] == {}


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ({"unschedulable": True}, "somebody else has cordoned it"),
        ({"labels": {"dgxc.nvidia.com/nvsentinel-state": "draining"}}, "NVSentinel has quarantined it"),
        ({"annotations": {"quarantineHealthEvent": '[{"checkName": "x"}]'}}, "NVSentinel has quarantined it"),
        ({"annotations": {"skyhook.nvidia.com/cordon_tune": "true"}, "unschedulable": True}, "NodeWright is at work"),
        ({"annotations": {"skyhook.nvidia.com/status_tune": "in_progress"}}, "status_tune=in_progress"),
        ({"labels": {f"{DEPLOY}dcgm": "paused-for-mig-change"}}, f"{DEPLOY}dcgm=paused-for-mig-change"),
        ({"labels": {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}}, "the GPU operator upgrades its driver"),
        ({"annotations": {"gpuprov/drain": '{"run": "thu"}'}, "unschedulable": True}, "run thu has it"),
        ({"annotations": {"gpuprov/drain": "{"}, "unschedulable": True}, "cannot be read"),
        ({"annotations": {"gpuprov/drain": '{"run": "x; reboot"}'}, "unschedulable": True}, "cannot be read"),
        ({"annotations": {"gpuprov/drain": "[" * 5000}, "unschedulable": True}, "cannot be read"),
    ],
)
def test_what_is_somebody_elses_stays(kubectl: Kubectl, there: dict[str, object], said: str) -> None:
    kubectl.put(**there, pods=[pod("train")])
    before = kubectl.node
    adapter = Kubernetes()
    steps = [adapter.drain("gpu1", "fri"), adapter.drained("gpu1", "fri"), adapter.returned("gpu1", "fri", green=True)]
    assert {step.state for step in steps} == {"refused"}
    assert all(said in step.message for step in steps)
    others = said in ("somebody else has cordoned it", "run thu has it")
    waits = ("pod ml/train",) if others else ()
    assert {(step.others, step.waits_for) for step in steps[:2]} == {(others, waits)}
    assert not steps[0].is_free
    assert (kubectl.changes, kubectl.node) == ([], before)


@pytest.mark.parametrize("annotations", [{}, {"gpuprov/drain": '{"run": "thu"}'}])
def test_a_node_that_others_cordoned_is_free_once_its_pods_have_left(
    kubectl: Kubectl, annotations: dict[str, str]
) -> None:
    kubectl.put(annotations=annotations, unschedulable=True, pods=[pod("plugin", "DaemonSet")])
    assert Kubernetes().drain("gpu1", "fri").is_free
    quarantined = {"dgxc.nvidia.com/nvsentinel-state": "draining"}
    kubectl.put(annotations=annotations, unschedulable=True, labels=quarantined)
    assert not Kubernetes().drain("gpu1", "fri").others
    kubectl.put(annotations={"gpuprov/drain": '{"run": "thu"}'})
    step = Kubernetes(context="site a").drain("gpu1", "fri")
    assert not step.others, "somebody has uncordoned it"
    assert "--by kubernetes --context 'site a' --run thu" in step.fix


def test_a_run_of_a_question_mark_has_nothing(kubectl: Kubectl) -> None:
    """No run can be called so: an annotation that cannot be read is nobody's."""
    kubectl.put(annotations={"gpuprov/drain": "{"}, unschedulable=True)
    with pytest.raises(GpuprovError):
        Kubernetes().returned("gpu1", "?", green=True)


def test_pods_leave_before_operands_and_the_dra_driver_goes_last(kubectl: Kubectl) -> None:
    names = ("driver", "device-plugin", "dra-driver")
    labels = {f"{DEPLOY}{name}": "true" for name in names} | {f"{DEPLOY}mig-manager": "false"}
    operand = pod("plugin", "DaemonSet", nodeSelector={f"{DEPLOY}device-plugin": "true"})
    dra = pod("dra", "DaemonSet", nodeSelector={f"{DEPLOY}dra-driver": "true"})
    rest = [
        pod("cilium", "DaemonSet"),
        pod("static", "Node", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}),
    ]
    ended = pod("job") | {"status": {"phase": "Succeeded"}}
    kubectl.put(labels=labels, annotations=OURS, unschedulable=True, pods=[pod("train"), operand, dra, *rest, ended])
    step = Kubernetes().drained("gpu1", "fri")
    assert (step.state, step.waits_for) == ("waiting", ("pod ml/train is ending",))
    assert Kubernetes().drained("gpu1", "fri").waits_for == ("pod ml/train is ending",)
    assert kubectl.changes == ["create"], "once"
    assert kubectl.node["metadata"]["labels"] == labels
    kubectl.change(pods=[operand, dra, *rest])
    assert Kubernetes().drained("gpu1", "fri").waits_for == ("pod ml/plugin",)
    assert kubectl.node["metadata"]["labels"] == labels | {f"{DEPLOY}device-plugin": PAUSED}
    kubectl.change(pods=[dra, *rest])
    assert Kubernetes().drained("gpu1", "fri").waits_for == ("pod ml/dra",)
    kubectl.change(pods=rest)
    assert Kubernetes().drained("gpu1", "fri").state == "done"
    assert Kubernetes().returned("gpu1", "fri", green=True).state == "done"
    assert kubectl.node["metadata"]["labels"] == labels


def test_without_operands_it_is_said_that_daemonsets_stay(kubectl: Kubectl) -> None:
    kubectl.put(annotations=OURS, unschedulable=True, pods=[pod("plugin", "DaemonSet")])
    step = Kubernetes().drained("gpu1", "fri")
    assert (step.state, step.message) == ("done", "no label nvidia.com/gpu.deploy.*: pods of DaemonSets stay")


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {"app": "web"}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "x"]}]},
        {"matchExpressions": [{"key": "app", "operator": "Exists"}, {"key": "b", "operator": "DoesNotExist"}]},
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]},
        {},
    ],
)
def test_the_budget_that_keeps_a_pod_is_named(kubectl: Kubectl, selector: dict[str, object]) -> None:
    status = {"disruptionsAllowed": 0, "desiredHealthy": 2, "currentHealthy": 2, "observedGeneration": 1}
    other = {"metadata": {"name": "other"}, "spec": {"selector": {"matchLabels": {"app": "db"}}}, "status": status}
    web = {"metadata": {"name": "web", "generation": 1}, "spec": {"selector": selector}, "status": status}
    odd = [{}, {"metadata": 1, "spec": [], "status": "x"}, {"spec": {"selector": {"matchExpressions": [1]}}}]
    web_pod = pod("web-0", metadata={"labels": {"app": "web"}})
    kubectl.put(annotations=OURS, unschedulable=True, pods=[web_pod], kept=["web-0"], budgets=[*odd, other, web])
    step = Kubernetes().drained("gpu1", "fri")
    told = "pod ml/web-0: PodDisruptionBudget web lets none go (needs 2 healthy pods, has 2)"
    assert (step.state, step.waits_for) == ("waiting", (told,))
    kubectl.change(budgets=[other])
    assert "would violate the pod's disruption budget" in Kubernetes().drained("gpu1", "fri").waits_for[0]


def test_data_and_pods_that_nobody_makes_again_are_waited_for(kubectl: Kubectl) -> None:
    there = [pod("alone", ""), pod("scratch", volumes=[{"name": "v", "emptyDir": {}}])]
    kubectl.put(annotations=OURS, unschedulable=True, pods=there)
    waits = Kubernetes().drained("gpu1", "fri").waits_for
    assert waits[0] == "pod ml/alone has no controller that would make it again"
    assert waits[1].startswith("pod ml/scratch has an emptyDir")
    assert kubectl.changes == []
    assert Kubernetes(empty_dir=True).drained("gpu1", "fri").waits_for[1] == "pod ml/scratch is ending"


def test_a_node_that_changes_meanwhile_is_judged_anew(kubectl: Kubectl) -> None:
    kubectl.put(conflicts=1)
    assert Kubernetes().drain("gpu1", "fri").state == "done"
    kubectl.put(conflicts=1, meanwhile={"spec": {"unschedulable": True}})
    step = Kubernetes().drain("gpu1", "fri")
    assert (step.state, step.message, step.others) == ("refused", "somebody else has cordoned it", True)
    assert "annotations" not in kubectl.node["metadata"]
    kubectl.put(conflicts=9)
    assert Kubernetes().drain("gpu1", "fri").state == "unknown"


def test_who_cordons_between_look_and_change_keeps_the_node(kubectl: Kubectl) -> None:
    kubectl.put(after={"spec": {"unschedulable": True}})
    step = Kubernetes().drain("gpu1", "fri")
    assert (step.state, step.message) == ("refused", "somebody else has cordoned it")
    kubectl.put(
        annotations=OURS, unschedulable=True, after={"metadata": {"annotations": {"gpuprov/drain": '{"run": "thu"}'}}}
    )
    step = Kubernetes().returned("gpu1", "fri", green=True)
    assert (step.state, step.message) == ("refused", "run thu has it")


def test_who_uncordons_has_the_node(kubectl: Kubectl) -> None:
    kubectl.put(annotations=OURS, pods=[pod("train")])
    for step in (Kubernetes().drain("gpu1", "fri"), Kubernetes().drained("gpu1", "fri")):
        assert (step.state, step.message) == ("refused", "it is in service")
    assert kubectl.changes == []
    assert Kubernetes().returned("gpu1", "fri", green=True).state == "done"
    assert kubectl.node["metadata"]["annotations"] == {}


@pytest.mark.parametrize(
    ("words", "state"),
    [
        (
            "The connection to the server localhost:8080 was refused - did you specify the right host or port?",
            "unknown",
        ),
        ('Error from server (Forbidden): nodes "gpu1" is forbidden: User "x" cannot get', "refused"),
        ("error: You must be logged in to the server (Unauthorized)", "unknown"),
        ("Error from server (InternalError): etcd", "unknown"),
        ('E1123 18:42:07.447994 1 memcache.go:265] "Unhandled"\nError from server (Forbidden): no', "refused"),
        ("\x1b[2J\x00", "unknown"),
        ("", "unknown"),
    ],
)
def test_what_kubectl_complains_of(kubectl: Kubectl, words: str, state: str) -> None:
    kubectl.put(fails=words)
    step = Kubernetes().drain("gpu1", "fri")
    assert step.state == state
    assert "memcache" not in step.message


@pytest.mark.parametrize("text", ["", "{", "[]", "\x1b[2J", "[" * 100_000, '{"metadata": 1}', "x" * (9 << 20)])
def test_hostile_output_is_no_node(kubectl: Kubectl, text: str) -> None:
    kubectl.put(said=text)
    assert (Kubernetes().drain("gpu1", "fri").state, kubectl.changes) == ("unknown", [])


def test_names_of_nodes(kubectl: Kubectl) -> None:
    assert Kubernetes({"h": "gpu1"}).drain("h", "fri").node == "gpu1"
    step = Kubernetes().drain("gpu9", "fri")
    assert (step.state, "host_kubernetes_node" in step.fix) == ("refused", True)
    asked = (kubectl.folder / "asked").read_text()
    for name in ("--all", "gpu1 gpu2", "GPU1", "gpu1\n", "../nodes"):
        assert Kubernetes({"h": name}).drain("h", "fri").state == "refused"
    assert (kubectl.folder / "asked").read_text() == asked


def test_a_context_is_an_argument(kubectl: Kubectl) -> None:
    Kubernetes(context="site-a").drain("gpu1", "fri")
    assert json.loads((kubectl.folder / "asked").read_text().splitlines()[0])[:2] == [
        "--request-timeout=55s",
        "--context=site-a",
    ]


def test_operators_that_would_take_the_node_are_kept_off_it(kubectl: Kubectl) -> None:
    """In the same change that cordons it; and only those that are installed."""
    kubectl.put(groups=BOTH, labels={"k8saas.nvidia.com/ManagedByNVSentinel": "true"})
    assert Kubernetes().drain("gpu1", "fri").state == "done"
    assert (kubectl.changes, kubectl.node["metadata"]["labels"]) == (["patch"], SENTINEL | WRIGHT)
    assert Kubernetes().drained("gpu1", "fri").state == "done"
    assert Kubernetes().returned("gpu1", "fri", green=True).state == "done"
    assert kubectl.node["metadata"]["labels"] == {"k8saas.nvidia.com/ManagedByNVSentinel": "true"}
    kubectl.put(groups=["skyhook.nvidia.com"], labels=SENTINEL)
    Kubernetes().drain("gpu1", "fri")
    assert kubectl.node["metadata"]["labels"] == SENTINEL | WRIGHT
    Kubernetes().returned("gpu1", "fri", green=True)
    assert kubectl.node["metadata"]["labels"] == SENTINEL, "an admin's own stays"


def test_a_label_that_somebody_has_changed_meanwhile_stays(kubectl: Kubectl) -> None:
    kubectl.put(groups=BOTH)
    Kubernetes().drain("gpu1", "fri")
    node = kubectl.node
    node["metadata"]["labels"]["skyhook.nvidia.com/ignore"] = "later"
    kubectl.change(node=node)
    assert Kubernetes().returned("gpu1", "fri", green=True).state == "done"
    assert kubectl.node["metadata"]["labels"] == {"skyhook.nvidia.com/ignore": "later"}


def test_what_was_ordered_of_nvsentinel_comes_first(kubectl: Kubectl) -> None:
    request = {"metadata": {"name": "maintenance-gpu1"}, "spec": {"healthEvent": {"nodeName": "gpu1"}}}
    reboot = {"metadata": {"name": "reboot-7"}, "spec": {"nodeName": "gpu1"}}
    over = {**reboot, "status": {"completionTime": "2026-11-23T18:00:00Z"}}
    for kind, one, said in (
        ("maintenancerequests.nvsentinel.dgxc.nvidia.com", request, "maintenance-gpu1"),
        ("rebootnodes.janitor.dgxc.nvidia.com", reboot, "reboot-7"),
    ):
        kubectl.put(groups=BOTH, orders={kind: [over, one]})
        step = Kubernetes().drain("gpu1", "fri")
        assert (step.state, step.message) == ("refused", f"NVSentinel has an order to take it: {kind} {said}")
    elsewhere = {**reboot, "spec": {"nodeName": "gpu2"}}
    kubectl.put(groups=BOTH, orders={"rebootnodes.janitor.dgxc.nvidia.com": [over, elsewhere]})
    assert Kubernetes().drain("gpu1", "fri").state == "done"
    assert kubectl.changes == ["patch"]


def test_a_node_that_nvsentinel_has_taken_meanwhile_is_not_uncordoned(kubectl: Kubectl) -> None:
    """It would take that for an admin's word that the fault is none, and stop its own work."""
    kubectl.put(annotations=OURS, unschedulable=True, labels={"dgxc.nvidia.com/nvsentinel-state": "quarantined"})
    adapter = Kubernetes()
    steps = [adapter.drain("gpu1", "fri"), adapter.drained("gpu1", "fri"), adapter.returned("gpu1", "fri", green=True)]
    assert {(step.state, "NVSentinel has quarantined it" in step.message) for step in steps} == {("refused", True)}
    assert kubectl.changes == []


def test_what_waits_for_a_person_is_told_from_jobs(kubectl: Kubectl) -> None:
    kubectl.put(annotations=OURS, unschedulable=True, pods=[pod("train"), pod("alone", "")])
    assert Kubernetes(apply=True).drained("gpu1", "fri").holds == "a person"
    assert kubectl.changes == [], "an apply would end the others for nothing"
    step = Kubernetes().drained("gpu1", "fri")
    assert (step.holds, kubectl.changes) == ("a person", ["create"])
    kubectl.change(pods=[pod("train")])
    assert Kubernetes().drained("gpu1", "fri").holds == "jobs"
