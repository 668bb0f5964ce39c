"""The shared playbooks pass what is right and fail what is not: gpuprov and its simulation are replaced by what they
would say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.install  # each starts ansible-playbook: a minute in all
SHARED = Path(__file__).parents[2] / "molecule" / "shared"
HOST = "molecule-x"
# Says what the test wrote for its first word, or for that and the host it is limited to: one thing after the other
# there.
SAYS = """
import json, pathlib, sys
here = pathlib.Path(__file__)
said = json.loads(here.with_name("says.json").read_text())
limit = sys.argv[sys.argv.index("--limit") + 1] if "--limit" in sys.argv else ""
if several := said.get(f"{sys.argv[1]} {limit}"):
    counter = here.with_name(f"asked-{limit}")
    asked = len(counter.read_text()) if counter.exists() else 0
    counter.write_text("x" * (asked + 1))
    code, text = several[min(asked, len(several) - 1)]
else:
    code, text = said.get(sys.argv[1], [0, ""])
print(text if isinstance(text, str) else json.dumps(text))
sys.exit(code)
"""
UNCHANGED = {"hosts": [{"host": HOST, "state": "unchanged", "ran": {}}], "log": ""}
CHANGED = {"hosts": [{"host": HOST, "state": "changed", "ran": {}}], "log": ""}
FAULTS = [{"name": "gpu-lost", "what": "a GPU is gone", "caught_by": "nvidia_driver.user_space"}]


class Stage:
    """An ephemeral folder, and programs that say what the test wants in place of gpuprov and its simulation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "says.py").write_text(SAYS, encoding="utf-8")

    def run(self, playbook: str, says: dict[str, Any], *options: str, hosts: tuple[str, ...] = (HOST,),
            **variables: Any) -> tuple[int, str]:  # fmt: skip
        """The exit code and output of a shared playbook."""
        (self.folder / "says.json").write_text(json.dumps(says), encoding="utf-8")
        inventory = {"all": {"hosts": dict.fromkeys(hosts, variables)}}
        (self.folder / "inventory.yaml").write_text(json.dumps(inventory), encoding="utf-8")
        program = [sys.executable, str(self.folder / "says.py")]
        extra = {"gpuprov_command": program, "simulate_command": program}
        place = {"MOLECULE_EPHEMERAL_DIRECTORY": str(self.folder), "MOLECULE_SCENARIO_DIRECTORY": str(self.folder)}
        done = subprocess.run(
            [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(self.folder / "inventory.yaml"),
             *options, "-e", json.dumps(extra), str(SHARED / playbook)],
            capture_output=True, text=True, check=False, env={**os.environ, **place, "ANSIBLE_NOCOLOR": "1"},
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.mark.parametrize(
    ("said", "first", "code"),
    [(UNCHANGED, 30, 0), (UNCHANGED, 0, 2), (CHANGED, 30, 2), ({**UNCHANGED, "log": "/a/log"}, 30, 2)],
    ids=["unchanged", "not-faster", "changed", "entered-ansible"],
)
def test_the_second_apply(stage: Stage, said: dict[str, Any], first: int, code: int) -> None:
    took = {"start": "2026-01-01 00:00:00.000000", "end": f"2026-01-01 00:00:{first:02}.000000"}
    (stage.folder / "first-apply.json").write_text(json.dumps(took), encoding="utf-8")
    found, output = stage.run("converge.yml", {"apply": [0, said]}, "--skip-tags", "molecule-idempotence-notest")
    assert found == code, output


@pytest.mark.parametrize(("boots", "code"), [("a", 0), ("a\na", 2)], ids=["once", "twice"])
def test_reboots_are_counted(stage: Stage, boots: str, code: int) -> None:
    says = {"apply": [0, "the report"], "run": [0, boots]}
    found, output = stage.run("converge.yml", says, simulated_reboots=1)
    assert found == code, output
    assert "the report" in output


GREEN: tuple[int, dict[str, object]] = (0, {"results": []})


def fails(check: str, fix: str = "do this") -> tuple[int, dict[str, object]]:
    return 1, {"results": [{"host": HOST, "check": check, "status": "fail", "found": "none", "fix": fix}]}


def test_a_fault_that_is_not_found_or_not_mended(stage: Stage) -> None:
    right = FAULTS[0]["caught_by"]
    says = {
        "faults": (0, FAULTS),
        "verify green": [GREEN],
        "verify another-check": [GREEN, fails("nvidia_driver.loaded")],
        "verify no-fix": [GREEN, fails(right, fix="")],
        "verify not-fixed": [GREEN, fails(right), fails(right)],
        "verify failed-before": [fails(right)],
    }
    names = ("green", "another-check", "no-fix", "not-fixed", "failed-before")
    code, output = stage.run("side_effect.yml", says, hosts=names, simulated_faults=["gpu-lost"])
    assert code == 2, output
    recap = {row.split()[0]: row for row in output.partition("PLAY RECAP")[2].splitlines()[1:] if row.strip()}
    assert all("failed=1" in recap[name] for name in names), output
    task = {name: output[: output.index(f"[{name} -> localhost]: FAILED")].rpartition("TASK [")[2] for name in names}
    assert task["green"].startswith("Run gpuprov verify]")
    assert task["another-check"].startswith("The right check fails, with a fix]")
    assert task["no-fix"].startswith("The right check fails, with a fix]")
    assert task["not-fixed"].startswith("Run gpuprov verify once more]")
    assert task["failed-before"].startswith(
        "It is one that verify must find, and nothing yet fails that is taken for it]"
    )


def test_before_apply_a_scenario_may_ask_for_something(stage: Stage) -> None:
    code, output = stage.run("prepare.yml", {"run": [1, ""]}, simulated_before="lsmod | grep nouveau")
    assert code == 2, output


@pytest.mark.parametrize(("judged", "code"), [(0, 0), (1, 2)])
def test_the_judge_has_the_last_word(stage: Stage, judged: int, code: int) -> None:
    found, output = stage.run("verify.yml", {"verify": [1, []], "judge": [judged, ""]})
    assert found == code, output
