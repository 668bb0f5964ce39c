"""Effects of the terminal's end on the work: none. Readers that go away, full disks, no terminal to ask on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuprov.core import terminal
from tests.commands import spawn as gpuprov
from tests.rows import run_each
from tests.test_cli import ROOT

pytestmark = pytest.mark.install

SAYS = """
import sys
import time
from pathlib import Path
from gpuprov.core import terminal as console
from gpuprov.core.errors import GpuprovError
for _ in range(3):
    console.progress("under way")
    console.warning("look out")
    console.error(GpuprovError("broken", "fix it"))
    console.result("x" * 100_000)
with console.Progress(["a", "b"], "doing") as progress:
    progress.update("a", "half")
    progress.done("a")
Path(sys.argv[1]).write_text("done")
"""
APPLIES = r"""
import sys
import time
from pathlib import Path
from gpuprov import apply as applying
from gpuprov.core import terminal as console
from gpuprov.plan.show import Terminal
from tests.apply import fleet
place = Path(sys.argv[1])
with fleet.project(place):
    options = applying.Options(yes=True, log_dir=place / "log", verbose=True)
    run = applying.apply([fleet.pair("new1"), fleet.pair("new2")], options, Terminal(verbose=True))
console.result(applying.as_text(run))
(place / "states").write_text("\n".join(f"{host.state} {host.message}".strip() for host in run.hosts))
sys.exit(run.exit_code)
"""


def unread(code: str, *arguments: str | Path) -> int:
    """Return the exit status of a program whose output nobody reads."""
    for_reading, for_writing = os.pipe()
    os.close(for_reading)
    try:
        command = [sys.executable, "-c", code, *map(str, arguments)]
        done = subprocess.run(command, stdout=for_writing, stderr=for_writing, cwd=ROOT, check=False, timeout=60)
    finally:
        os.close(for_writing)
    return done.returncode


def test_output_that_nobody_reads_is_dropped(tmp_path: Path) -> None:
    status = unread(SAYS, tmp_path / "mark")
    assert status == 0
    assert (tmp_path / "mark").read_text() == "done"


def test_an_apply_goes_on_when_nobody_reads_it(tmp_path: Path) -> None:
    status = unread(APPLIES, tmp_path)
    assert (tmp_path / "states").read_text().split("\n") == ["changed", "changed"]
    assert {path.name for path in (tmp_path / "state").iterdir()} == {"new1", "new2"}
    assert status == 0


@run_each("words", ["catalog gpus", "explain 802", "schema", "--help", "catalog --help"])
def test_a_closed_pipe_is_status_0_without_noise(words: str) -> None:
    command = f"{{ {sys.executable} -m gpuprov {words}; echo status $? >&2; }} | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stderr.splitlines()[-1] == "status 0"
    assert "Error" not in done.stderr
    assert "Exception" not in done.stderr


def test_streams_that_were_closed_before_the_start() -> None:
    command = f"{sys.executable} -m gpuprov catalog gpus >&- 2>&-"
    assert subprocess.run(["bash", "-c", command], check=False, cwd=ROOT).returncode == 0


def test_a_full_disk_is_one_clear_error() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        command = [sys.executable, "-m", "gpuprov", "catalog", "gpus"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.startswith("error: standard output cannot be written: No space left on device\n")
    assert "Traceback" not in done.stderr


def test_a_folder_that_was_removed_is_named(tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text("all: {hosts: {gpu01: {ansible_connection: local}}, vars: {gpuprov: {nouveau: {}}}}\n")
    command = f"mkdir {tmp_path}/gone; cd {tmp_path}/gone; rmdir {tmp_path}/gone; {sys.executable} -P -m gpuprov check"
    where = {**os.environ, "PYTHONPATH": str(ROOT)}
    for inventory in (str(file), ""):
        done = subprocess.run(
            ["bash", "-c", f"{command} {inventory}"], capture_output=True, text=True, check=False, env=where
        )
        assert done.returncode == 2, done.stderr
        assert "error: the current folder no longer exists\nfix: go to another: cd\n" in done.stderr


def test_apply_refuses_where_it_cannot_ask(tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text("all: {hosts: {gpu01: {ansible_connection: local}}, vars: {gpuprov: {nouveau: {}}}}\n")
    done = gpuprov("apply", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: apply asks before it changes anything, and there is no terminal to ask on\nfix: --yes\n"
    )


def test_a_slow_reader_of_a_pipe_that_does_not_block_gets_all_of_it() -> None:
    """As Node.js, and what is built on it, may hand a pipe on; it holds 64 KiB."""
    for_reading, for_writing = os.pipe()
    os.set_blocking(for_writing, False)
    command = [sys.executable, "-m", "gpuprov", "schema"]
    with subprocess.Popen(command, stdout=for_writing, cwd=ROOT) as child:
        os.close(for_writing)
        time.sleep(2)
        with os.fdopen(for_reading, "rb") as reader:
            told = reader.read()
        assert child.wait(60) == 0
    assert json.loads(told)


@run_each("name", ["C", "POSIX", "xx_XX.UTF-8"])
def test_ansible_starts_in_a_locale_that_is_not_utf_8_or_not_there(name: str, tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text("all: {hosts: {gpu01: {ansible_connection: local}}, vars: {gpuprov: {nouveau: {}}}}\n")
    done = gpuprov("check", "--no-cache", file, env={"LC_ALL": name})
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 host valid\n", "")
    told = (
        "import locale; from gpuprov.core import locales; locales.settle(); print(locale.setlocale(locale.LC_ALL, ''))"
    )
    child = [sys.executable, "-c", told]
    names = subprocess.run(child, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": name}).stdout
    assert "utf" in names.lower(), "what it starts has it, too"


def test_where_no_locale_will_do_the_way_out_is_named(tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text("all: {hosts: {gpu01: {ansible_connection: local}}, vars: {gpuprov: {nouveau: {}}}}\n")
    latin = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = gpuprov("check", "--no-cache", file, env=latin)
    assert done.returncode == 2, "1 would say that a host differs from its spec"
    assert done.stderr.endswith("fix: begin the command with LC_ALL=C.UTF-8\n")


def test_lines_of_a_result_break_between_words_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "gpu.yaml:6:32: a message of many words\n  /a/long/path/that/stays/whole"
    terminal.result(text, wrap=True)
    assert capsys.readouterr().out == f"{text}\n"
    monkeypatch.setattr(terminal, "room", lambda _: 24)
    terminal.result(text, wrap=True)
    assert capsys.readouterr().out.splitlines() == [
        "gpu.yaml:6:32: a message",
        "  of many words",
        "  /a/long/path/that/stays/whole",
    ]
