"""The command line as a user meets it: exit codes, streams, help with an example, no traceback for a user's mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from gpuprov.cli import cli
from gpuprov.cli.sections import PURPOSES
from tests.commands import run_forked as gpuprov
from tests.rows import run_each

pytestmark = pytest.mark.install

ROOT = Path(__file__).parents[1]
GOOD = "all: {hosts: {gpu01: {ansible_connection: local}}, vars: {gpuprov: {nouveau: {}}}}\n"


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


@run_each("name", COMMANDS)
def test_every_command_shows_an_example(name: str) -> None:
    above = click.Context(cli, info_name="gpuprov", **cli.context_settings)
    text = COMMANDS[name].get_help(click.Context(COMMANDS[name], above, info_name=name))
    assert f"gpuprov {name}" in text


def test_the_list_of_commands_is_whole_at_80_columns() -> None:
    text = CliRunner().invoke(cli, ["--help"], env={"COLUMNS": "80"}).stdout
    assert len(text.splitlines()) <= 30
    assert set(cli.commands) <= set(text.partition("Everyday commands:")[2].split())
    usage, *lines = text.splitlines()
    assert usage.startswith("Usage: ")
    assert not [line for line in lines if line.endswith("...") or len(line) > 80]


@run_each("name", COMMANDS)
def test_no_word_of_a_help_text_is_broken_at_80_columns(name: str) -> None:
    def lines(width: int) -> list[str]:
        above = cli.make_context("gpuprov", [], resilient_parsing=True, terminal_width=width, max_content_width=width)
        context = COMMANDS[name].context_class(COMMANDS[name], above, info_name=name)
        return COMMANDS[name].get_help(context).splitlines()

    assert {*" ".join(lines(80)).split()} - {"\\"} == {*" ".join(lines(400)).split()} - {"\\"}
    assert not [line for line in lines(80) if len(line) > 80]


def test_every_command_has_one_purpose() -> None:
    listed = [name for names in PURPOSES.values() for name in names]
    assert sorted(listed) == sorted(cli.commands)


def test_a_command_lists_its_own_options_first() -> None:
    own, _, shared = CliRunner().invoke(cli, ["plan", "--help"]).stdout.partition("Inventory and connection options:")
    assert "--quick" in own
    assert "--limit PATTERN" not in own
    assert "--limit PATTERN" in shared
    assert "--ask-become-pass" in shared


LOG = b"""[ 11.0] usb 1-1: new device
[ 12.3] NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus.
[ 12.4] \x1b[31m\xff
[ 13.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus.
"""


@run_each(
    ("log", "code", "said"),
    [
        (LOG, 0, "symptom: Xid 79\n  seen         2 times in standard input: [ 12.3] NVRM: Xid"),
        (b"all is well\n", 2, "error: standard input holds no message that gpuprov knows"),
        (b"", 2, "error: standard input holds no message that gpuprov knows"),
        (b"x" * ((64 << 20) + 1), 2, "error: standard input holds no message that gpuprov knows"),
    ],
)
def test_explain_reads_a_log_that_is_piped_in(log: bytes, code: int, said: str) -> None:
    done = gpuprov("explain", "-", given=log)
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done
    assert "\x1b" not in done.stdout


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


@run_each("verb", ["plan", "apply", "verify", "render"])
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
    assert 'there is no capability "novueau"; did you mean "nouveau"?' in done.stderr


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
    assert 'there is no table "gpu"; did you mean "gpus"?' in gpuprov("catalog", "gpu").stderr
    assert 'there is no table "xx"; allowed: gpus, drivers, cuda, mig,' in gpuprov("catalog", "xx").stderr


def test_the_schema_takes_the_example_and_refuses_a_typo() -> None:
    schema = json.loads(gpuprov("schema").stdout)
    example = yaml.safe_load((ROOT / "inventories" / "example" / "inventory.yaml").read_text())
    spec = example["all"]["vars"]["gpuprov"]
    jsonschema.validate(spec, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**spec, "nvidia_drivr": {}}, schema)


@run_each("option", ["--junit", "--html"])
def test_a_report_that_cannot_be_written_is_told_before_a_host_is_read(option: str, tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text(
        f"all: {{hosts: {{gpu01: {{ansible_ssh_executable: {tmp_path}/ssh}}}}, vars: {{gpuprov: {{nouveau: {{}}}}}}}}\n"
    )
    (tmp_path / "ssh").write_text(f"#!/bin/sh\ntouch {tmp_path}/read\nexit 255\n")
    (tmp_path / "ssh").chmod(0o755)
    done = gpuprov("verify", file, option, "/nonexistent/x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: /nonexistent/x cannot be written: No such file or directory\nfix: ")
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
    assert "GPUPROV_INVENTORY" in told["problems"][0]["fix"]
    file = tmp_path / "inventory.yaml"
    file.write_text("all: {hosts: {gpu01: {ansible_ssh_executable: /no/such/ssh}}}\n")
    done = gpuprov("export", "--json", file)
    assert done.returncode == 4
    assert json.loads(done.stdout) == {"all": {"hosts": {}}}
    (tmp_path / "good.yaml").write_text("kept\n")
    assert gpuprov("export", file, "--out", tmp_path / "good.yaml").returncode == 4
    assert (tmp_path / "good.yaml").read_text() == "kept\n"


@run_each("word", ["802", "nvidia_driver", "nouveau.running", "nvidia_driver.version", "4"])
def test_explanations_are_as_wide_as_the_terminal(word: str) -> None:
    whole = gpuprov("explain", word, env={"COLUMNS": "1000"}).stdout
    titles = [answer["lines"] for answer in json.loads(gpuprov("explain", word, "--json").stdout)]
    copied = {text for lines in titles for title, text in lines if title in ("check", "see it", "source")}
    for columns in (40, 80):
        lines = gpuprov("explain", word, env={"COLUMNS": str(columns)}).stdout.splitlines()
        assert {text for text in copied if not any(line.endswith(text) for line in lines)} == set()
        wide = [line for line in lines if len(line) > columns and not any(text in line for text in copied)]
        assert not [line for line in wide if len(line.split()) > 1], "only a single long word may stand out"
        assert " ".join(lines).split() == whole.split()


def offered(line: str, cwd: Path, env: dict[str, str] | None = None) -> list[str]:
    """Return bash's completions for the last word of a line: `plain,VALUE` or `file,VALUE`."""
    words = line.split(" ")
    asked = {"_GPUPROV_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = gpuprov(env={**asked, **(env or {})}, cwd=cwd)
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


OFFERED = [
    ("gpuprov ver", ["plain,verify"]),
    ("gpuprov verify inv", ["file,inv"]),
    ("gpuprov plan -i inv", ["file,inv"]),
    ("gpuprov plan -o fri", ["file,fri"]),
    ("gpuprov verify inventory.yaml --limit gpu", ["plain,gpu01", "plain,gpu02"]),
    ("gpuprov verify other.yaml --limit inf", ["plain,inference", "plain,infer01"]),
    ("gpuprov plan other.yaml -o friday.plan -l training,inf", ["plain,training,inference", "plain,training,infer01"]),
    ("gpuprov rehearse --kind machine -i other.yaml --limit inf", ["plain,inference", "plain,infer01"]),
    ("gpuprov verify --limit tr", ["plain,training"]),
    ("gpuprov verify --limit al", ["plain,all"]),
    ("gpuprov verify --limit training:!gpu02", ["plain,training:!gpu02"]),
    ("gpuprov explain mig.lay", [f"plain,mig.layout[]{field}" for field in ("", ".gpus", ".mode", ".instances")]),
    (
        "gpuprov verify -i inventory.yaml --limit training,!gpu02,!g",
        ["plain,training,!gpu02,!gpu01", "plain,training,!gpu02,!gpu02"],
    ),
    ("gpuprov topology gpu01 inv", ["file,inv"]),
    ("gpuprov topology gpu", ["plain,gpu01", "plain,gpu02"]),
    ("gpuprov capture gpu", ["plain,gpu01", "plain,gpu02"]),
    ("gpuprov capture gpu01 inv", ["file,inv"]),
    ("gpuprov plan --only nouveau,nv", ["plain,nouveau,nvidia_absent", "plain,nouveau,nvidia_driver"]),
    ("gpuprov accept --only rdma,n", ["plain,rdma,nccl", "plain,rdma,nvbandwidth"]),
    ("gpuprov schema --of dri", ["plain,drift"]),
    ("gpuprov mig fit --gpu h200-s", ["plain,H200-SXM"]),
    ("gpuprov catalog mig H200-N", ["plain,H200-NVL"]),
    ("gpuprov catalog drivers H200-N", []),
    ("gpuprov verify --limit @agai", ["plain,@again.retry"]),
]


@run_each(("line", "expected"), OFFERED, ids=[line for line, _ in OFFERED])
def test_completion_offers(line: str, expected: list[str], tmp_path: Path) -> None:
    text = "all: {children: {training: {hosts: {'gpu[01:02]': {}}}}, vars: {gpuprov: {nouveau: {}}}}\n"
    (tmp_path / "inventory.yaml").write_text(text)
    (tmp_path / "other.yaml").write_text(
        "all: {children: {inference: {hosts: {infer01: {}}}}, vars: {gpuprov: {nouveau: {}}}}\n"
    )
    (tmp_path / "again.retry").write_text("gpu01\n")
    assert offered(line, tmp_path) == expected


def test_completion_runs_nothing_and_offers_nothing_of_a_broken_inventory(tmp_path: Path) -> None:
    script = tmp_path / "inventory.yaml"
    script.write_text("#!/bin/sh\ntouch ran\necho '{}'\n")
    script.chmod(0o755)
    assert offered("gpuprov verify --limit g", tmp_path) == []
    assert not (tmp_path / "ran").exists()
    script.chmod(0o644)
    assert offered("gpuprov verify --limit g", tmp_path) == []


@run_each("value", ["inf", "nan", "1e400", "99999999999999999999", "0"])
def test_a_time_that_does_not_end_is_refused(value: str) -> None:
    for command in ("verify", "topology", "export", "accept"):
        done = CliRunner().invoke(cli, [command, "--timeout", value, "x"])
        assert done.exit_code == 2, (command, done.output)
        assert "--timeout" in done.output


FAKE = """#!/bin/bash
printf "%s\\n" "$*" >>PLACE/asked
mkdir -p PLACE/open; : >PLACE/open/$$; trap 'rm -f PLACE/open/$$' EXIT
sleep 0.2; ls PLACE/open | wc -l >>PLACE/open_at_a_time
case "$*" in *gpu3*) echo 'ssh: connect to host gpu3 port 22: No route to host' >&2; exit 255;; esac
PATH=PLACE/without:$PATH sh
"""
SLOW = "apt-cache dkms nvidia-smi nvidia-persistenced journalctl"
"""Programs of this machine that take long to answer, and that no test here asks for anything."""


@pytest.fixture
def reached(tmp_path: Path) -> Path:
    """An inventory of four hosts that our own ssh reaches: this machine, four times; gpu3 is down."""
    (tmp_path / "ssh").write_text(FAKE.replace("PLACE", str(tmp_path)))
    (tmp_path / "ssh").chmod(0o755)
    (tmp_path / "without").mkdir()
    for name in SLOW.split():
        (tmp_path / "without" / name).symlink_to("/bin/true")
    file = tmp_path / "inventory.yaml"
    file.write_text(
        f"all: {{hosts: {{'gpu[1:4]': {{ansible_ssh_executable: {tmp_path}/ssh}}}}, vars: {{gpuprov: {{nouveau: "
        f"{{}}}}}}}}\n"
    )
    return file


READ = [("plan", "--quick"), ("verify",), ("export",), ("topology", "all"), ("capture", "all", "--out", "out")]


@pytest.mark.parametrize("words", READ, ids=lambda words: words[0])
def test_forks_user_and_inventory_do_what_they_say(words: tuple[str, ...], reached: Path, tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    options = ["-i", str(reached), "-f", "1", "-u", "deploy", "-e", "ansible_port=2222"]
    done = gpuprov(*words, *options, cwd=tmp_path, env=env)
    assert done.returncode == 4, done.stderr
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == 4
    assert all("User=deploy" in line and "Port=2222" in line for line in asked)
    assert set((tmp_path / "open_at_a_time").read_text().split()) == {"1"}
    (tmp_path / "open_at_a_time").unlink()
    gpuprov(*words, "-i", str(reached), cwd=tmp_path, env=env)
    assert max(map(int, (tmp_path / "open_at_a_time").read_text().split())) > 1


def test_what_failed_is_done_again_by_a_file(reached: Path, tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    done = gpuprov("plan", "--quick", reached, env=env)
    (line,) = [line for line in done.stderr.splitlines() if "to do again" in line]
    assert line.startswith("1 of 4 hosts to do again: --limit @")
    (tmp_path / "asked").unlink()
    gpuprov("plan", "--quick", reached, "--limit", line.partition("--limit ")[2], env=env)
    assert [line.split(" -- ")[1].split()[0] for line in (tmp_path / "asked").read_text().splitlines()] == ["gpu3"]


def test_options_that_cannot_work_are_refused(reached: Path, tmp_path: Path) -> None:
    done = gpuprov("verify", reached, "-K")
    assert (done.returncode, "--ask-become-pass: no host needs it" in done.stderr) == (2, True), done.stderr
    done = gpuprov("verify", reached, "-u", "$(id)")
    assert (done.returncode, "allowed: a user's name" in done.stderr) == (2, True), done.stderr
    done = gpuprov("verify", reached, "-e", "ansible_user=ops", "-u", "deploy")
    assert (done.returncode, "every host names its own user" in done.stderr) == (2, True), done.stderr
    for option in (["-f", "2"], ["-u", "deploy"], ["-K"]):
        done = gpuprov("verify", reached, "--from", tmp_path, *option)
        assert (done.returncode, "--from reaches no host" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "asked").exists()


def test_the_password_of_sudo_is_asked_for_and_no_argument_has_it(
    reached: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sudo").write_text(f'#!/bin/sh\nread -r given; echo "$given" >>{tmp_path}/given; shift 6; exec "$@"\n')
    (tmp_path / "sudo").chmod(0o755)
    monkeypatch.setattr("getpass.getpass", lambda prompt: "hunter2" if prompt == "BECOME password: " else "")
    login = f"{{ansible_become: true, ansible_become_exe: {tmp_path}/sudo}}"
    done = CliRunner().invoke(
        cli, ["export", "-i", str(reached), "-u", "deploy", "-K", "-e", login], standalone_mode=False
    )
    assert done.return_value == 4, done.output
    assert set((tmp_path / "given").read_text().split()) == {"hunter2"}
    assert "hunter2" not in (tmp_path / "asked").read_text()
    assert "hunter2" not in done.output


def test_a_host_that_the_plan_did_not_reach_stands_in_what_apply_came_to(
    good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was green else, with a host of the plan as it was before."""
    monkeypatch.chdir(good.parent)
    away = "away: {ansible_host: 127.0.0.1, ansible_port: 1}"
    good.write_text(GOOD.replace("local}", "local}, " + away))
    assert gpuprov("plan", "--quick", "-o", "friday.plan", cwd=good.parent).returncode == 4
    taken: dict[str, Any] = {}

    def run(pairs: Any, *_: Any, left_out: Any, **__: Any) -> int:
        taken.update(pairs=[raw.name for raw, _ in pairs], left_out=left_out)
        return 0

    monkeypatch.setattr("gpuprov.apply.run", run)
    done = CliRunner().invoke(cli, ["apply", "friday.plan"], standalone_mode=False)
    assert (done.exception, taken["pairs"]) == (None, ["gpu01"])
    assert {name: one.state for name, one in taken["left_out"].items()} == {"away": "unreachable"}
    assert "the plan did not reach it: ssh: connect" in taken["left_out"]["away"].message


@run_each(("raised", "code"), [("ValueError('x')", 70), ("KeyboardInterrupt", 130)])
def test_a_defect_is_not_a_host_that_differs(raised: str, code: int) -> None:
    told = f"from gpuprov import __main__, cli\ndef broken(**_): raise {raised}\ncli.cli.main = broken\n__main__.run()"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (code, code == 70), done.stderr


def test_debug_shows_the_traceback_of_an_error_and_keeps_its_code(good: Path) -> None:
    done = gpuprov("check", good.with_name("none.yaml"), "--debug")
    assert done.returncode == 2


def test_what_check_prints_as_json_has_a_schema(good: Path) -> None:
    bad = good.with_name("bad.yaml")
    bad.write_text(GOOD.replace("nouveau: {}", "nouveau: 1"))
    some = good.with_name("some.yaml")
    some.write_text("all: {hosts: {lone: {}, gpu01: {gpuprov: {nouveau: {}}}}}\n")
    schema = json.loads(gpuprov("schema", "--of", "check").stdout)
    for file, valid, unmanaged in (
        (good, True, []),
        (bad, False, []),
        (some, True, ["lone"]),
        ("none.yaml", False, []),
    ):
        done = gpuprov("check", "--json", file)
        told = json.loads(done.stdout)
        jsonschema.validate(told, schema)
        assert (told["valid"], told["exit_code"], told["unmanaged"]) == (valid, done.returncode, unmanaged)


@pytest.mark.parametrize(
    "words", ["plan -o inventory.yaml", "verify --html inventory.yaml", "export -i inventory.yaml -o ./inventory.yaml"]
)
def test_the_inventory_is_never_what_is_written(good: Path, words: str) -> None:
    """`-o` is beside `-i`; without INVENTORY it is ./inventory.yaml that is read."""
    done = gpuprov(*words.split(), cwd=good.parent)
    assert (done.returncode, "would be overwritten, and is what is read" in done.stderr) == (2, True), done.stderr
    assert good.read_text() == GOOD


@pytest.mark.parametrize(
    "words",
    [
        "verify --html -",
        "verify --junit -",
        "show gpu01 --html -",
        "plan -o -",
        "capture gpu01 -o -",
        "render -o -",
        "init -o -",
    ],
)
def test_a_dash_is_no_file_to_write(good: Path, words: str) -> None:
    done = CliRunner().invoke(cli, [*words.split(), "-i", str(good)])
    assert (done.exit_code, "- is not a name of a f" in done.stderr) == (2, True), done.stderr
    assert not Path("-").exists()


def test_a_name_too_long_for_a_file_is_refused(good: Path) -> None:
    done = gpuprov("plan", "--html", "x" * 5000, cwd=good.parent)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr


def test_a_report_of_before_is_written_over(good: Path) -> None:
    (good.parent / "report.html").write_text("of yesterday")
    done = gpuprov("verify", "--only", "nouveau", "--html", "report.html", cwd=good.parent)
    assert "overwritten" not in done.stderr
    assert (good.parent / "report.html").read_text() != "of yesterday"


def test_a_saved_plan_that_reached_no_host_is_not_offered(tmp_path: Path) -> None:
    away = "ansible_host: 127.0.0.1, ansible_port: 1"
    (tmp_path / "inventory.yaml").write_text(GOOD.replace("ansible_connection: local", away))
    done = gpuprov("plan", "inventory.yaml", "-o", "friday.plan", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert "saved in friday.plan, which cannot be applied: no host was reached" in done.stderr


def test_a_plan_is_saved_and_applied(reached: Path, tmp_path: Path) -> None:
    reached.write_text(reached.read_text().replace("gpu[1:4]", "gpu[1:2]"))
    file = tmp_path / "friday.plan"
    (tmp_path / "rack7").write_text("gpu1\ngpu2\n")
    words = ("-e", "ansible_port=2222", "-l", "@rack7")
    done = gpuprov("plan", "--quick", "inventory.yaml", "-o", file, *words, cwd=tmp_path)
    assert done.returncode in (0, 1), done.stderr
    assert f"saved: gpuprov apply {file} does this" in done.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    asked = json.loads(file.read_text())["asked"]
    assert (asked["inventory"], asked["extra_vars"]) == ([str(reached)], ["ansible_port=2222"])
    assert asked["limit"] == f"@{tmp_path}/rack7"
    for option in ("--limit=gpu1", "-igpu1,", "-ea=b", "-uops", "--only=nouveau", "--full", "--reboot"):
        done = gpuprov("apply", file, option)
        assert (done.returncode, "goes with gpuprov plan" in done.stderr) == (2, True), done.stderr
    assert "name it alone" in gpuprov("apply", file, reached).stderr
    reached.write_text(reached.read_text().replace("nouveau: {}", "nouveau: {}, persistence: {}"))
    (tmp_path / "asked").unlink()
    done = gpuprov("apply", file, cwd=Path("/"))
    assert done.returncode == 2
    assert (
        "error: saved plan is stale: it can no longer be applied, because something has changed since it was made; "
        "nothing was changed\n  gpu1: persistence is new in the spec" in done.stderr
    )
    assert not (tmp_path / "asked").exists(), "no host was reached for it"


def test_warnings_of_an_inventory_are_printed_by_check_and_plan_alone(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yaml"
    spec = "gpu: {model: H100-SXM5-80GB, count: 8}, nvidia_driver: {}"
    inventory.write_text(f"all: {{hosts: {{h1: {{ansible_connection: local}}}}, vars: {{gpuprov: {{{spec}}}}}}}\n")
    warning, pointer = "the spec has no fabric_manager", "1 warning about the inventory: gpuprov check prints them"
    for words, printed in (
        (["check"], True),
        (["render", "--out", "made"], False),
        (["fleet", "freeze", "-v", "-o", "f"], True),
    ):
        done = gpuprov(*words, str(inventory), cwd=tmp_path)
        assert (warning in done.stderr, pointer in done.stderr) == (printed, not printed), done.stderr
