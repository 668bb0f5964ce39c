"""CI's workflows call commands that exist, use pinned actions, and run the Pythons that pyproject.toml names."""

from __future__ import annotations

import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commands import run_main
from tests.rows import run_each

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read_workflow(path: Path) -> dict[str, Any]:
    """Return the workflow; its triggers by the key "on", which YAML 1.1 reads as true."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {**document, "on": document.pop(True)}


def list_steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in read_workflow(path)["jobs"].values():
        yield from job["steps"]


def list_commands(path: Path) -> Iterator[list[str]]:
    """Yield every command of the steps, split into words."""
    for step in list_steps(path):
        for command in re.split(r"\n|&&", step.get("run", "")):
            yield shlex.split(command)


def find_make_targets(makefile: str) -> set[str]:
    rules = re.findall(r"^([a-z][\w -]*):(?!=)", makefile, re.MULTILINE)
    return {name for rule in rules for name in rule.split()}


def find_unknown_commands(words: list[str], targets: set[str]) -> list[str]:
    """List the called commands that this repository lacks: targets of make, programs by their path."""
    if words[:1] == ["make"]:
        return [word for word in words[1:] if not word.startswith("-") and "=" not in word and word not in targets]
    return [word for word in words[:1] if "/" in word and not os.access(ROOT / word, os.X_OK)]


def test_every_command_exists() -> None:
    targets = find_make_targets((ROOT / "Makefile").read_text(encoding="utf-8"))
    assert {"setup", "check", "test", "release"} <= targets
    called = [(path.name, words) for path in WORKFLOWS for words in list_commands(path)]
    assert {"make", ".ci/run"} <= {words[0] for _, words in called if words}
    assert [(name, words) for name, words in called if find_unknown_commands(words, targets)] == []
    assert find_unknown_commands(["make", "-s", "chek", "KEY=x"], targets) == ["chek"]
    assert find_unknown_commands([".ci/rum"], targets) == [".ci/rum"]


@run_each("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_rights_are_few(path: Path) -> None:
    used = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    assert [one for one in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+(\.\d+)+", one)] == []
    assert read_workflow(path)["permissions"] == {"contents": "read"}
    for step in list_steps(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
        assert "${{" not in step.get("run", ""), "an expression in a command is a hole: hand it over in env"


def test_an_action_has_one_version_everywhere() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    versions = set(re.findall(r"uses: ([\w./-]+@\S+)", text))
    assert len({one.partition("@")[0] for one in versions}) == len(versions)


def test_a_change_is_checked_on_every_python_that_is_supported() -> None:
    workflow = read_workflow(ROOT / ".github/workflows/check.yml")
    assert {"push", "pull_request"} <= workflow["on"].keys()
    versions = workflow["jobs"]["check"]["strategy"]["matrix"]["python"]
    named = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)]
    assert versions == named
    assert PROJECT["requires-python"] == f">={versions[0]}"
    assert len(versions) >= 3


def test_a_release_only_hands_out_what_make_release_makes() -> None:
    path = ROOT / ".github/workflows/release.yml"
    jobs = read_workflow(path)["jobs"]
    assert read_workflow(path)["on"] == {"push": {"tags": ["v*"]}}
    assert {words[0] for words in list_commands(path) if words} == {"(umask", "printf", "make", "gh", "podman"}
    assert {words[1] for words in list_commands(path) if words[:1] == ["podman"]} == {"load", "login", "push"}
    assert ["make", "release", "KEY=$RUNNER_TEMP/key"] in list(list_commands(path))
    assert {name: job.get("permissions") for name, job in jobs.items()} == {
        "build": None,
        "pypi": {"id-token": "write"},
        "github": {"contents": "write"},
        "image": {"packages": "write"},
    }, "who may publish neither builds nor sees the key"
    [kept] = [step["with"]["path"] for step in jobs["build"]["steps"] if step.get("with", {}).get("name") == "python"]
    assert kept.split() == ["dist/release/*.whl", "dist/release/gpuprov-[0-9]*.tar.gz"], "what PyPI takes"


def test_the_hook_for_sites_checks_an_inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert (hook["language"], hook["pass_filenames"]) == ("python", False)
    program, *words = shlex.split(hook["entry"])
    assert program == "gpuprov"
    monkeypatch.chdir(tmp_path)
    for capability, code in (("nouveau", 0), ("nouveu", 2)):
        text = f"all: {{hosts: {{gpu1: {{gpuprov: {{{capability}: {{}}}}}}}}}}\n"
        (tmp_path / "inventory.yaml").write_text(text, encoding="utf-8")
        assert run_main(monkeypatch, *words, "inventory.yaml") == code


def test_our_own_hooks_call_what_make_setup_installs() -> None:
    document = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for repository in document["repos"] for hook in repository["hooks"]]
    assert {"ruff-check", "ruff-format", "yamllint", "gpuprov-check"} == {hook["id"] for hook in hooks}
    for hook in hooks:
        program, *_ = shlex.split(hook["entry"])
        assert (Path(sys.executable).parent / Path(program).name).is_file(), hook["id"]
        assert any(
            re.search(hook["files"], name) for name in ("gpuprov/cli/plan.py", "inventories/example/inventory.yaml")
        )
