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
from click.testing import CliRunner

from gpuprov.cli import cli

pytestmark = pytest.mark.install

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


COMMANDS = {
    **cli.commands,
    **{
        f"{name} {word}": below
        for name, group in cli.commands.items()
        if isinstance(group, click.Group)
        for word, below in group.commands.items()
    },
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_an_example(name: str) -> None:
    above = click.Context(cli, info_name="gpuprov", **cli.context_settings)
    text = COMMANDS[name].get_help(click.Context(COMMANDS[name], above, info_name=name))
    assert f"gpuprov {name}" in text


def test_the_list_of_commands_is_whole_at_80_columns() -> None:
    lines = CliRunner().invoke(cli, ["--help"], terminal_width=80).stdout.partition("Commands:")[2].splitlines()
    assert len(lines) >= len(cli.commands)
    assert not [line for line in lines if line.endswith("...") or len(line) > 80]


LOG = b"""[ 11.0] usb 1-1: new device
[ 12.3] NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus.
[ 12.4] \x1b[31m\xff
[ 13.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus.
"""


@pytest.mark.parametrize(
    ("log", "code", "said"),
    [
        (LOG, 0, "symptom: Xid 79\n  seen    2 times in standard input: [ 12.3] NVRM: Xid"),
        (b"all is well\n", 2, "error: standard input holds no message that gpuprov knows"),
        (b"", 2, "error: standard input holds no message that gpuprov knows"),
        (b"x" * ((64 << 20) + 1), 2, "error: standard input is too large; allowed: 64 MiB"),
    ],
)
def test_explain_reads_a_log_that_is_piped_in(log: bytes, code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpuprov", "explain", "-"], input=log, capture_output=True, check=False
    )
    assert (done.returncode, said in (done.stdout + done.stderr).decode()) == (code, True), done
    assert b"\x1b" not in done.stdout


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
    assert "GH200" not in gpuprov("catalog", "gpus", "H100").stdout
    assert "3g.40gb" in gpuprov("catalog", "mig", "A100-SXM4-80GB").stdout
    assert gpuprov("catalog", "gpus", "Voodoo2").returncode == 2


def test_the_schema_takes_the_example_and_refuses_a_typo() -> None:
    schema = json.loads(gpuprov("schema").stdout)
    example = yaml.safe_load((ROOT / "inventories" / "example" / "inventory.yaml").read_text())
    spec = example["all"]["vars"]["gpuprov"]
    jsonschema.validate(spec, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**spec, "nvidia_drivr": {}}, schema)


@pytest.mark.parametrize("option", ["--junit", "--html"])
def test_a_report_that_cannot_be_written_is_told_before_a_host_is_read(option: str, tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text(
        f"all: {{hosts: {{gpu01: {{ansible_ssh_executable: {tmp_path}/ssh}}}}, vars: {{gpuprov: {{nouveau: {{}}}}}}}}\n"
    )
    (tmp_path / "ssh").write_text(f"#!/bin/sh\ntouch {tmp_path}/read\nexit 255\n")
    (tmp_path / "ssh").chmod(0o755)
    done = gpuprov("verify", file, option, "/nonexistent/x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: /nonexistent/x cannot be written: No such file or directory\nhint: ")
    assert not (tmp_path / "read").exists()
    assert gpuprov("verify", file, option, tmp_path / "report").returncode == 4
    assert (tmp_path / "read").exists()
    assert (tmp_path / "report").stat().st_size


def test_json_is_printed_whatever_went_wrong(tmp_path: Path) -> None:
    done = gpuprov("check", "--json", cwd=tmp_path)
    assert done.returncode == 2
    told = json.loads(done.stdout)
    assert told["valid"] is False
    assert told["problems"][0]["message"] == "no inventory was named"
    assert "GPUPROV_INVENTORY" in told["problems"][0]["hint"]
    file = tmp_path / "inventory.yaml"
    file.write_text("all: {hosts: {gpu01: {ansible_ssh_executable: /no/such/ssh}}}\n")
    done = gpuprov("export", "--json", file)
    assert done.returncode == 4
    assert json.loads(done.stdout) == {"all": {"hosts": {}}}
    (tmp_path / "good.yaml").write_text("kept\n")
    assert gpuprov("export", file, "--out", tmp_path / "good.yaml").returncode == 4
    assert (tmp_path / "good.yaml").read_text() == "kept\n"


@pytest.mark.parametrize("word", ["802", "nvidia_driver", "nouveau.running", "nvidia_driver.version", "4"])
def test_explanations_are_as_wide_as_the_terminal(word: str) -> None:
    whole = gpuprov("explain", word, env={"COLUMNS": "1000"}).stdout
    titles = [answer["lines"] for answer in json.loads(gpuprov("explain", word, "--json").stdout)]
    copied = {text for lines in titles for title, text in lines if title in ("check", "see it")}
    for columns in (40, 80):
        lines = gpuprov("explain", word, env={"COLUMNS": str(columns)}).stdout.splitlines()
        assert {text for text in copied if not any(line.endswith(text) for line in lines)} == set()
        wide = [line for line in lines if len(line) > columns and not any(text in line for text in copied)]
        assert not [line for line in wide if len(line.split()) > 1], "only a single long word may stand out"
        assert " ".join(lines).split() == whole.split()


def test_completion_is_offered() -> None:
    done = gpuprov(env={"_GPUPROV_COMPLETE": "bash_complete", "COMP_WORDS": "gpuprov ver", "COMP_CWORD": "1"})
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("value", ["inf", "nan", "1e400", "99999999999999999999", "0"])
def test_a_time_that_does_not_end_is_refused(value: str) -> None:
    for command in ("verify", "topology", "export", "accept"):
        done = CliRunner().invoke(cli, [command, "--timeout", value, "x"])
        assert done.exit_code == 2, (command, done.output)
        assert "--timeout" in done.output
