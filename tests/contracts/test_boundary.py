"""The boundary of trust: data reaches Ansible by one way."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.contracts.test_imports import FILES, PACKAGE, nodes

NOT_FOR_ANSIBLE = {
    "capabilities/kubernetes/documents.py": "files for Kubernetes, which are values of variables",
    "report/specs.py": "the mig-parted file",
    "render/project.py": "tasks of gpuprov's own, narrowed",
}
"""Where YAML is made that Ansible does not read as variables."""
TRUST = ("trust_as_template", "TrustedAsTemplate", "apply_trust")


def test_yaml_is_written_in_one_place() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in FILES
        for node in nodes(path)
        if isinstance(node, ast.Attribute)
        and node.attr in ("safe_dump", "dump", "dump_all", "safe_dump_all")
        and ast.unparse(node.value) == "yaml"
    }
    found = {name for name in found if not name.startswith("simulate/")}
    assert found == {"inert.py", *NOT_FOR_ANSIBLE}


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
