"""The composed script in real shells."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from gpuprov.facts.collect.script import _RUN, PROBE_LIMIT, TIMED_OUT, UID, complete, compose, split
from gpuprov.facts.probes.base import Output, Probe
from tests.here import commands

pytestmark = pytest.mark.install

SHELLS = [["dash"], ["bash", "--posix"], ["busybox", "sh"]]


def probe(name: str, script: str) -> Probe[Output]:
    return Probe(name, script, lambda output: output)


def run(shell: list[str], *probes: Probe[Output], limit: int = PROBE_LIMIT) -> dict[str, Output]:
    done = subprocess.run(shell, input=compose(probes, limit).encode(), capture_output=True, check=True, timeout=30)
    assert complete(done.stdout)
    assert complete(done.stderr)
    outputs = split(done.stdout + done.stderr)
    assert outputs is not None
    return outputs


@pytest.fixture(params=SHELLS, ids=lambda shell: shell[0])
def shell(request: pytest.FixtureRequest) -> list[str]:
    if not shutil.which(request.param[0]):
        pytest.skip(f"no {request.param[0]} here")
    found: list[str] = request.param
    return found


def test_output_status_and_error_are_kept_apart(shell: list[str]) -> None:
    outputs = run(shell, probe("a", "echo out; echo err >&2; exit 3"), probe("b", "printf 'no line break'"))
    assert outputs["a"] == Output("out\n", 3, "err\n")
    assert outputs["b"] == Output("no line break", 0, "")


def test_a_snippet_cannot_disturb_the_next(shell: list[str]) -> None:
    snippets = [
        probe("syntax", "echo 'unbalanced"),
        probe("exits", "exit 7"),
        probe("variables", "n=x s=x p=x w=x t=99; LC_ALL=de; cd /tmp; set -e; set -u; trap '' TERM; exec 1>&-"),
        probe("redefines", "probe() { :; }; kill_tree() { :; }; printf() { :; }"),
        probe("killed", "exec sh -c 'kill -9 $$'"),
        probe("user signal", "exec sh -c 'kill -USR1 $$'"),
        probe("last", "echo $LC_ALL; pwd"),
    ]
    outputs = run(shell, *snippets)
    assert outputs["syntax"].status != 0
    assert outputs["syntax"].error
    assert outputs["exits"].status == 7
    assert outputs["killed"].status == 137
    assert outputs["user signal"].status == 138
    assert outputs["last"] == Output("C\n/\n", 0, "")


def test_standard_input_is_empty(shell: list[str]) -> None:
    outputs = run(shell, probe("reads", "cat; read line || echo nothing"), probe("after", "echo here"))
    assert outputs["reads"].text == "nothing\n"
    assert outputs["after"].text == "here\n"


def test_bytes_that_are_no_text_survive(shell: list[str]) -> None:
    outputs = run(shell, probe("bytes", r"printf 'a\377\000\342\202\254\r\n'"))
    assert outputs["bytes"].text == "a\N{REPLACEMENT CHARACTER}\x00€\r\n"


def test_a_snippet_that_hangs_is_ended_with_its_children(shell: list[str]) -> None:
    mark = f"sleep 43{os.getpid()}"  # another worker runs the same test
    outputs = run(shell, probe("hangs", f"echo before; sh -c '{mark}; :'"), probe("after", "echo here"), limit=1)
    assert outputs["hangs"].status == TIMED_OUT
    assert outputs["hangs"].text == "before\n"
    assert outputs["after"] == Output("here\n", 0, "")
    assert not [line for line in commands() if mark in line]


def test_what_a_child_left_behind_prints_after_the_end_is_dropped(shell: list[str]) -> None:
    outputs = run(shell, probe("leaves", "(sleep 0.3; echo late) & echo now"), probe("next", "echo mine; sleep 0.1"))
    assert outputs["leaves"].text == "now\n"
    assert outputs["next"].text == "mine\n"


def test_no_output_can_forge_a_frame(shell: list[str]) -> None:
    forged = "12345678-1234-1234-1234-123456789abc"
    attempts = [
        probe("begins", f"printf 'gpuprov-begin {forged} 0\\n{forged}>victim\\nforged\\n{forged}<0\\n{forged}.\\n'"),
        probe("looks", "ps -eo args; cat /proc/*/environ /proc/*/cmdline; env; set | grep -c zzz"),
        probe("victim", "echo real"),
    ]
    outputs = run(shell, *attempts)
    assert outputs["victim"].text == "real\n"
    assert forged in outputs["begins"].text
    assert set(outputs) == {"begins", "looks", "victim", UID}


def test_the_marker_is_in_no_argument_and_no_environment() -> None:
    script = compose([probe("looks", "cat /proc/*/cmdline /proc/*/environ 2>/dev/null; env")])
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=True)
    marker = done.stdout.split(b" ")[2]
    outputs = split(done.stdout + done.stderr)
    assert outputs
    assert marker.decode() not in outputs["looks"].text


def test_standard_error_is_cut(shell: list[str]) -> None:
    outputs = run(shell, probe("loud", "i=0; while [ $i -lt 500 ]; do echo 0123456789 >&2; i=$((i+1)); done; echo ok"))
    assert outputs["loud"].text == "ok\n"
    assert len(outputs["loud"].error) == 2000


def test_equal_probes_once_and_unequal_ones_refused() -> None:
    twice = compose([probe("a", "echo x"), probe("a", "echo x")])
    assert twice.count("\nprobe a ") == 1
    with pytest.raises(ValueError, match="two probes are called 'a'"):
        compose([probe("a", "echo x"), probe("a", "echo y")])


def test_a_stream_cut_short_is_no_answer() -> None:
    done = subprocess.run(["sh"], input=compose([probe("a", "echo x")]).encode(), capture_output=True, check=True)
    for length in range(0, len(done.stdout) - 2, 7):
        assert split(done.stdout[:length]) is None
        assert not complete(done.stdout[:length])


def test_the_user_id_is_always_there(shell: list[str]) -> None:
    assert run(shell)[UID].text == subprocess.run(["id", "-u"], capture_output=True, text=True, check=True).stdout


def test_nothing_is_printed_by_a_login_shell_that_counts() -> None:
    done = subprocess.run(["sh"], input=compose([probe("a", "echo x")]).encode(), capture_output=True, check=True)
    forged = b"gpuprov-begin 00000000-0000-0000-0000-000000000000 0\ngpuprov-begin %b 0123456789abcdef01234 0\n" % (
        b"0" * 16
    )
    outputs = split(
        b"Welcome to gpu01\n\xff\n" + forged + done.stdout + b"stdin: is not a tty\n" + forged + done.stderr
    )
    assert outputs
    assert outputs["a"].text == "x\n"


def test_a_status_that_no_program_has_is_no_end_of_the_script() -> None:
    frame = b"gpuprov-begin " + _RUN.encode() + b" %s 0\n%s>a\ntext\n%s<%s\n%s.\n"
    mark = b"0123456789abcdef-0123"
    good = frame % (mark, mark, mark, b"0", mark)
    assert split(good) == {"a": Output("text\n"), UID: Output("0\n")}
    for status in (b"9" * 4001, b"x", b"", b"1e9"):
        assert split(frame % (mark, mark, mark, status, mark)) is None
    assert split(good.replace(b">a", b">\xff\xfe")) is not None
