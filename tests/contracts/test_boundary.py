"""The trust boundary: data reaches Ansible in one way only."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.contracts.test_imports import FILES, PACKAGE, dotted, nodes

NOT_FOR_ANSIBLE = {
    "capabilities/kubernetes/documents.py": "files for Kubernetes, which are values of variables",
    "pull/cloud_init.py": "user-data for cloud-init",
    "report/specs.py": "the mig-parted file",
    "render/checkout.py": "tasks of gpuprov's own, of its registry",
    "render/role_tasks.py": "tasks of gpuprov's own, as capabilities declare them",
}
"""Modules that make YAML which Ansible does not read as variables."""
TRUST = ("trust_as_template", "TrustedAsTemplate", "apply_trust")


def test_yaml_is_written_in_one_place() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in FILES
        if "dump" in path.read_text(encoding="utf-8")
        for node in nodes(path)
        if isinstance(node, ast.Attribute)
        and node.attr in ("safe_dump", "dump", "dump_all", "safe_dump_all")
        and dotted(node.value) == "yaml"
    }
    found = {name for name in found if not name.startswith("simulate/")}
    assert found == {"core/unsafe_yaml.py", *NOT_FOR_ANSIBLE}


def test_nothing_makes_a_template_of_data() -> None:
    """Only Ansible says what it trusts; gpuprov asks (`is_trusted_as_template`) and never gives trust. Nor do roles."""
    root = Path(PACKAGE).parent
    texts = {path: path.read_text(encoding="utf-8") for path in FILES}
    texts |= {
        p: p.read_text(encoding="utf-8") for name in ("roles", "playbooks") for p in (root / name).rglob("*.y*ml")
    }
    told = [
        f"{path}: {word}"
        for path, text in texts.items()
        for word in TRUST
        if word in text.replace("is_trusted_as_template", "")
    ]
    assert told == []


def test_patterns_match_to_the_end() -> None:
    """`$` lets one more newline pass: patterns end with `\\Z`, or are matched whole. (A spec's texts have no newline at
    all.)"""
    told = []
    root = Path(PACKAGE).parent
    for path in [*FILES, *(root / "roles").rglob("*.py"), *(root / "playbooks").rglob("*.py")]:
        for call in nodes(path) if "$" in path.read_text(encoding="utf-8") else ():
            if not (isinstance(call, ast.Call) and dotted(call.func).startswith("re.") and call.args):
                continue
            pattern = _pattern(call.args[0])
            if pattern and dotted(call.func) != "re.fullmatch" and "re.M" not in ast.unparse(call):
                told += [f"{path}:{call.lineno}: {pattern}"] if _may_take_a_newline(pattern) else []
    assert told == []


def test_patterns_of_roles_match_to_the_end() -> None:
    told = []
    for path in (Path(PACKAGE).parent / "roles").rglob("*.y*ml"):
        for pattern in TESTED.findall(path.read_text(encoding="utf-8")):
            told += [f"{path}: {pattern}"] if "$" in pattern and "(?m)" not in pattern else []
    assert told == []


TESTED = re.compile(r"(?:match|search)(?:\(|', ?)'([^']*)'")
"""Regular expressions that Jinja tests a text with."""


def _pattern(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values)  # type: ignore[misc]
    return ""


def _may_take_a_newline(pattern: str) -> bool:
    """Return whether the pattern contains `$` as an end anchor, outside of a character set."""
    parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]
    return not parsed.state.flags & re.MULTILINE and "AT_END)" in repr(parsed.data)
