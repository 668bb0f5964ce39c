"""A ticket's records are judged without an inventory."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuprov.cli import cli
from tests.rows import run_each

XID = "[1234.567890] NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, from which no inventory is found."""
    monkeypatch.chdir(tmp_path)
    for name in ("GPUPROV_INVENTORY", "ANSIBLE_INVENTORY", "ANSIBLE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["health", *words], standalone_mode=False)


def test_hosts_are_called_as_their_records_or_folders(folder: Path) -> None:
    for name in ("gpu01", "gpu02"):
        (folder / "ticket" / name).mkdir(parents=True)
        (folder / "ticket" / name / "dmesg.txt").write_text(XID)
    (folder / "other.log").write_text(f"Nov 28 10:00:00 gpu03 kernel: {XID.partition('] ')[2]}")
    done = run("--from", "ticket", "--from", "other.log", "--json", "--html", "page.html")
    assert done.return_value == 1, done.output
    found = json.loads(done.stdout)
    assert [host["host"] for host in found["hosts"]] == ["gpu01", "gpu02", "gpu03"]
    assert {host["outcome"] for host in found["hosts"]} == {"differs"}
    page = re.sub("<[^>]+>", "", (folder / "page.html").read_text())
    assert "gpuprov health --from ticket --from other.log" in page


def test_a_folder_of_one_host_and_a_file_have_its_name(folder: Path) -> None:
    (folder / "gpu07").mkdir()
    (folder / "gpu07" / "dmesg.txt").write_text(XID)
    assert run("--from", "gpu07").stdout.startswith("gpu07: not fit for work")
    (folder / "gpu08.log").write_text(XID)
    assert run("--from", "gpu08.log").stdout.startswith("gpu08: not fit for work")


def test_two_records_of_one_host_are_refused(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / name).mkdir()
        (folder / name / "gpu01.log").write_text(XID)
    done = run("--from", "a/gpu01.log", "--from", "b/gpu01.log")
    assert done.exit_code != 0
    assert "a/gpu01.log and b/gpu01.log are both records of gpu01" in str(done.exception)


@run_each("words", [("--limit", "gpu01"), ("-i", "none.yaml"), ("none.yaml",)])
def test_an_inventory_that_is_asked_for_is_needed(folder: Path, words: tuple[str, ...]) -> None:
    (folder / "dmesg.txt").write_text(XID)
    done = run("--from", "dmesg.txt", *words)
    assert done.exit_code != 0
    assert "no inventory was named" in str(done.exception) or "none.yaml" in str(done.exception)


def test_an_inventory_that_is_there_has_the_hosts(folder: Path) -> None:
    (folder / "inventory.yaml").write_text("all: {hosts: {gpu17: {}}, vars: {gpuprov: {health: {}}}}\n")
    (folder / "dmesg.txt").write_text(XID)
    assert run("--from", "dmesg.txt").stdout.startswith("gpu17: not fit for work")


def test_standard_input_is_a_record(folder: Path) -> None:
    def pipe(given: bytes, *words: str) -> Result:
        return CliRunner().invoke(cli, [*words, "--from", "-"], input=given, standalone_mode=False)

    log = f"Nov 28 10:00:00 gpu03 kernel: {XID.partition('] ')[2]}".encode()
    assert pipe(log, "health").stdout.startswith("gpu03: not fit for work")
    assert pipe(gzip.compress(log), "health").stdout.startswith("gpu03: not fit for work")
    assert pipe(XID.encode(), "health").stdout.startswith("standard-input: not fit for work")
    assert "1 time in standard input" in pipe(log, "explain").stdout
    wrong = str(pipe(b"hello\n", "health").exception)
    assert wrong.startswith("standard input cannot be read: it is none of the records that gpuprov knows")
