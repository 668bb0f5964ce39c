"""gpuprov drain and undrain as commands: what they print, and their exit codes."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpuprov.cli.reference import document_schema
from gpuprov.fleet.drain import Step, green, many
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify import Result
from tests.commands import run_main
from tests.fleet.drain.cluster import Cluster

INVENTORY = """\
all:
  vars: {ansible_ssh_common_args: -o ConnectTimeout=1, ansible_port: 1}
  hosts:
    gpu1: {ansible_host: 127.0.0.1, gpuprov: {nouveau: {}}}
    login: {ansible_host: 127.0.0.1, host_slurm_node: gpu1}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    (tmp_path / "inventory.yaml").write_text(INVENTORY)
    return Cluster(tmp_path)


def run(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{cluster.folder}:/usr/bin:/bin", "HOME": str(cluster.folder)}
    command = [sys.executable, "-m", "gpuprov", *words, "inventory.yaml", "--by", "slurm", "--poll", "0.1"]
    return subprocess.run(
        command, cwd=cluster.folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.install
def test_drain_waits_no_longer_than_it_should(cluster: Cluster) -> None:
    cluster.put("MIXED", jobs=("7 RUNNING",))
    done = run(cluster, "drain", "gpu1", "--run", "fri", "--wait", "0.3")
    assert done.returncode == 1, done
    assert done.stdout == "gpu1: waiting: jobs run on it; State=DRAIN+MIXED Reason=gpuprov fri\n  job 7 RUNNING\n"
    assert "gpuprov undrain HOST INVENTORY --by slurm --run fri" in done.stderr
    cluster.put("IDLE+DRAIN", "gpuprov fri")
    done = run(cluster, "drain", "login", "--run", "fri", "--json")
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    jsonschema.validate(told, json.loads(document_schema("undrain")))
    assert (told["run"], told["hosts"][0]["host"], told["hosts"][0]["node"]) == ("fri", "login", "gpu1")


def test_drain_refuses_and_says_why(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.put("IDLE+DRAIN", "bad \x1b[31mHCA")
    monkeypatch.chdir(cluster.folder)
    monkeypatch.setenv("PATH", f"{cluster.folder}:/usr/bin:/bin")
    assert run_main(monkeypatch, "drain", "gpu1", "inventory.yaml", "--by", "slurm", "--poll", "0.1") == 3
    out, errors = capsys.readouterr()
    assert "\x1b" not in out + errors
    assert "somebody else (root) has taken it out, DRAIN: bad \\u001b[31mHCA" in out
    assert "give them back" not in errors


def test_the_way_back_that_is_printed_is_taken(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(cluster.folder)
    command = 'test "$GPUPROV_HOST" = gpu1'
    words = ("gpu1", "inventory.yaml", "--by", "command", "--command", command, "--run", "fri")
    assert run_main(monkeypatch, "drain", *words) == 0
    printed = next(line for line in capsys.readouterr().err.splitlines() if "give them back: " in line)
    _, verb, *rest = shlex.split(printed.partition("give them back: ")[2])
    rest = [{"HOST": "gpu1", "INVENTORY": "inventory.yaml"}.get(word, word) for word in rest]
    assert run_main(monkeypatch, verb, *rest, "--unverified") == 0
    assert "gpu1: in service" in capsys.readouterr().out


@pytest.mark.install
def test_a_host_that_cannot_be_verified_stays_out(cluster: Cluster) -> None:
    cluster.put("IDLE+DRAIN", "gpuprov fri")
    done = run(cluster, "undrain", "gpu1", "--run", "fri")
    assert (done.returncode, cluster.node) == (3, ("IDLE+DRAIN", "gpuprov fri")), done
    assert "it stays drained: it is not known to be as its spec says" in done.stdout
    assert cluster.changes == []
    done = run(cluster, "undrain", "gpu1", "--run", "fri", "--unverified", "-f", "2")
    assert (done.returncode, "--unverified reaches no host" in done.stderr) == (2, True), done


def test_green_is_each_host_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def result(host: str, status: Any) -> Result:
        return Result(host=host, capability="nouveau", check="x", status=status, fields=("x",))

    results = [result("a", "pass"), result("b", "pass"), result("b", "fail"), result("c", "skip")]
    monkeypatch.setattr(green, "verify", lambda *_, **__: results)
    pairs = [(RawHost(name=name), HostSpec(name=name)) for name in "abcd"]
    told = green.green(pairs, None, lambda _: None)
    assert told == {"a": True, "b": False, "c": False, "d": False}, "nothing proven is not green"


def test_the_worst_host_gives_the_exit_code() -> None:
    steps = [Step(host="a", node="a", state="done"), Step(host="b", node="b", state="waiting")]
    assert many.exit_code([]) == 0
    assert many.exit_code(steps) == 1
    assert many.exit_code([*steps, Step(host="c", node="c", state="refused")]) == 3
    assert many.exit_code([*steps, Step(host="c", node="c", state="unknown")]) == 4
