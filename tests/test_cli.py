"""The command line as a user meets it: exit codes, streams, help with an example, no traceback for a user's mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import jsonschema
import pytest
import yaml

from gpuprov.cli import cli

ROOT = Path(__file__).parents[1]
GOOD = "all: {hosts: {gpu01: {ansible_connection: local}}, vars: {gpuprov: {nouveau: {}}}}\n"


def gpuprov(
    *arguments: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpuprov", *map(str, arguments)]
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("GPUPROV", "ANSIBLE"))}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd, env={**clean, **(env or {})}, timeout=120
    )


@pytest.fixture
def good(tmp_path: Path) -> Path:
    file = tmp_path / "inventory.yaml"
    file.write_text(GOOD)
    return file


@pytest.mark.parametrize("name", list(cli.commands))
def test_every_command_shows_an_example(name: str) -> None:
    command = cli.commands[name]
    text = command.get_help(click.Context(command, info_name=name))
    assert f"gpuprov {name}" in text


def test_check_of_a_good_inventory(good: Path) -> None:
    done = gpuprov("check", good)
    assert (done.returncode, done.stdout) == (0, "1 host valid\n")


def test_check_tells_every_problem_on_stdout_and_exits_2(tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text("all:\n  hosts: {gpu01: {}}\n  vars:\n    gpuprov:\n      nuveau: {}\n      reboot: maybe\n")
    done = gpuprov("check", "inventory.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout.splitlines() == [
        'inventory.yaml:5:7: unknown key "nuveau"; did you mean "nouveau"?',
        'inventory.yaml:6:15: reboot is "maybe"; allowed: if-needed, never',
    ]
    assert done.stderr == "2 problems; nothing was changed\n"
    problems = json.loads(gpuprov("check", "--json", file).stdout)
    assert [problem["path"] for problem in problems["problems"]] == ["nuveau", "reboot"]


@pytest.mark.parametrize("verb", ["plan", "apply", "verify", "render"])
def test_no_verb_touches_a_host_with_a_bad_spec(verb: str, tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text("all: {hosts: {gpu01: {ansible_connection: local}}, vars: {gpuprov: {nuveau: {}}}}\n")
    extra = ["--out", str(tmp_path / "out")] if verb == "render" else []
    done = gpuprov(verb, file, *extra)
    assert done.returncode == 2
    assert done.stdout == ""
    assert 'unknown key "nuveau"' in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_inventory_is_found_without_an_argument(good: Path, tmp_path: Path) -> None:
    assert gpuprov("check", cwd=good.parent).returncode == 0
    assert gpuprov("check", cwd=Path("/"), env={"GPUPROV_INVENTORY": str(good)}).returncode == 0
    empty = tmp_path / "empty"
    empty.mkdir()
    done = gpuprov("check", cwd=empty)
    assert done.returncode == 2
    assert "GPUPROV_INVENTORY" in done.stderr + done.stdout


def test_an_unknown_capability_in_only(good: Path) -> None:
    done = gpuprov("verify", good, "--only", "novueau")
    assert done.returncode == 2
    assert 'there is no capability "novueau"' in done.stderr


def test_render_and_explain_and_catalog(good: Path, tmp_path: Path) -> None:
    assert gpuprov("render", good, "--out", tmp_path / "out").returncode == 0
    assert (tmp_path / "out" / "site.yml").is_file()
    assert "NVSwitch fabric" in gpuprov("explain", "802").stdout
    assert gpuprov("explain", "no-such-word").returncode == 2
    rows = json.loads(gpuprov("catalog", "gpus", "H200", "--json").stdout)
    assert {row["key"] for row in rows} >= {"H200-SXM", "H200-NVL"}
    assert gpuprov("catalog", "gpus", "Voodoo2").returncode == 2


def test_the_schema_takes_the_example_and_refuses_a_typo() -> None:
    schema = json.loads(gpuprov("schema").stdout)
    example = yaml.safe_load((ROOT / "inventories" / "example" / "inventory.yaml").read_text())
    spec = example["all"]["vars"]["gpuprov"]
    jsonschema.validate(spec, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**spec, "nvidia_drivr": {}}, schema)


def test_a_closed_pipe_is_no_traceback() -> None:
    command = f"{sys.executable} -m gpuprov catalog gpus | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == "" or "Traceback" not in done.stderr


def test_completion_is_offered() -> None:
    done = gpuprov(env={"_GPUPROV_COMPLETE": "bash_complete", "COMP_WORDS": "gpuprov ver", "COMP_CWORD": "1"})
    assert "Traceback" not in done.stderr
