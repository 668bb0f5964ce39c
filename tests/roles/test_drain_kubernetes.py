"""--drain kubernetes: what a play asks of the cluster. kubectl is the stand-in of tests/drain; the real one is in
tests/e2e."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.drain import in_play, noted
from gpuprov.play import drain
from tests import here
from tests.fleet.drain.kubectl import Kubectl, pod
from tests.rows import run_each

DEPLOY, PAUSED = "nvidia.com/gpu.deploy.", "paused-for-driver-upgrade"
LABELS = {f"{DEPLOY}{name}": "true" for name in ("driver", "dcgm", "device-plugin")} | {f"{DEPLOY}mig-manager": "false"}
PLUGIN = pod("nvidia-device-plugin-x", "DaemonSet", nodeSelector={f"{DEPLOY}device-plugin": "true"})
HELD = {"gpuprov/drain": json.dumps({"run": "thu", "apply": True, "paused": [f"{DEPLOY}dcgm"]})}


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(in_play, "POLL", 0.0)
    monkeypatch.setattr(in_play, "PATIENCE", 0.1)
    cluster = Kubectl(tmp_path)
    cluster.put(labels=LABELS, operator=True, pods=[PLUGIN, pod("cilium", "DaemonSet")])
    return cluster


def options(command: str = "kubernetes") -> in_play.Asked:
    asked = in_play.parse_options(command, "fri")
    assert asked is not None
    return asked


@run_each(
    ("command", "asked"),
    [
        ("kubernetes", in_play.Asked()),
        (" kubernetes --timeout=20m --delete-emptydir-data", in_play.Asked(timeout=1200, empty_dir=True)),
        ("kubernetes --timeout 90 --context 'site a'", in_play.Asked(timeout=90, context="site a")),
        ("kubernetes --timeout=0", in_play.Asked()),
        ("/opt/site/drain --force", None),
        ("", None),
        ("kubernetes-drain x", None),
    ],
)
def test_options(command: str, asked: in_play.Asked | None) -> None:
    assert in_play.parse_options(command, "fri") == asked


@run_each("word", ["--force", "--timeout=1d", "--timeout", "--context=", "--delete-emptydir-data=no", "gpu2"])
def test_an_option_that_is_none_is_refused_with_those_that_are(word: str) -> None:
    with pytest.raises(GpuprovError, match=f"--drain kubernetes has no {word}") as problem:
        in_play.parse_options(f"kubernetes {word}", "fri")
    assert "--delete-emptydir-data" in problem.value.fix


def test_a_run_that_a_cluster_cannot_name_is_refused() -> None:
    with pytest.raises(GpuprovError, match="cannot be named in a scheduler"):
        in_play.parse_options("kubernetes", "friday.")


@pytest.mark.install
def test_operands_leave_and_come_back(kubectl: Kubectl) -> None:
    assert in_play.take_out(options(), "gpu1", "fri") == ""
    labels = LABELS | {f"{DEPLOY}dcgm": PAUSED, f"{DEPLOY}device-plugin": PAUSED}
    assert (kubectl.node["metadata"]["labels"], kubectl.node["spec"]) == (labels, {"unschedulable": True})
    before = len(kubectl.changes)
    assert in_play.take_out(options(), "gpu1", "fri") == "", "a run that was cut off is taken up"
    assert len(kubectl.changes) == before
    assert in_play.give_back(options(), "gpu1", "fri", green=True) == (True, "")
    assert (kubectl.node["metadata"]["labels"], kubectl.node["spec"]) == (LABELS, {})
    assert kubectl.node["metadata"]["annotations"] == {}
    before = len(kubectl.changes)
    assert in_play.give_back(options(), "gpu1", "fri", green=True) == (False, "")
    assert len(kubectl.changes) == before


@pytest.mark.install
def test_what_an_earlier_apply_has_left_is_taken_up_and_given_back(kubectl: Kubectl) -> None:
    """Whoever has the host's lock has what the apply before it has drained; a zombie, which lost it, gives nothing
    back."""
    kubectl.put(labels=LABELS | {f"{DEPLOY}dcgm": PAUSED}, annotations=HELD, unschedulable=True, operator=True)
    in_play.take_out(options(), "gpu1", "fri")
    assert in_play.give_back(options(), "gpu1", "thu", green=True) == (False, ""), "the zombie"
    assert kubectl.node["spec"] == {"unschedulable": True}
    assert in_play.give_back(options(), "gpu1", "fri", green=True) == (True, "")
    assert (kubectl.node["metadata"]["labels"], kubectl.node["spec"]) == (LABELS, {})


@pytest.mark.install
@pytest.mark.parametrize(
    "there",
    [
        {"unschedulable": True},
        {"annotations": {"gpuprov/drain": '{"run": "fri"}'}, "unschedulable": True},
        {"labels": {f"{DEPLOY}dcgm": "paused-for-mig-change"}},
    ],
)
def test_what_no_apply_has_drained_is_not_given_back(kubectl: Kubectl, there: dict[str, object]) -> None:
    """An admin's cordon, and a node that `gpuprov drain` of the same run has taken out: `undrain` gives it back."""
    kubectl.put(**there)
    before = kubectl.node
    assert in_play.give_back(options(), "gpu1", "fri", green=True) == (False, "")
    assert (kubectl.node, kubectl.changes) == (before, [])


@pytest.mark.install
def test_a_host_that_failed_stays_out(kubectl: Kubectl) -> None:
    in_play.take_out(options(), "gpu1", "fri")
    changed, why = in_play.give_back(options(), "gpu1", "fri", green=False)
    assert (changed, "gpuprov undrain HOST INVENTORY --by kubernetes --run fri" in why) == (False, True)
    assert kubectl.node["spec"] == {"unschedulable": True}


@pytest.mark.install
@pytest.mark.parametrize(
    ("there", "said"),
    [
        ({"labels": {f"{DEPLOY}dcgm": "paused-for-mig-change"}}, f"{DEPLOY}dcgm=paused-for-mig-change"),
        ({"unschedulable": True}, "somebody else has cordoned it"),
        ({"labels": LABELS, "operator": False, "pods": [PLUGIN]}, "operands are on it: pod ml/nvidia-device-plugin-x"),
        ({"pods": [pod("scratch", volumes=[{"emptyDir": {}}])]}, "pod ml/scratch has an emptyDir"),
        ({"pods": [pod("train"), pod("alone", "")]}, "pod ml/alone has no controller"),
        ({"fails": "The connection to the server was refused"}, "was refused"),
    ],
)
def test_a_node_that_is_not_free_fails_at_once(kubectl: Kubectl, there: dict[str, object], said: str) -> None:
    kubectl.put(**there)
    with pytest.raises(GpuprovError, match=f"node gpu1 is not free: .*{said}"):
        in_play.take_out(options(), "gpu1", "fri")
    assert "create" not in kubectl.changes, "no pod was evicted for nothing"


@pytest.mark.install
def test_jobs_are_waited_for_as_long_as_was_asked(kubectl: Kubectl) -> None:
    kubectl.put(pods=[pod("train")], kept=["train"])
    with pytest.raises(GpuprovError, match="disruption budget"):
        in_play.take_out(options("kubernetes --timeout=1"), "gpu1", "fri")


@pytest.mark.install
def test_a_cluster_without_the_operator(kubectl: Kubectl) -> None:
    kubectl.put()
    assert "no label nvidia.com/gpu.deploy.*" in in_play.take_out(options(), "gpu1", "fri")
    assert in_play.give_back(options(), "gpu1", "fri", green=True) == (True, "")


@pytest.mark.install
@pytest.mark.parametrize(("act", "failed"), [(4, False), (1, True), (2, True)])
def test_the_role_asks_the_cluster_from_here(kubectl: Kubectl, act: int, failed: bool) -> None:
    """A host on which nothing was changed goes back though its act failed; one that was left half-changed does not."""
    tasks = [{"ansible.builtin.include_role": {"name": "host", "tasks_from": one}} for one in ("drain", "unlock")]
    given = {"gpuprov_drain_command": "kubernetes --timeout=20m", "host_kubernetes_node": "gpu1", "gpuprov_act": act}
    given |= {"gpuprov_run": {"run": "fri"}, **({"host_failed": {"msg": "x"}} if failed else {})}
    # Reasons for a reboot are those of the machine that runs the tests, else.
    done = here.play(here.moved(kubectl.folder, "/run/gpuprov"), {"vars": given, "tasks": tasks})
    assert done.returncode == 0, done.stdout + done.stderr
    out = act == 2
    assert (kubectl.node["spec"], f"{DEPLOY}dcgm" in str(kubectl.node["metadata"])) == (
        {"unschedulable": True} if out else {}, True
    )  # fmt: skip
    assert (kubectl.node["metadata"]["labels"] == LABELS) is not out
    assert (
        "gpuprov undrain HOST INVENTORY --by kubernetes --run fri"
        in " ".join(done.stderr.split() + done.stdout.split())
    ) is out


@pytest.mark.install
@pytest.mark.parametrize(("free", "whose"), [(False, "wed"), (True, "fri")])
def test_the_note_of_another_run_is_left_until_the_host_is_out_by_this_one(
    tmp_path: Path, kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch, *, free: bool, whose: str
) -> None:
    """`gpuprov drain` of run wed has the node out: an apply that is refused takes nothing away from what the host knows
    of that."""
    note = tmp_path / "drained.json"
    monkeypatch.setattr(noted, "DRAINED_FILE", str(note))

    class Host:
        name, check_mode, variables = "gpu1", False, {"gpuprov_run": {"run": "fri"}}

        def step(self, _name: str, *, argv: list[str]) -> dict[str, str]:
            return {"stdout": subprocess.run(argv, capture_output=True, text=True, check=True).stdout}

    given = {"state": "drained", "command": "kubernetes", "node": "gpu1", "always": True}
    Host().step("command", argv=["sh", "-c", noted.written("kubernetes", "wed", "gpu1", over=False)])
    if not free:
        kubectl.put(annotations={"gpuprov/drain": '{"run": "wed"}'}, unschedulable=True)
        with pytest.raises(GpuprovError, match="run wed has it"):
            drain.run(Host(), given)  # type: ignore[arg-type]
    else:
        assert drain.run(Host(), given)["changed"] is True  # type: ignore[arg-type]
    assert json.loads(note.read_text())["run"] == whose


@pytest.mark.install
def test_a_command_of_the_site_runs_where_a_gpu_is_held(tmp_path: Path) -> None:
    """By a shell, as it is written; what it says last is why it failed."""

    def drained(command: str, *, check: bool = False, **more: object) -> subprocess.CompletedProcess[str]:
        given = {"state": "drained", "command": command, "services": [], **more}
        task = {"gpuprov_step": {"name": "drain", "arguments": given}}
        return here.play(tmp_path, {"tasks": [task]}, check=check, alone=True)

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
    """Ansible goes task by task: what one host's jobs take, the others have waited; the rest of the act would have a
    minute."""
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
