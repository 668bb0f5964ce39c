"""Files that the roles write have the mode that they say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

ROLES = Path(__file__).parents[2] / "roles"


def copies(node: object) -> Iterator[dict[str, object]]:
    """The arguments of every copy, in blocks too."""
    if isinstance(node, list):
        for item in node:
            yield from copies(item)
    elif isinstance(node, dict):
        if isinstance(arguments := node.get("ansible.builtin.copy"), dict):
            yield arguments
        for part in ("block", "rescue", "always"):
            yield from copies(node.get(part))


def test_a_text_is_never_written_with_the_mode_of_ansibles_own_temporary_file() -> None:
    """`mode: preserve` is that of the source, which for `content` is a file of mode 0600."""
    found = [
        (file, arguments)
        for file in ROLES.rglob("tasks/**/*.yml")
        for arguments in copies(yaml.safe_load(file.read_text()))
    ]
    assert found
    assert [str(file) for file, copy in found if "content" in copy and copy.get("mode") == "preserve"] == []
