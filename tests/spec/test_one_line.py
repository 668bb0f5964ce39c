"""Every text of every block is of one line: what ends a line or steers a terminal is refused, with its place and
value."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect as shape

from gpuprov.capabilities import CAPABILITIES, HOUSE
from gpuprov.fleet.specs import load_fleet
from gpuprov.spec.build import convert
from gpuprov.spec.problem import Path as Place
from gpuprov.spec.problem import SpecError, format_path
from gpuprov.spec.shown import show
from tests.rows import run_each

BAD = ("a\n", "a\0b", "\x1b]0;OWNED\x07")
MORE = ("a\nb", "\n", "a\r", "a\tb", "a\x9b2J", "a\x7f", "a\u0085b", "a\u2028b", "a\u202eb", "a\u200bb", "\udcff")


KERNEL = next(one.fragment for one in CAPABILITIES if one.name == "kernel")


def texts(kind: shape.Type, path: Place = ()) -> Iterator[tuple[Place, str]]:
    """Where a text may stand in a type, and whether as value or key."""
    if isinstance(kind, shape.Metadata):
        yield from texts(kind.type, path)
    elif isinstance(kind, shape.UnionType):
        for member in kind.types:
            yield from texts(member, path)
    elif isinstance(kind, shape.StructType):
        for field in kind.fields:
            yield from texts(field.type, (*path, field.encode_name))
    elif isinstance(kind, shape.DictType):
        if isinstance(bare(kind.key_type), shape.StrType):
            yield path, "key"
        yield from texts(kind.value_type, (*path, "some"))
    elif isinstance(kind, shape.VarTupleType | shape.ListType):
        yield from texts(kind.item_type, (*path, 0))
    elif isinstance(kind, shape.StrType | shape.AnyType):
        yield path, "value"


def bare(kind: shape.Type) -> shape.Type:
    return bare(kind.type) if isinstance(kind, shape.Metadata) else kind


def laid(path: Place, value: object) -> Any:
    for part in reversed(path):
        value = [value] if isinstance(part, int) else {part: value}
    return value


def test_no_text_of_any_block_may_have_a_control_character() -> None:
    count = 0
    for name, fragment in (("", HOUSE.fragment), *((c.name, c.fragment) for c in CAPABILITIES)):
        top: Place = (name,) if name else ()
        for path, role in texts(shape.type_info(fragment)):
            for bad in BAD:
                value = laid(path, bad) if role == "value" else laid(path, {bad: 1})
                typed, findings = convert(value, fragment, top)
                found = {finding[0]: finding for finding in findings}
                place = (*top, *path) if role == "value" else (*top, *path, bad)
                assert typed is None, (place, bad)
                told = f"is {show(bad)}" if role == "value" else f"the key is {show(bad)}"
                assert found[place][1].endswith(told), (place, bad, found)
                assert format_path((*top, *path)) in found[place][1]
                assert found[place][2] == "allowed: text of one line, without control characters"
                assert sum(finding[0] == place for finding in findings) == 1
                assert found[place][1].isprintable()
                count += 1
    assert count > 300


def test_what_a_control_character_is() -> None:
    for bad in (*BAD, *MORE):
        assert convert({"sysctl": {"a.b": bad}}, KERNEL)[1] == [
            (("sysctl", "a.b"), f"sysctl.a.b is {show(bad)}", "allowed: text of one line, without control characters")
        ]
        assert show(bad).isascii()


def test_other_writing_is_fine() -> None:
    values = {"a.b": "größe 名前 🐧 \u00a0x", "a.c": "{{ x }}"}
    typed, findings = convert({"sysctl": values}, KERNEL)
    assert findings == []
    assert msgspec.to_builtins(typed)["sysctl"] == values


def test_all_findings_come_at_once() -> None:
    _, findings = convert({"sysctl": {"a.b": "1\n2"}, "blacklst": [], "cpu_governor": 3}, KERNEL, ("kernel",))
    assert [finding[0] for finding in findings] == [
        ("kernel", "sysctl", "a.b"),
        ("kernel", "blacklst"),
        ("kernel", "cpu_governor"),
    ]


@run_each("text", ['"1\\nkernel.panic = 1"', '"1\\n"', "|\n              1\n              kernel.panic = 1"])
def test_check_says_where(tmp_path: Path, text: str) -> None:
    """A value of two lines would be two lines of /etc/sysctl.d/90-gpuprov.conf."""
    file = tmp_path / "inventory.yaml"
    file.write_text(
        "all:\n  hosts:\n    gpu01:\n      gpuprov:\n        kernel:\n          sysctl:\n            "
        f"vm.swappiness: {text}\n"
    )
    with pytest.raises(SpecError, match=r'inventory.yaml:7:28: kernel.sysctl.vm.swappiness is "1\\n'):
        load_fleet([str(file)])
