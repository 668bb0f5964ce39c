"""What needs no kill: long histories begun anew, encrypted payloads, mutual TLS, stored histories, and gpuprov without
the SDK."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.policy import windows
from tests.contracts.test_imports import loaded_by
from tests.rollout.temporal import lab
from tests.rows import run_each

pytestmark = pytest.mark.install  # programs, started again and again

HISTORY = Path(__file__).with_name("history.json")


def test_nothing_imports_the_sdk_until_it_is_asked_for() -> None:
    assert "temporalio" not in loaded_by("import gpuprov.cli, gpuprov.rollout.command, gpuprov.rollout.embedded")


@run_each("words", [["fleet", "worker"], ["rollout", "status", "--engine", "temporal"]])
def test_without_the_extra_it_says_what_to_install(words: list[str]) -> None:
    code = "import sys; sys.modules['temporalio'] = None; import importlib.util as u; "
    code += (
        "real = u.find_spec; u.find_spec = lambda name, *more: None if name == 'temporalio' else real(name, *more); "
    )
    code += f"sys.argv = ['gpuprov', *{words!r}]; from gpuprov.__main__ import run; run()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'gpuprov[fleet]'" in done.stderr


def test_options_of_temporal_go_with_temporal() -> None:
    words = [sys.executable, "-m", "gpuprov", "rollout", "status", "--address", "127.0.0.1:1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--address goes with --engine temporal" in done.stderr


def test_a_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "gpuprov", "rollout", "status", "--engine", "temporal", "--address"]
    done = subprocess.run(
        [*words, f"127.0.0.1:{lab.free()}"], env=lab.environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert (done.returncode, "is not reached" in done.stderr) == (4, True), done.stderr


@run_each("name", ["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "UTC"])
def test_a_pinned_zone_is_the_zone(name: str) -> None:
    zone = windows.zone(name)
    assert zone
    begin = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    pinned = windows.Pinned(windows.changes(zone, begin, begin + 3 * 366 * 86400))
    spans = [windows.parsed("mon-fri 22:00-05:00"), windows.parsed("sat,sun 01:30-02:45")]
    for now in range(int(begin) + 86400 * 9, int(begin) + 3 * 365 * 86400, 7 * 3600 + 61):
        there, here = datetime.fromtimestamp(now, zone), datetime.fromtimestamp(now, pinned)
        assert (there.replace(tzinfo=None), there.fold) == (here.replace(tzinfo=None), here.fold)
        assert here.timestamp() == now
        if now % 17 == 0:
            assert windows.is_open(spans, zone, now, 60) == windows.is_open(spans, pinned, now, 60)
            assert windows.opens(spans, zone, now) == windows.opens(spans, pinned, now)


@pytest.mark.install
@pytest.mark.parametrize("seed", ["0", "1"])
def test_a_stored_history_comes_to_the_same(seed: str) -> None:
    """In processes whose sets have another order, too. A history that was changed is refused: the check can fail."""
    code = "import sys; from tests.rollout.temporal.test_whole import replayed; replayed(sys.stdin.read())"
    for text, good in ((HISTORY.read_text(), True), (HISTORY.read_text().replace('"job-3"', '"job-33"'), False)):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            input=text,
            capture_output=True,
            text=True,
            check=False,
            cwd=lab.ROOT,
        )
        assert ("replayed" in done.stdout) == good, done.stderr[-2000:]


def replayed(text: str) -> None:
    """Replay a history; raise where the workflow comes to something else."""
    from temporalio.client import WorkflowHistory
    from temporalio.worker import Replayer

    from gpuprov.rollout.temporal.runner import Runner
    from gpuprov.rollout.temporal.workflow import Rollout

    history = WorkflowHistory.from_json("gpuprov-rollout-friday", text)
    asyncio.run(Replayer(workflows=[Rollout], workflow_runner=Runner()).replay_workflow(history))
    print("replayed", flush=True)
    os._exit(0)


def test_a_key_that_others_may_read_or_that_is_none_is_refused(tmp_path: Path) -> None:
    from gpuprov.rollout.temporal.codec import key

    file = tmp_path / "payload.key"
    with pytest.raises(GpuprovError, match="cannot be read"):
        key(file)
    file.write_bytes(base64.b64encode(bytes(32)))
    file.chmod(0o644)
    with pytest.raises(GpuprovError, match="others may read the key"):
        key(file)
    file.chmod(0o600)
    assert key(file) == bytes(32)
    file.write_text("c2hvcnQ=")
    with pytest.raises(GpuprovError, match="no key of 32 bytes"):
        key(file)


def test_what_is_encrypted_is_opened_by_its_key_alone() -> None:
    from temporalio.api.common.v1 import Payload

    from gpuprov.rollout.temporal.codec import Encrypted

    old, new = os.urandom(32), os.urandom(32)
    plain = Payload(metadata={"encoding": b"json/plain"}, data=b'"gpu0001"')
    [closed] = asyncio.run(Encrypted([old]).encode([plain]))
    assert b"gpu0001" not in closed.SerializeToString()
    assert asyncio.run(Encrypted([new, old]).decode([closed])) == [plain]
    with pytest.raises(ValueError, match="which is missing here"):
        asyncio.run(Encrypted([new]).decode([closed]))
    with pytest.raises(ValueError, match="is not encrypted"):
        asyncio.run(Encrypted([new]).decode([plain]))
    closed.data = closed.data[:-1] + bytes([closed.data[-1] ^ 1])
    with pytest.raises(ValueError, match="was altered"):
        asyncio.run(Encrypted([old]).decode([closed]))


@contextmanager
def tls_in_front(folder: Path, port: int) -> Iterator[int]:
    """start-dev has no TLS: something in front of it that has, and that lets in only who has a certificate."""
    script = "openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca 2>/dev/null\n"
    for name in ("server", "client"):
        script += (
            f"openssl req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name} 2>/dev/null\n"
        )
        script += f"printf 'subjectAltName=DNS:temporal.example.com' > {name}.ext\n"
        script += f"openssl x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out {name}.pem "
        script += f"-extfile {name}.ext 2>/dev/null\n"
    subprocess.run(["sh", "-ec", script], cwd=folder, check=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    loop, here = asyncio.new_event_loop(), lab.free()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pass_on(reader, there[1]), pass_on(there[0], writer), return_exceptions=True)

    loop.run_until_complete(asyncio.start_server(one, "127.0.0.1", here, ssl=context))
    threading.Thread(target=loop.run_forever, daemon=True).start()
    try:
        yield here
    finally:
        loop.call_soon_threadsafe(loop.stop)


@pytest.mark.e2e
@pytest.mark.slow
def test_a_roll_out_through_mutual_tls_with_encrypted_payloads(tmp_path: Path) -> None:
    from gpuprov.rollout.temporal.connect import Connection
    from gpuprov.rollout.temporal.engine import Temporal

    (tmp_path / "payload.key").write_bytes(base64.b64encode(os.urandom(32)))
    (tmp_path / "payload.key").chmod(0o600)
    (tmp_path / "behaviour.json").write_text("{}")
    server = lab.Server(tmp_path)
    server.start()
    try:
        with tls_in_front(tmp_path, server.port) as port:
            files = {"tls_ca": "ca.pem", "tls_cert": "client.pem", "tls_key": "client.key"}
            tls = {name: tmp_path / file for name, file in files.items()} | {"tls_name": "temporal.example.com"}
            keys = (tmp_path / "payload.key",)
            given = Connection(address=f"127.0.0.1:{port}", payload_keys=keys, **tls)  # type: ignore[arg-type]
            (tmp_path / "connection.json").write_text(
                json.dumps({name: str(value) for name, value in tls.items()} | {"payload_key": str(keys[0])})
            )
            worker = lab.process(tmp_path, "worker", "worker", "default", given.address, str(tmp_path))
            lab.until(lambda: b"is at work" in (tmp_path / "worker.log").read_bytes())
            engine = Temporal(given, tmp_path / "kept")
            begun, text = lab.project("drain: {adapter: command, command: 'true', poll: 0s}\n", 4, 0)
            engine.begin(begun, text)
            assert engine.carry_out("friday", lambda _told: None)
            assert lab.report(engine)["exit_code"] == 0
            worker.terminate()
            assert worker.wait(30) == 0
            with pytest.raises(GpuprovError, match="is not reached"):
                Temporal(Connection(address=given.address, tls_ca=tmp_path / "ca.pem"), tmp_path / "kept")
    finally:
        server.kill()
    kept = b"".join(file.read_bytes() for file in tmp_path.glob("temporal.db*"))
    assert b"gpuprov-rollout-friday" in kept
    assert b"gpu0001" not in kept, "names of hosts are in payloads alone, and those are encrypted"


@pytest.mark.e2e
@pytest.mark.slow
def test_a_long_history_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server suggests it from 64 events on: nothing is lost, or done twice."""
    from tests.rollout import made

    (tmp_path / "behaviour.json").write_text("{}")
    with lab.running(tmp_path, ["default"], "--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=64") as (
        server,
        _,
    ):
        engine = lab.engine(tmp_path, server.address)
        begun, text = lab.project("batches: {size: 2}\ndrain: {adapter: command, command: 'true', poll: 1s}\n", 12, 0)
        engine.begin(begun, text)
        assert engine.carry_out("friday", lambda _told: None)
        assert lab.report(engine)["exit_code"] == 0
        runs = engine._runner.run(_runs(engine))
    assert runs > 2
    assert made.attempts(tmp_path) == {f"gpu{n:04}": 1 for n in range(12)}


async def _runs(engine: object) -> int:
    client = engine._client  # type: ignore[attr-defined]
    return len([one async for one in client.list_workflows('WorkflowId = "gpuprov-rollout-friday"')])
