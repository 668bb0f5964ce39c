"""The judge finds each thing that can be broken, and knows nothing of what it judges."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.campaign import delay, outside, sabotage
from tests.campaign.__main__ import planned
from tests.campaign.group import failures
from tests.campaign.table import text
from tests.rows import run_each

VERSIONS = ("535.1", "535.2")
SITE = tuple(f"#site {file} abc 644 root" for file in outside.SITE)
WELL = outside.Look(
    lines=("#loaded 535.1", "#module 6.1.0-1-amd64 535.1", "#package nvidia-smi hi 535.1-1 nvidia-graphics-drivers",
           "#audit ",
           "#smi 0", "#job 77", "#service active", f"#held {outside.HELD}", *SITE),
    boot="12 3400", job="9000",
)  # fmt: skip
UPGRADED = ("#module 6.1.0-1-amd64 535.2", "#package nvidia-smi hi 535.2-1 nvidia-graphics-drivers", "#smi 9")


def seen(*lines: str) -> outside.Look:
    """A host that is well, but for these lines in the place of those that begin alike."""
    heads = {" ".join(line.split()[:2]) if line.startswith("#site") else line.split()[0] for line in lines}
    kept = [line for line in WELL.lines if " ".join(line.split()[:2]) not in heads and line.split()[0] not in heads]
    return replace(
        WELL, lines=(*kept, *(line for line in lines if not line.startswith("#site") or len(line.split()) > 2))
    )


@pytest.mark.parametrize(
    "now", [WELL, seen(*UPGRADED), seen("#audit half configured: x", "#package nvidia-smi iU 535.2-1 n")]
)
def test_what_holds(now: outside.Look) -> None:
    assert outside.judge(WELL, now, VERSIONS, died=False) == []


@run_each(
    ("now", "said"),
    [
        (seen("#module 6.1.0-1-amd64 "), "driver: kernel 6.1.0-1-amd64 has no module"),
        (replace(WELL, lines=tuple(line for line in WELL.lines if "#module" not in line)), "driver: no kernel"),
        (
            seen("#package a ii 535.1-1 n", "#package b ii 535.2-1 n"),
            "driver: packages of 535.1, 535.2 are installed together",
        ),
        (seen("#package a ii 470.1-1 n"), "driver: packages of 470.1"),
        (seen("#smi 9"), "driver: nvidia-smi ends with 9"),
        (seen("#loaded"), "driver: loaded was 535.1, and is none"),
        (replace(WELL, boot="12 9999"), "reboot: "),
        (replace(WELL, job=""), "process: 77, which held a GPU, is gone"),
        (replace(WELL, job="9001"), "process: 77, which held a GPU, is gone"),
        (seen("#site /root/notes"), "site: /root/notes was changed"),
        (seen("#site /root/notes abc 600 root"), "site: /root/notes was changed"),
        (seen("#held other"), f"site: {outside.HELD} is on hold no more"),
        (seen("#service failed"), "site: site.service is failed"),
    ],
)
def test_what_is_broken(now: outside.Look, said: str) -> None:
    (found,) = outside.judge(WELL, now, VERSIONS, died=False)
    assert found.startswith(said)


def test_a_secret_is_found_by_its_value(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "run.log").write_bytes(b"\xff sudo: hunter2\n")
    assert outside.secret_in_files("hunter2", tmp_path) == [f"secret: in {tmp_path}/log/run.log"]
    assert outside.secret_in_files("hunter3", tmp_path) == []


@pytest.mark.install
def test_a_secret_in_arguments_is_seen() -> None:
    import subprocess

    with outside.Watch("campaign-hunter2") as watch, subprocess.Popen([sys.executable, "-c", "input()",
                                                                       "campaign-hunter2"],
                                                                      stdin=subprocess.PIPE) as child:  # fmt: skip
        over = time.monotonic() + 20
        while not watch.found and time.monotonic() < over:
            time.sleep(0.05)
        child.kill()
    assert any("cmdline" in one for one in watch.found)


def test_the_judge_imports_the_standard_library_alone() -> None:
    tree = ast.parse(Path(outside.__file__).read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_a_seed_draws_the_same_runs_again() -> None:
    def told(runs: int) -> list[tuple[int, str, str]]:
        groups = planned(runs, "7", {"small": 10.0, "upgrade": 40.0})
        return [(run.number, run.spec, run.fault.what) for group, _ in groups for run in group]

    assert told(300) == told(300)
    assert [number for number, _, _ in told(300)] == list(range(300))
    assert told(300)[:42] == told(42)


def test_the_table_counts_runs() -> None:
    rows: list[dict[str, Any]] = [
        {"seed": "1", "kind": "locks", "spec": "small", "broken": [], "notes": [], "seconds": 7},
        {
            "seed": "1",
            "kind": "locks",
            "spec": "upgrade",
            "named": False,
            "notes": ["given up after 61 s"],
            "broken": ["site: a", "site: b", "secret: c"],
        },
    ]
    told = text(rows)
    assert "2 runs (seeds 1), 1 of them broke an invariant." in told
    assert "| locks | 2 | 1 | 1 | 0 | secret (1), site (1) |" in told
    assert "nothing of the site is lost" in told
    assert "given up | 61 s |" in told
    assert "named | 0 of 1 |" in told
    assert "secrets seen | 1 |" in told


def test_a_boot_empties_tmp_and_run() -> None:
    """What a host loses by booting is held against nobody; the same loss without a boot is."""
    now = seen("#site /tmp/alice.sock.d/keep")
    assert outside.judge(WELL, now, VERSIONS, died=True) == []
    (found,) = outside.judge(WELL, now, VERSIONS, died=False)
    assert found.startswith("site: /tmp/")
    one, other = "/run/gpuprov/x\n/etc/a", "/etc/b\n/run/gpuprov/y"
    assert outside.differences(one, other, booted=True) == ["- /etc/a", "+ /etc/b", "+ /run/gpuprov/y"]
    assert "- /run/gpuprov/x" in outside.differences(one, other)


def packet(payload: bytes, ports: bytes = b"\x13\x88\x00\x16", protocol: int = socket.IPPROTO_TCP) -> bytes:
    """A frame as a bridge passes it on: Ethernet, IPv4, TCP or UDP."""
    inner = ports + (bytes(8) + b"\x50" + bytes(7) if protocol == socket.IPPROTO_TCP else bytes(4)) + payload
    return (
        bytes(12)
        + b"\x08\x00"
        + b"\x45"
        + bytes(8)
        + bytes([protocol])
        + bytes(2)
        + b"\x0a\x00\x00\x01\x0a\x00\x00\x02"
        + inner
    )


@run_each(
    ("packets", "found"),
    [
        ([packet(b"sudo: hunter2")], True),
        ([packet(b"sudo: hun"), packet(b"ter2")], True),
        ([packet(b"hunter2", protocol=socket.IPPROTO_UDP)], True),
        ([packet(b"sudo: hun"), packet(b"ter2", ports=b"\x13\x89\x00\x16")], False),
        ([packet(b"hunter3"), b"", b"\x00" * 30, packet(b"")], False),
    ],
)
def test_a_secret_in_packets_is_seen(packets: list[bytes], found: bool) -> None:
    watch = outside.Packets.__new__(outside.Packets)
    watch.start("lo", "hunter2")
    for one in packets:
        watch.look(one)
    assert watch.found == ({"secret: in a packet of lo"} if found else set())


@pytest.mark.install
@pytest.mark.skipif(os.geteuid() != 0, reason="packets are read by root alone")
def test_packets_are_really_read() -> None:
    with outside.Packets("lo", "campaign-hunter2") as watch, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        over = time.monotonic() + 10
        while not watch.found and time.monotonic() < over:
            out.sendto(b"campaign-hunter2", ("127.0.0.1", 9))
            time.sleep(0.02)
    assert watch.found == {"secret: in a packet of lo"}
    assert watch.seen


TOLD = """\
reading 3 hosts
h2: failed: a task that a retry put right
h[0:1], g4 (3 hosts): unreachable: ssh: connect: timed out
  fix: see why it does not answer
h3: changed (3 tasks in 2 s)
  a line of h3
"""


@run_each(("host", "said"), [("h0", "timed out"), ("g4", "fix: see"), ("h2", "put right"), ("h3", ""), ("h", "")])
def test_what_an_apply_says_of_one_host(host: str, said: str) -> None:
    told = failures(TOLD, host)
    assert said in told
    assert bool(told) == bool(said)


def test_a_delay_lets_everything_through() -> None:
    async def run() -> tuple[bytes, float]:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(6))
            await writer.drain()
            writer.close()

        echoing = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = echoing.sockets[0].getsockname()[1]
        server = await delay.listen(0.02, 0, port)
        started = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        writer.write(b"secret")
        got = await reader.read()
        server.close()
        echoing.close()
        return got, time.monotonic() - started

    with mock.patch("random.uniform", lambda low, high: high):
        got, seconds = asyncio.run(run())
    assert got == b"secret"
    assert seconds >= 0.04


@pytest.mark.parametrize("what", [what for what, (_, broken) in sabotage.BREAKS.items() if broken != ("secret",)])
def test_a_product_that_was_broken_on_purpose_is_caught(what: str) -> None:
    """What the judge really saw of such applies: python -m tests.campaign --sabotage."""
    kept = json.loads((sabotage.RECORDED / f"{what}.json").read_text(encoding="utf-8"))
    before, now = (outside.Look(**{**kept[when], "lines": tuple(kept[when]["lines"])}) for when in ("before", "now"))
    found = {one.partition(":")[0] for one in outside.judge(before, now, tuple(kept["versions"]), died=False)}
    assert set(sabotage.BREAKS[what][1]) <= found
    assert outside.judge(before, before, tuple(kept["versions"]), died=False) == []


@pytest.mark.install
def test_a_secret_on_a_host_is_found(tmp_path: Path) -> None:
    """By the script that runs on hosts; its own arguments and files do not have it."""
    (tmp_path / "debug.log").write_text("password: campaign-hunter2\n", encoding="utf-8")
    (tmp_path / "well").write_text("hunter\n", encoding="utf-8")
    with outside.Watch("campaign-hunter2") as watch:
        found = outside.secret_on_host("campaign-hunter2", ("bash",), str(tmp_path))
        time.sleep(0.6)
    assert f"secret: on the host in {tmp_path}/debug.log" in found
    assert not [one for one in found if "well" in one]
    assert watch.found == set()


@pytest.mark.install
def test_a_host_that_does_not_run_is_silent_and_one_that_comes_up_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    pids = [0, 0, 4711]
    monkeypatch.setattr(outside, "first", lambda _container: pids.pop(0))
    monkeypatch.setattr(outside, "STARTS", 30)
    assert "4711" in outside.entered("a")
    monkeypatch.setattr(outside, "first", lambda _container: 0)
    monkeypatch.setattr(outside, "STARTS", 0)
    with pytest.raises(outside.Silent, match="a does not run"):
        outside.entered("a")


def test_a_host_that_was_started_again_is_entered_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    told = ["11\n", "12\n"]
    born = {"11": "11 5", "12": "12 9"}
    monkeypatch.setattr(outside, "born", lambda pid: born.get(str(pid), ""))
    monkeypatch.setattr("subprocess.run", lambda *_words, **_how: mock.Mock(stdout=told.pop(0)))
    assert [outside.first("b"), outside.first("b")] == [11, 11]
    born["11"] = ""
    assert outside.first("b") == 12
