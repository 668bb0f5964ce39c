"""One hostile host in ten: it freezes, floods, nests, lies about ranges, speaks other encodings. Nine results are
right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.install

BAD = "gpu05"
NAMES = [f"gpu{number:02}" for number in range(10)]
SSH = r'''#!{python} -IS
"""A host behind ssh: it answers every probe with the same words; the hostile one as its way asks for."""
import os, re, sys, time
way = os.environ["WAY"] if "{bad}" in sys.argv else "good"
script = sys.stdin.read()
out, error = sys.stdout.buffer, sys.stderr.buffer
marker = b"0123456789abcdef-0123456789abcdef"
names = re.findall(r"^probe '?([\w.-]+)'? ", script, re.M)
bodies = {
    "deep": b"[" * 60_000,
    "yaml": b"@file /etc/kubernetes/x.yaml\n @\n " + b"[" * 60_000 + b"\n",
    "ranges": b"cpus|0-9999999999\ninterrupt|0000:01:00.0|1|0-9999999999\nreserved|0-9999999999\nnode|0|0-9999999999|0\n",
    "latin1": "caf\u00e9 \u00df|\u00e9|\u00e9\n".encode("latin-1") * 50,
    "utf16": "gpuprov\n".encode("utf-16"),
    "nul": b"\0\x1b[2J\x1b]0;title\x07\r\n" * 50,
    "digits": b"1|" + b"9" * 5000 + b"|\xc2\xb2\n",
}
if way == "freeze":
    time.sleep(600)
run = re.search(r"gpuprov-begin %s %s %s.n' (\S+) ", script)[1].encode()
begin = b"gpuprov-begin " + run + b" " + marker + b" 0\n"
out.write(begin); error.write(begin); out.flush()
if way == "flood":
    while True:
        out.write(b"flood " * 20_000)
if way == "stalls":
    time.sleep(600)
for name in names:
    key = name.encode()
    error.write(marker + b"!" + key + b"\n" + (bodies.get(way, b"") if way == "latin1" else b""))
    out.write(marker + b">" + key + b"\n" + bodies.get(way, b"") + marker + b"<0\n")
    if way == "ends":
        sys.exit(0)
out.write(marker + b".\n"); error.write(marker + b".\n")
'''
SPEC = """\
all:
  vars:
    ansible_connection: ssh
    ansible_ssh_executable: {ssh}
    gpuprov:
      gpu: {{model: H100-SXM5-80GB, count: 8}}
      nvidia_driver: {{version: "580"}}
      container_toolkit: {{}}
      rdma: {{fabric: infiniband}}
      kubernetes: {{}}
      kernel: {{sysctl: {{vm.swappiness: 10}}}}
      dcgm: {{}}
      mps: {{}}
  hosts:
    gpu[00:09]: {{}}
"""
WAYS = {
    "freeze": ("no answer within 8 s", 4),
    "stalls": ("the script did not end within 8 s", 4),
    "flood": ("it printed more than 8 MiB", 4),
    "ends": ("the connection was lost while reading", 4),
    "deep": ("", 1),
    "yaml": ("", 1),
    "ranges": ("", 1),
    "latin1": ("", 1),
    "utf16": ("", 1),
    "nul": ("", 1),
    "digits": ("", 1),
}


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH.replace("{python}", sys.executable).replace("{bad}", BAD))
    ssh.chmod(0o755)
    (tmp_path / "inventory.yaml").write_text(SPEC.format(ssh=ssh))
    return tmp_path


def gpuprov(way: str, *arguments: str, room: Path) -> tuple[subprocess.CompletedProcess[str], float]:
    """The program, in a locale that knows ASCII only; 2 GiB are enough for it."""
    clean = {
        key: value for key, value in os.environ.items() if not key.startswith(("GPUPROV", "ANSIBLE", "LC_", "PYTHON"))
    }
    env = clean | {"WAY": way, "LANG": "C", "HOME": str(room), "XDG_CACHE_HOME": str(room / "cache")}
    limited = ["prlimit", "--as=2147483648", sys.executable, "-m", "gpuprov", *arguments]
    started = time.monotonic()
    ran = subprocess.run(
        limited, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120
    )
    return ran, time.monotonic() - started


def test_verify(room: Path) -> None:
    reports = ("--junit", "report.xml", "--html", "report.html", "--timeout", "8")
    usual, _ = gpuprov("good", "verify", "inventory.yaml", "--json", *reports, room=room)
    assert usual.returncode == 1, usual.stderr
    right = {name: [one for one in json.loads(usual.stdout)["results"] if one["host"] == name] for name in NAMES}
    assert all(len(rows) > 20 for rows in right.values())
    for way, (words, code) in WAYS.items():
        ran, took = gpuprov(way, "verify", "inventory.yaml", "--json", *reports, room=room)
        assert ran.returncode == code, (way, ran.stderr[-2000:])
        assert "Traceback" not in ran.stderr, (way, ran.stderr[-2000:])
        assert took < 30, (way, took)
        found = json.loads(ran.stdout)["results"]
        for name in NAMES:
            mine = [one for one in found if one["host"] == name]
            assert mine == right[name] if name != BAD else mine, (way, name)
        bad = [one for one in found if one["host"] == BAD]
        assert {one["status"] for one in bad} == {"unreachable"} if words else len(bad) > 20, (way, bad[:2])
        assert any(words in one["found"] for one in bad), (way, bad)
        assert not any("a defect of gpuprov" in one["fix"] for one in found), (way, [one["found"] for one in bad])
        suites = ElementTree.parse("report.xml").getroot().findall("testsuite")
        assert [suite.get("name") for suite in suites] == NAMES, way
        page = Path("report.html").read_text(encoding="utf-8")
        assert page.rstrip().endswith("</html>"), way
        assert all(name in page for name in NAMES), way


OTHERS = ("export", "plan", "topology", "health", "drift")


@pytest.mark.parametrize("command", OTHERS)
def test_other_commands(room: Path, command: str) -> None:
    """Each way is met by two of them: all read hosts by the same code, which `test_verify` tries in every way."""
    extra = {
        "export": ["inventory.yaml", "--out", "out.yaml"],
        "plan": ["inventory.yaml", "--quick", "--json"],
        "topology": ["all", "inventory.yaml", "--json"],
        "health": ["inventory.yaml", "--json"],
        "drift": ["inventory.yaml", "--json"],
    }
    usual, _ = gpuprov("good", command, *extra[command], room=room)
    wanted = told(command, usual)
    assert set(wanted) == set(NAMES), usual.stderr
    for number, (way, (words, code)) in enumerate(WAYS.items()):
        if way in ("freeze", "stalls") or (number + OTHERS.index(command)) % len(OTHERS) > 1:
            continue  # the two take two minutes each: verify has --timeout
        ran, _ = gpuprov(way, command, *extra[command], room=room)
        assert "Traceback" not in ran.stderr, (way, ran.stderr[-2000:])
        assert "a defect of gpuprov" not in ran.stderr + ran.stdout, (way, ran.stderr[-2000:])
        found = told(command, ran)
        assert {name: row for name, row in found.items() if name != BAD} == {
            name: row for name, row in wanted.items() if name != BAD
        }, way
        unread = command == "topology" and found[BAD] == BAD
        assert ran.returncode == (code if words else int(unread) or usual.returncode), (way, ran.stderr[-2000:])


def told(command: str, ran: subprocess.CompletedProcess[str]) -> dict[str, object]:
    """What is said of each host, without what differs by the moment."""
    if command == "export":
        import yaml

        hosts: dict[str, object] = yaml.safe_load(Path("out.yaml").read_text())["all"]["hosts"]
        return hosts
    read = json.loads(ran.stdout)
    if command in ("plan", "health", "drift"):
        return {one["host"]: {key: value for key, value in one.items() if key != "host"} for one in read["hosts"]}
    return {**read["hosts"], **{name: name for name in read["unread"]}}
