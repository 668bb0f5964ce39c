"""`scontrol show node`, as real slurmctlds of 22.05 and 24.11 wrote it, and lines of other versions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gpuprov.core import safe_parse
from gpuprov.fleet.drain.slurm.node import Node, of_json, of_text
from tests.rows import run_each

DATA = Path(__file__).parent / "data"
ADMIN = "bad HCA\n second line [x@y] State=IDLE "
HELD = {
    "gpu1": Node("gpu1", frozenset({"IDLE", "DRAIN"}), "gpuprov friday-1", "root"),
    "gpu2": Node("gpu2", frozenset({"IDLE", "DRAIN"}), ADMIN, "root"),
    "gpu4": Node("gpu4", frozenset({"MIXED", "DRAIN"}), "gpuprov friday-1", "root"),
}


@pytest.mark.parametrize("name", list(HELD))
@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_the_text_form(version: str, name: str) -> None:
    text = (DATA / f"node-{version}-{name}.txt").read_text()
    assert of_text(text, name) == HELD[name]
    assert of_text(text, "gpu9") is None, "an answer of another node is none"


@run_each("name", list(HELD))
def test_json_says_the_same(name: str) -> None:
    text = (DATA / f"node-24.11-{name}.json").read_bytes()
    assert of_json(text, name) == HELD[name]
    assert of_json(text, "gpu9") is None


LINES = {
    # versions of Slurm as their users have shown them: https://slurm.schedmd.com/sinfo.html for the marks of older ones
    "NodeName=gpu1 Arch=x86_64\n   State=DOWN*+DRAIN ThreadsPerCore=2\n   Reason=Not responding "
    "[slurm@2021-10-19T12:56:19]\n": (
        {"DOWN", "NOT_RESPONDING", "DRAIN"},
        "Not responding",
    ),
    "NodeName=gpu1 Arch=x86_64\n   State=IDLE+DRAIN ThreadsPerCore=2\n   Reason=memory issues? "
    "[root@2019-01-29T10:42:12]\n": (
        {"IDLE", "DRAIN"},
        "memory issues?",
    ),
    "NodeName=gpu1 Arch=x86_64\n   State=IDLE+CLOUD+POWERED_DOWN ThreadsPerCore=2\n   Comment=State=DOWN\n": (
        {"IDLE", "CLOUD", "POWERED_DOWN"},
        "",
    ),
    "NodeName=gpu1 Arch=x86_64\n   State=IDLE@\n   Reason=[user] x [y] [root@2026-01-01T00:00:00]\n   "
    "Comment=(null)\n": (
        {"IDLE", "REBOOT"},
        "[user] x [y]",
    ),
}


@run_each("text", list(LINES))
def test_lines_of_other_versions(text: str) -> None:
    node = of_text(text, "gpu1")
    assert node is not None
    states, reason = LINES[text]
    assert node.states == states
    assert node.reason == reason


def test_states_of_json_before_lists() -> None:
    """23.02 made a list of `state` and `state_flags`."""
    told = {"nodes": [{"name": "gpu1", "state": "idle", "state_flags": ["DRAIN"], "reason": "x"}]}
    assert of_json(json.dumps(told).encode(), "gpu1") == Node("gpu1", frozenset({"IDLE", "DRAIN"}), "x")


@run_each(
    "text",
    [
        "",
        "\x1b[2J",
        "NodeName=gpu1",
        "NodeName=gpu1\n   State=\n",
        "NodeName=gpu1\n   State=idle;rm ThreadsPerCore=1",
        "slurmctld",
    ],
)
def test_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(safe_parse.Unreadable):
        of_text(text, "gpu1")


@run_each("text", [b"", b"{", b"[]", b"{}", b'{"nodes": 1}', b'{"nodes": [{"name": "gpu1"}]}', b"[" * 100_000])
def test_damaged_json_is_refused(text: bytes) -> None:
    with pytest.raises(safe_parse.Unreadable):
        of_json(text, "gpu1")


def test_every_cut_of_a_recording_is_read_or_refused() -> None:
    whole = (DATA / "node-24.11-gpu2.txt").read_text()
    for end in range(len(whole)):
        try:
            node = of_text(whole[:end], "gpu2")
        except safe_parse.Unreadable:
            continue
        assert node is None or re.match("IDLE|MIXED|DRAIN|[A-Z]", min(node.states))
