"""Whose record it is, where several hosts, files or names are at hand."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import tarfile
from collections.abc import Callable
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
from tests.facts.captures import reports
from tests.facts.captures.test_plain import DOWN, IBSTAT, XML
from tests.facts.captures.test_reports import pair, specs
from tests.rows import run_each

INVENTORY = "all: {hosts: {gpu017: {}, gpu018: {}}, vars: {gpuprov: {health: {}}}}\n"


def captured_log(log: str) -> str:
    """A capture of gpu017 that has a kernel log."""
    rows = [f"line|{row}" for row in log.splitlines()]
    text = "\n".join(("now|99", "boot|0", "source|dmesg", f"first|{log.splitlines()[0]}", *rows))
    return json.dumps({"gpuprov_capture": 2, "host": "gpu017", "outputs": {"kernel_log": {"text": text}}})


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


@pytest.mark.parametrize(
    "command", [["verify"], ["health"], ["show", "gpu018"], ["show", "gpu018", "--html", "page.html"]]
)
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
        with pytest.raises(GpuprovError, match='its host "gpu018", and its file or folder is named "gpu017"'):
            hosts(tmp_path, *fleet, others=others)


def test_a_broken_file_of_another_host_is_not_this_ones(tmp_path: Path) -> None:
    write(tmp_path, gpu017_smi_xml=XML, gpu018_smi_xml=BROKEN)
    whole, broken = read(tmp_path)
    assert (whole.host, whole.fault, whole.cut) == ("gpu017", "", "")
    assert (broken.host, "not well-formed" in broken.fault) == ("gpu018", True)


@run_each(
    ("name", "content", "why"),
    [
        ("ibstat.txt", b"\x00\x01\xfe" * 500, "ibstat: it holds no output of that name"),
        ("dmesg.txt", b"", "dmesg: it holds no output of that name"),
        ("lspci.txt", gzip.compress(b"x" * 5000, mtime=0)[:20], "lspci: "),
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


XID = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
BOOT = "Linux version 6.8.0-79-generic (buildd@lcy02)"
CENTRAL = "".join(
    f"Nov 28 10:{minute:02d}:00 {host} kernel: {text}\n"
    for minute, (host, text) in enumerate(
        (("localhost", BOOT), ("gpu017.cl", BOOT), ("gpu018", BOOT), ("gpu017", XID), ("gpu018", BOOT), ("other", XID))
    )
)
JOURNAL = "".join(
    f"-- Boot {host}1 --\nNov 28 10:{minute:02d}:00 {host} kernel: {text}\n"
    for minute, (host, text) in enumerate((("gpu017", XID), ("gpu018", BOOT), ("gpu017", "x"), ("gpu018", "x")))
)
HEALTHY = f"[    0.000000] {BOOT}\n[    2.000000] systemd[1]: Started.\n"
SICK = f"{HEALTHY}[   90.000000] {XID}\n"


def run_health(path: Path, limit: str = "") -> tuple[str, str, dict[str, str]]:
    """What health prints on standard error, the error it ends with, and health.xid by host."""
    inventory = path.parent / "inventory.yaml"
    inventory.write_text(INVENTORY)
    words = ["health", str(inventory), "--from", str(path), "--json", *(["--limit", limit] if limit else [])]
    done = CliRunner().invoke(cli, words, standalone_mode=False)
    hosts = json.loads(done.stdout)["hosts"] if done.stdout.startswith("{") else []
    verdicts = {}
    for host in hosts:
        failed = any(one["check"] == "health.xid" for one in host["causes"])
        verdicts[host["host"]] = "fail" if failed else "pass" if "health.xid" in host["passed"] else "skip"
    return done.stderr, str(done.exception or ""), verdicts


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
@pytest.mark.parametrize("name", ["cut.log.gz", "gpu017/kern.log.1.gz"])
def test_a_compressed_log_without_its_end_passes_nothing(
    pack: Callable[[bytes], bytes], name: str, tmp_path: Path
) -> None:
    path = tmp_path / "records" / name
    path.parent.mkdir(parents=True)
    noise = "".join(f"[ {second}.{second * 7919 % 1000:03d}000] usb {second}\n" for second in range(100, 2000))
    for log, verdict in ((HEALTHY, "skip"), (SICK, "fail")):
        packed = pack(f"{log}{noise}".encode())
        path.write_bytes(packed)
        assert not next(iter(read(path.parent))).cut
        path.write_bytes(packed[: len(packed) - (9 if pack is gzip.compress else len(packed) // 8)])
        if pack is bz2.compress:  # it unpacks whole blocks alone
            path.write_bytes(pack(log.encode()) + packed[: len(packed) // 2])
        (record,) = read(path.parent)
        assert "was cut off" in record.cut
        assert run_health(path.parent if "/" in name else path, "gpu017")[2] == {"gpu017": verdict}
        said = CliRunner().invoke(cli, ["explain", "--from", str(path)], standalone_mode=False).stderr
        piped = CliRunner().invoke(cli, ["explain", "-"], input=path.read_bytes(), standalone_mode=False)
        assert "is incomplete: the compressed file" in said
        assert "is incomplete: the compressed file" in piped.stderr


@pytest.mark.parametrize(
    ("log", "limit", "expected"),
    [
        (CENTRAL, "", {"gpu017": "fail", "gpu018": "pass"}),
        (CENTRAL, "gpu017", {"gpu017": "fail"}),
        (CENTRAL, "gpu018", {"gpu018": "pass"}),
        (JOURNAL, "", {"gpu017": "fail", "gpu018": "pass"}),
        (CENTRAL.replace("gpu01", "node"), "gpu017", {}),
    ],
)
@pytest.mark.parametrize("name", ["central.log", "logs/messages"])
def test_a_log_of_several_hosts_is_taken_apart(
    log: str, limit: str, expected: dict[str, str], name: str, tmp_path: Path
) -> None:
    path = tmp_path / "x" / name
    path.parent.mkdir(parents=True)
    path.write_text(log)
    said, error, verdicts = run_health(path if name == "central.log" else path.parent, limit)
    assert verdicts == expected
    assert ("passed over, since the inventory does not have them: lines of" in said) == ("other" in log and not error)
    assert ("is a log of several hosts, and the inventory has none" in error) == (not expected)


@run_each(
    ("files", "path", "limit", "expected"),
    [
        ({"gpu017.dmesg.txt": SICK}, "gpu017.dmesg.txt", "gpu018", {}),
        ({"gpu017/dmesg.txt": SICK}, "gpu017/dmesg.txt", "gpu018", {}),
        ({"gpu017/dmesg.txt": SICK}, "gpu017", "gpu018", {}),
        ({"gpu017/logs/dmesg": SICK}, "gpu017", "gpu018", {}),
        ({"t/gpu017.dmesg.txt": SICK, "t/gpu018.smi.xml": XML}, "t", "gpu018", {"gpu018": "skip"}),
        ({"t/gpu017.dmesg.txt": SICK, "t/gpu018.smi.xml": XML}, "t", "", {"gpu017": "fail", "gpu018": "skip"}),
        ({"t/gpu017.dmesg.txt": SICK, "t/smi.xml": XML}, "t", "gpu018", {}),
        ({"GPU017.dmesg.txt": SICK}, "GPU017.dmesg.txt", "gpu018", {}),
        ({"gpu017/smi.xml": XML, "gpu017/dmesg.gz": SICK}, "gpu017", "gpu017", {"gpu017": "fail"}),
        ({"gpu017/smi.xml": XML, "gpu017/kern.log.1": SICK}, "gpu017", "gpu017", {"gpu017": "fail"}),
        ({"gpu017/kern.log.1": SICK, "gpu017/kern.log": HEALTHY}, "gpu017", "gpu017", {"gpu017": "pass"}),
        ({"gpu017/messages-20261101": HEALTHY, "gpu017/messages": SICK}, "gpu017", "gpu017", {"gpu017": "fail"}),
        ({"gpu017/a.json": captured_log(SICK)}, "gpu017", "gpu017", {"gpu017": "fail"}),
    ],
)
def test_names_of_files_and_folders_say_whose_they_are(
    files: dict[str, str], path: str, limit: str, expected: dict[str, str], tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        data = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
    assert run_health(tmp_path / path, limit)[2] == expected


@pytest.mark.parametrize(
    ("name", "limit", "expected"),
    [
        ("10.0.0.3.dmesg.txt", "10.0.0.2", []),
        ("10.0.0.2.dmesg.txt", "10.0.0.2", ["10.0.0.2"]),
        ("gpu1.b.dmesg.txt", "gpu1.a", []),
        ("gpu1.a.dmesg.txt", "gpu1.a", ["gpu1.a"]),
    ],
)
@pytest.mark.parametrize("folder", [False, True])
def test_a_files_name_may_be_that_of_a_host_with_dots(
    name: str, limit: str, expected: list[str], folder: bool, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(SICK)
    others = tuple({"10.0.0.2", "10.0.0.3", "gpu1.a", "gpu1.b"} - {limit})
    assert hosts(tmp_path if folder else tmp_path / name, limit, others=others) == expected


def test_an_address_is_no_short_name() -> None:
    with pytest.raises(GpuprovError, match=r'calls its host "10\.0\.0\.9"'):
        recorded.read([pair("10.0.0.2")], [Record(host="10.0.0.9", path="a", kind="kernel log", outputs={})])


def test_an_sosreport_of_a_host_that_gathers_logs_has_its_own_lines(tmp_path: Path) -> None:
    tree = {name: text for name, text in reports.sosreport().items() if "dmesg" not in name and "journal" not in name}
    for host, lines in (("gpu017", 1), ("gpu018", 0)):
        path = tmp_path / f"{host}.tar"
        members: dict[str, str | bytes] = {
            **tree,
            "var/log/messages": CENTRAL,
            "sos_commands/kernel/uname_-a": f"Linux {host} 6.8.0 #1\n",
        }
        path.write_bytes(reports.tarball(members, "w", "sosreport-x/"))
        (record,) = read(path)
        assert record.outputs["kernel_log"].text.count(f"kernel: {XID}") == lines


def test_what_is_not_read_and_a_name_that_yields_to_the_limit_are_told(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", dmesg_log=LOG_OF_018.replace("gpu018", "foo"), a_pdf="%PDF", b_yaml="a: 1\n")
    said = run_health(folder, "gpu017")[0]
    assert f'{folder} calls its host "foo"; judged as gpu017, as --limit says\n' in said
    assert f"{folder}: not read, since they are none of the records that gpuprov knows: a.pdf, b.yaml\n" in said
    (folder / "kern.log.2.gz").write_bytes(b"\x1f\x8b\x08" + b"x" * 90)
    assert "kern: damaged" in read(folder)[0].cut


@run_each(
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


@run_each("top", ["", "./", "case-4711/", "./case-4711/"])
def test_an_archive_of_a_folder_is_read_as_that_folder(tmp_path: Path, top: str) -> None:
    for name in ("gpu017", "gpu018"):
        write(tmp_path / name, dmesg_log=LOG_OF_018.replace("gpu018", name))
    with tarfile.open(tmp_path / "logs.tar.gz", "w:gz") as archive:
        for name in ("gpu017", "gpu018"):
            archive.add(tmp_path / name, f"{top}{name}")
    assert hosts(tmp_path / "logs.tar.gz", "gpu017", "gpu018") == ["gpu017", "gpu018"]
