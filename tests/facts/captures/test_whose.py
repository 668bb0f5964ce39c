"""Whose record it is, where several hosts, files or names are at hand."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuprov.cli import cli
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.captures import Record, read
from gpuprov.verify import recorded
from gpuprov.verify.evaluate import RECORDED
from gpuprov.verify.fitness import fitness
from gpuprov.verify.verify import exit_code
from tests.facts.captures.test_plain import DOWN, IBSTAT, XML
from tests.facts.captures.test_reports import pair, specs

INVENTORY = "all: {hosts: {gpu017: {}, gpu018: {}}, vars: {gpuprov: {health: {}}}}\n"
BROKEN = XML[: len(XML) // 2]
LOG_OF_018 = "Nov 28 10:00:00 gpu018 kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05\n"


def hosts(path: Path, *names: str, others: tuple[str, ...] = ()) -> list[str]:
    """The hosts that are judged by the records at a path."""
    return [*recorded.read([pair(name) for name in names], read(path), named=True, others=others)]


def write(folder: Path, **texts: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def test_a_record_of_another_host_of_the_inventory_is_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path, gpu017_smi_xml=XML, gpu018_smi_xml=XML)
    assert hosts(path, "gpu018", others=("gpu017",)) == ["gpu018"]
    alone = Record(host="gpu017.example.com", path="a", kind="capture", outputs={})
    assert recorded.read([pair("gpu018")], [alone], named=True, others=("gpu017",)) == {}
    assert [*recorded.read([pair("gpu018")], [alone], named=True)] == ["gpu018"], "--limit says whose it is"


@pytest.mark.parametrize("command", [["verify"], ["health"], ["show", "gpu018", "--html", "page.html"]])
def test_no_verb_judges_the_record_of_another_host(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, inventory_yaml=INVENTORY, log=LOG_OF_018.replace("gpu018", "gpu017"))
    words = [*command, "inventory.yaml", "--from", "log", *([] if "show" in command else ["--limit", "gpu018"])]
    done = CliRunner().invoke(cli, words, standalone_mode=False)
    assert done.return_value == 1 or "names no record of gpu018" in str(done.exception)
    assert not (tmp_path / "page.html").exists()
    assert "kernel_log" not in done.output


def test_forms_of_one_command_by_its_name_are_one_hosts(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t" / "gpu017", smi_xml=XML, smi_txt="==============NVSMI LOG==============\n\n", ibstat_txt=IBSTAT
    )
    write(path, dmesg_log=DOWN, journal_log=DOWN)
    (record,) = read(tmp_path / "t")
    assert {"gpu_health", "recorded_ports", "kernel_log"} <= record.outputs.keys()
    assert hosts(tmp_path / "t", "gpu017", "gpu018") == ["gpu017"]


def test_hosts_in_a_folder_below_stay_apart(tmp_path: Path) -> None:
    write(tmp_path / "logs", gpu017_xml=XML, gpu018_xml=XML)
    assert hosts(tmp_path, "gpu017", "gpu018") == ["gpu017", "gpu018"]


def test_the_folder_of_a_host_goes_before_the_name_in_its_log(tmp_path: Path) -> None:
    log = LOG_OF_018.replace("gpu018", "ip-10-0-0-7")
    path = write(tmp_path / "gpu017", smi_xml=XML, dmesg_log=log)
    assert hosts(tmp_path, "gpu017", "gpu018") == ["gpu017"]
    write(path, dmesg_log=LOG_OF_018)
    for fleet, others in ((("gpu017", "gpu018"), ()), (("gpu017",), ("gpu018",))):
        with pytest.raises(GpuprovError, match='its host "gpu018", and its folder is named "gpu017"'):
            hosts(tmp_path, *fleet, others=others)


def test_a_broken_file_of_another_host_is_not_this_ones(tmp_path: Path) -> None:
    write(tmp_path, gpu017_smi_xml=XML, gpu018_smi_xml=BROKEN)
    whole, broken = read(tmp_path)
    assert (whole.host, whole.fault, whole.cut) == ("gpu017", "", "")
    assert (broken.host, "not well-formed" in broken.fault) == ("gpu018", True)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("ibstat.txt", b"\x00\x01\xfe" * 500, "ibstat: it holds no output of that name"),
        ("dmesg.txt", b"", "dmesg: it holds no output of that name"),
        ("lspci.txt", gzip.compress(b"x" * 5000)[:20], "lspci: "),
        ("journal.log", None, "journal: this is a pipe"),
    ],
)
def test_a_record_with_a_file_that_cannot_be_read_is_not_green(
    name: str, content: bytes | None, why: str, tmp_path: Path
) -> None:
    """The checks that the other files answer still pass."""
    place = write(tmp_path, smi_xml=XML) / name
    place.write_bytes(content) if content is not None else os.mkfifo(place)
    (record,) = read(tmp_path)
    fleet = specs("all: {hosts: {gpu017: {gpuprov: {health: {ecc: any}}}}}\n")
    results = recorded.verify(fleet, [record], named=True)
    (told,) = (result for result in results if result.check == RECORDED)
    assert (told.status, why in told.found, told.found) == ("error", True, record.cut)
    assert exit_code(results) == 1
    assert [fit.fit for fit in fitness(results)] == ["not proven"]
    place.unlink()
    whole = recorded.verify(fleet, read(tmp_path), named=True)
    assert exit_code(whole) == 0, "the same without the file"
    others = [(result.check, result.status) for result in results if result.check != RECORDED]
    assert others == [(result.check, result.status) for result in whole]


@pytest.mark.parametrize(
    "data",
    [
        XML.encode("utf-8-sig"),
        XML.encode("utf-16"),
        f"$ nvidia-smi -q -x\n{XML}".encode(),
        XML.replace("\n", "\r\n").encode(),
    ],
    ids=["mark", "utf-16", "prompt", "crlf"],
)
def test_xml_as_other_systems_and_people_save_it(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "smi.xml").write_bytes(data)
    (record,) = read(tmp_path / "smi.xml")
    assert "gpu_health" in record.outputs
