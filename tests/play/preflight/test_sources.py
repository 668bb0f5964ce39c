"""The judge inside a play, asked again: what waited for a package source, what check mode leaves as it was, what others
got."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gpuprov.capabilities.cuda_toolkit.fragment import CudaToolkit
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.facts.probes.base import Facts
from gpuprov.render.variables import fleet_variables, host_variables
from gpuprov.spec.model import HostSpec
from gpuprov.spec.repository import Repository
from tests.capabilities.asking import facts, good
from tests.capabilities.cuda_host import GOOD
from tests.capabilities.test_cuda_toolkit import REQUIRES
from tests.capabilities.test_cuda_toolkit_desired import NO_TOOLKIT
from tests.here import play

MIRROR = Repository(url="https://mirror.example/cuda", key_url="https://mirror.example/k", fingerprint="A" * 40)
OTHERS = {"persistence": {"unit": "as it was"}}
WAITS = {**OTHERS, "cuda_toolkit": {"later": {"told": "told", "problem": "problem"}}}
EMPTY = {"cuda_index": "", "cuda_requires": ""}


@pytest.fixture
def plugin() -> ModuleType:
    file = Path(__file__).parents[3] / "plugins" / "action" / "gpuprov_judge.py"
    found = importlib.util.spec_from_file_location("gpuprov_judge_action", file)
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def host(**changed: str) -> Facts:
    """One that has neither toolkit nor driver, and whose repositories have 12.4."""
    texts = {**good(), **GOOD, "login": "", "cuda_packages": "", "cuda_toolkits": NO_TOOLKIT, "cuda_requires": REQUIRES}
    return facts(**{**texts, "driver_libraries": "", **changed})


def ask(
    plugin: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    there: Facts | None,
    *,
    judged: dict[str, Any],
    moment: str = "sources",
    checking: bool = False,
) -> dict[str, Any]:
    """What the action answers for a host whose driver comes from a mirror; None: a host that is not asked."""
    driver = NvidiaDriver(version="535", source="mirror", repository=MIRROR)
    blocks = {"nvidia_driver": driver, "cuda_toolkit": CudaToolkit(versions=("12.4",))}
    variables = {**fleet_variables(), **host_variables(HostSpec(name="gpu1", capabilities=blocks))}

    def facts_of(_streams: str) -> Facts:
        assert there is not None, "the host was asked"
        return there

    monkeypatch.setattr(plugin.ActionBase, "run", lambda *_: {})
    monkeypatch.setattr(plugin.ActionModule, "_read", lambda *_: "")
    monkeypatch.setattr(plugin, "facts_of", facts_of)
    action = plugin.ActionModule.__new__(plugin.ActionModule)
    action._task = SimpleNamespace(args={"capabilities": ["cuda_toolkit"], "moment": moment})
    action._templar = SimpleNamespace(template=lambda value: value)
    before = {"resources": {"gpu_settings": ["unit gpuprov-gpu-settings.service"]}, "desired": judged}
    known = {**variables, "inventory_hostname": "gpu1", "ansible_check_mode": checking, "gpuprov_judged": before}
    answer: dict[str, Any] = action.run(None, known)
    return answer


def test_a_host_that_waits_for_nothing_is_not_asked_again(plugin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = {**OTHERS, "cuda_toolkit": {"later": {}}}
    answer = ask(plugin, monkeypatch, None, judged=judged)
    assert (answer["changed"], answer["desired"]) == (False, judged)
    assert answer["driver"]["names"].keys() == {"debian", "redhat", "suse"}


def test_what_waited_is_decided_when_its_source_is_there(plugin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = ask(plugin, monkeypatch, host(), judged=WAITS)
    assert answer["desired"]["cuda_toolkit"]["install"][0] == "cuda-toolkit-12-4=12.4.1-1"
    assert answer["desired"]["persistence"] == OTHERS["persistence"]
    assert not answer["changed"]


def test_a_source_that_came_in_vain_is_refused(plugin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        plugin.AnsibleActionFail, match=r"cuda_toolkit: the host's repositories have no cuda-toolkit-12-4 12\.4"
    ):
        ask(plugin, monkeypatch, host(**EMPTY), judged=WAITS)


def test_check_mode_says_what_waits(plugin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = ask(plugin, monkeypatch, host(**EMPTY), judged=WAITS, checking=True)
    assert answer["changed"]
    assert answer["msg"] == "CUDA toolkit 12.4 is resolved when apply has added https://mirror.example/cuda"
    assert answer["desired"]["cuda_toolkit"]["install"] == []


def test_the_driver_that_was_resolved_is_what_toolkits_are_judged_by(
    plugin: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judged(version: str) -> dict[str, Any]:
        return {"cuda_toolkit": {"later": {}}, "nvidia_driver": {"later": {}, "version": version}}

    assert ask(plugin, monkeypatch, host(), judged=judged("535.261.03"))["desired"]["cuda_toolkit"]["install"]
    with pytest.raises(plugin.AnsibleActionFail, match=r"cuda_toolkit\.driver: driver 520\.61\.05"):
        ask(plugin, monkeypatch, host(), judged=judged("520.61.05"))


def test_what_was_told_of_others_for_the_receipt_is_kept(plugin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """mig judges itself once more in its service stage: the receipt then had no list of any other capability."""
    told = {"gpu_settings": ["unit gpuprov-gpu-settings.service"]}
    again = ask(plugin, monkeypatch, host(), judged=OTHERS, moment="now")["resources"]
    assert again == {**told, "cuda_toolkit": again["cuda_toolkit"]}
    assert again["cuda_toolkit"] == ["file /etc/profile.d/gpuprov-cuda.sh"]
    assert ask(plugin, monkeypatch, None, judged={"cuda_toolkit": {"later": {}}})["resources"] == told


def test_check_mode_has_changed_nothing_since(plugin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(plugin, monkeypatch, None, judged=OTHERS, moment="now", checking=True)["desired"] == OTHERS
    assert ask(plugin, monkeypatch, host(), judged=OTHERS, moment="now")["desired"]["cuda_toolkit"]["install"]


@pytest.mark.install
def test_what_a_host_said_is_no_template_on_its_way_through_the_judge(tmp_path: Path) -> None:
    """What was judged is gone on from, and comes out as a result: twice, as in the acts."""
    said = {"ansible.builtin.command": {"argv": ["printf", r"\173\173 7 * 7 \175\175"]}, "register": "said"}
    judge: dict[str, Any] = {"capabilities": ["cuda_toolkit"], "moment": "sources"}
    before = {"desired": {"dcgm": {"later": {}, "files": {"/etc/x": "{{ said.stdout }}"}}}}
    put = {"content": "{{ gpuprov_judged.desired.dcgm.files['/etc/x'] }}", "dest": str(tmp_path / "put")}
    tasks = [
        said,
        {"ansible.builtin.set_fact": {"gpuprov_judged": before}},
        *[{"gpuprov_judge": judge, "register": "gpuprov_judged"}] * 2,
        {"ansible.builtin.copy": put},
    ]
    done = play(tmp_path, {"tasks": tasks})
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "put").read_text() == "{{ 7 * 7 }}"
