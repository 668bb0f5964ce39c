"""Hosts have bytes, and Ansible takes characters: no byte on a host makes its plan, apply or rollback fail."""

from __future__ import annotations

import ast
import base64
import json
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuprov.facts.collect import script
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.host.house import parse_receipt
from gpuprov.fleet.specs import load_fleet
from gpuprov.host_code.texts import make_readable
from gpuprov.plan.decide import decide
from gpuprov.plan.read import ALL
from gpuprov.play.preflight.judging import facts_of, judge
from gpuprov.render.variables import fleet_variables, host_variables
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec
from gpuprov.verify.evaluate import evaluate, is_broken
from tests.contracts.test_host_code import MODULES, ONHOST
from tests.contracts.test_imports import dotted, nodes
from tests.here import play, program
from tests.host_code.modules import on_host, ran, step
from tests.rows import run_each
from tests.taint.test_commands import inventory
from tests.taint.transport import NONCE, answers

BYTE = b"caf\x80"
CAUGHT = {"ValueError", "UnicodeDecodeError", "UnicodeError", "Exception"}


@run_each("path", MODULES, ids=lambda path: path.stem)
def test_every_module_answers_by_the_one_way_that_makes_texts_readable(path: Path) -> None:
    imported = [
        f"{node.module}.{alias.name}"
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert "ansible.module_utils.gpuprov_host_code.module.AnsibleModule" in imported
    assert not [name for name in imported if name.startswith("ansible.module_utils.basic")]
    assert not [node for node in nodes(path) if isinstance(node, ast.Call) and dotted(node.func) == "print"]


@run_each(
    ("value", "expected"),
    [
        (BYTE.decode("utf-8", "surrogateescape"), r"caf\x80"),
        (BYTE, r"caf\x80"),
        ("caf\ud800", r"caf\ud800"),
        ("café", "café"),
        ({"a\udcff": [("x\udc80", 1)], "b": {"c\udc80"}}, {r"a\xff": [[r"x\x80", 1]], "b": [r"c\x80"]}),
        ([None, True, 1.5], [None, True, 1.5]),
    ],
)
def test_a_byte_is_shown_by_its_number(value: Any, expected: Any) -> None:
    assert make_readable(value) == expected


@pytest.mark.parametrize("how", ["exit", "fail", "warn"])
def test_what_a_module_says_can_be_read_by_ansible(
    how: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The whole answer, as it is printed: a program's words, a path, a difference."""
    file = tmp_path / "file"
    file.write_bytes(BYTE + b"\n")
    speak = "printf 'caf\\200\\n'; printf 'caf\\200\\n' >&2"
    if how == "exit":
        step(capsys, "command", argv=["sh", "-c", speak])
        answer = ran(capsys, "gpuprov_files", check=True, files={str(file): "new\n"})
        [shown] = answer["diff"]
        assert (shown["before"], shown["after"]) == ("caf\\x80\n", "new\n")
    elif how == "fail":
        answer = step(capsys, "command", argv=["sh", "-c", f"{speak}; exit 3"])
        assert answer["failed"]
        assert r"caf\x80" in answer["msg"]
    else:
        answer = step(capsys, "command", argv=["sh", "-c", f"{speak}; exit 3"], tolerate="it goes on")
        assert r"caf\x80; it goes on" in answer["warnings"][0]
    json.dumps(answer, ensure_ascii=False).encode()  # as Ansible tries each string


def _unguarded(node: ast.AST, caught: bool = False) -> Iterator[ast.Call]:
    """Yield calls that decode strictly, outside of a `try` or `suppress` for their exceptions."""
    if isinstance(node, ast.Try):
        names = {dotted(one) for handler in node.handlers for one in _types(handler.type)}
        for inner in node.body:
            yield from _unguarded(inner, caught or bool(names & CAUGHT))
        rest: list[ast.AST] = [*node.handlers, *node.orelse, *node.finalbody]
        for child in rest:
            yield from _unguarded(child, caught)
        return
    if isinstance(node, ast.With):
        called = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        suppressed = {dotted(one) for call in called for one in (call.func, *call.args)}
        caught = caught or ("contextlib.suppress" in suppressed and bool(suppressed & CAUGHT))
    if isinstance(node, ast.Call) and not caught and _is_strict(node):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _unguarded(child, caught)


def _types(node: ast.expr | None) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node] if node else []


def _is_strict(call: ast.Call) -> bool:
    name, given = dotted(call.func), {key.arg: key.value for key in call.keywords}
    if "errors" in given or None in given:
        return False
    if name == "open":
        mode = ast.literal_eval(given.get("mode") or (call.args[1] if len(call.args) > 1 else ast.Constant("r")))
        of_kernel = ast.unparse(given.get("encoding") or ast.Constant("")) == "'ascii'"
        return not of_kernel and not set(mode) & set("bwax")
    return name.startswith("subprocess.") and bool({"text", "encoding", "universal_newlines"} & given.keys())


OWN = {
    "readings.py": "gpuprov's own state, whose reader takes ValueError two calls above",
    "checkpoints.py": "gpuprov's own checkpoint, whose readers all take ValueError",
}


@run_each("path", ONHOST, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_is_read_on_a_host_may_hold_any_byte(path: Path) -> None:
    if path.name not in OWN:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not [f"{path}:{call.lineno}" for call in _unguarded(tree)]


@run_each(
    "text", ["open('x')", "open('x', encoding='utf-8')", "subprocess.run([], text=True)", "open('x', 'r').read()"]
)
def test_what_decodes_strictly_is_found(text: str) -> None:
    assert list(_unguarded(ast.parse(text)))
    assert not list(_unguarded(ast.parse(f"try:\n    {text}\nexcept (OSError, ValueError):\n    pass")))


def printed(texts: dict[str, str], damage: str) -> bytes:
    """Return the output of a host where every file and every program has such a byte: at the end of each line, or in a
    line of its own."""

    def damaged(text: str) -> bytes:
        data = text.encode()
        return data.replace(b"\n", BYTE + b"\n") if damage == "in each line" else data + BYTE + b"\n"

    told = b"".join(
        f"{NONCE}>{name}\n".encode() + damaged(text) + f"{NONCE}<0\n".encode() for name, text in texts.items()
    )
    return f"gpuprov-begin {script._RUN} {NONCE} 0\n".encode() + told + f"{NONCE}.\n".encode()


@pytest.mark.parametrize("damage", ["in each line", "in a line of its own"])
def test_every_probe_takes_it_on_its_way_through_a_module(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every check, every decision and what every role brings about: each is judged, or says what it cannot read."""
    monkeypatch.chdir(tmp_path)
    found = facts_of(printed(answers(), damage))
    for pair in load_fleet([str(inventory(tmp_path / "inventory.yaml", 1))]).pairs:
        spec = pair[1]
        results = evaluate(spec, found, ALL)
        assert not [one for one in results if is_broken(one)]
        decide(pair, results, found)
        verdict = judge(spec, found, [*spec.capabilities], preflight=False)
        assert not [line for line in verdict.refusals if "defect" in line]
        json.dumps(verdict.desired, ensure_ascii=False).encode()


def test_the_judges_script_comes_back_to_the_byte(capsys: pytest.CaptureFixture[str]) -> None:
    speak = "printf 'caf\\200'; printf '\\377' >&2"
    answer = ran(capsys, "gpuprov_judge", script=speak, capabilities=["kernel"], moment="preflight")
    assert zlib.decompress(base64.b64decode(answer["printed"])) == BYTE + b"\n\xff"


def test_a_damaged_receipt_is_the_same_to_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receipt = on_host("receipt")
    file = tmp_path / "receipt.json"
    file.write_bytes(b'{"applied_at": "caf\x80", "capabilities": {"kernel": {"digest": "1", "applied_at": ""}}}')
    monkeypatch.setattr(receipt, "RECEIPT", str(file))
    there = parse_receipt(Output(file.read_bytes().decode(errors="replace")))
    assert there
    assert there.damaged == "a byte of it is not UTF-8"
    assert receipt.read_entries()[1]


@pytest.mark.parametrize("name", ["config.toml", "daemon.json"])
def test_a_file_that_would_come_back_as_another_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    """Texts of engines go to the controller and back."""
    steps = on_host("engine_steps")
    file = tmp_path / name
    file.write_bytes(b"# one\n# caf\xe9\n")
    with pytest.raises(on_host("failed").Failed, match=rf"{name}: line 2 has a byte that is not UTF-8 \(0xe9\)"):
        steps.keep("docker", [str(file)])
    assert file.read_bytes() == b"# one\n# caf\xe9\n"


def test_files_that_are_changed_keep_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/etc/default/grub and the locks of zypper are read, and written anew."""
    lines = on_host("command_line")
    file = tmp_path / "grub"
    file.write_bytes(b'# caf\xe9\nGRUB_CMDLINE_LINUX=""\n')
    lines.replace(str(file), lines.read(str(file)).replace('""', '"iommu=pt"'))
    assert file.read_bytes() == b'# caf\xe9\nGRUB_CMDLINE_LINUX="iommu=pt"\n'
    locks = on_host("packages.zypper_locks")
    (tmp_path / "zypp.conf").write_bytes(b"# caf\xe9\n[main]\nlocksfile.apply = no\n")
    monkeypatch.setattr(locks, "CONFIGURATIONS", (str(tmp_path / "zypp.conf"),))
    monkeypatch.delenv("GPUPROV_BUNDLE", raising=False)
    assert locks.explain_unheeded(), "a comment costs no setting"


@pytest.mark.install
def test_the_actions_work_on_such_a_host(tmp_path: Path) -> None:
    """Every program that reads prints it, and files hold it, when roles are judged and files written."""
    for name, what in {
        "cat": "*/etc/*",
        "sed": "*/etc/*",
        "dpkg-query": "*",
        "apt-cache": "*",
        "systemctl": "*",
    }.items():
        real = f'{shutil.which(name) or "true"} "$@"; s=$?'
        program(tmp_path, name, f"{real}\ncase \"$*\" in {what}) printf '# caf\\200\\n';; esac; exit $s\n")
    (tmp_path / "old").write_bytes(BYTE + b"\n")
    tasks: list[dict[str, Any]] = [
        {"gpuprov_reach": {}},
        {"gpuprov_judge": {"capabilities": ["kernel"], "moment": "now"}, "register": "gpuprov_judged"},
        {"gpuprov_files": {"files": {str(tmp_path / "old"): "new\n"}}, "diff": True},
        {
            "gpuprov_step": {"name": "command", "arguments": {"argv": ["printf", "caf\\200"]}},
            "register": "said",
        },
        {"ansible.builtin.debug": {"msg": "it said {{ said.stdout }}"}},
    ]
    spec = HostSpec(name="gpu1", capabilities={"kernel": Kernel(command_line={"iommu": "pt"})})
    done = play(tmp_path, {"tasks": tasks}, extra={**fleet_variables(), **host_variables(spec)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert r"-caf\x80" in done.stdout
    assert r"it said caf\\x80" in done.stdout
