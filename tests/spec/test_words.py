"""Values and types in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import inspect as shape

from gpuprov.capabilities import CAPABILITIES
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.catalog.terms import find_term
from gpuprov.explain.fields import named
from gpuprov.spec.build import convert, describe_allowed
from gpuprov.spec.fixes import fix_for
from gpuprov.spec.kinds import unwrap
from gpuprov.spec.model import Fragment
from gpuprov.spec.problem import Origin, Path, Problem, SpecError, collect, format_path
from gpuprov.spec.shown import show
from gpuprov.spec.unknown_keys import MEANT, report_unknown_key
from gpuprov.spec.words import OUTSIDE
from tests.rows import run_each


class Inner(Fragment, frozen=True):
    name: str
    size: float = 1.0


class Outer(Fragment, frozen=True):
    inner: Inner | None = None
    many: tuple[Inner, ...] = ()
    code: Annotated[str, msgspec.Meta(pattern="^[A-Z]+$")] = "A"
    at_most: Annotated[int, msgspec.Meta(le=5)] = 1
    either: int | Literal["all"] | tuple[int, ...] = "all"


@run_each(
    ("value", "messages"),
    [
        ({"inner": {"name": 3}}, ['inner.name is 3; allowed: text; quote it: "3"']),
        (
            {"many": [{"name": "a"}, {"nmae": "b"}]},
            ['unknown key "nmae" in many[1]; did you mean "name"?'],
        ),
        ({"many": [{"name": "a", "size": "x"}]}, ['many[0].size is "x"; allowed: a number']),
        ({"code": "abc"}, ['code is "abc"; allowed: text without spaces; write ABC']),
        ({"at_most": 6}, ["at_most is 6; allowed: a whole number"]),
        ({"either": [1, "x"]}, ['either[1] is "x"; allowed: a whole number']),
        ({"either": "none"}, ['either is "none"; allowed: a whole number, all or a list']),
        ([], [" is a list; allowed: a block with inner, many, code, at_most, either ({} for the defaults)"]),
    ],
)
def test_findings(value: object, messages: list[str]) -> None:
    typed, findings = convert(value, Outer)
    assert typed is None
    assert sorted(f"{message}; {fix}" for _, message, fix in findings) == sorted(messages)


def test_names_that_other_tools_have_for_a_field_are_known() -> None:
    """Somebody wrote nvidia_driver: {branch: 580, flavour: open}, and was shown thirteen allowed keys."""
    _, findings = convert({"branch": "580", "flavour": "open"}, NvidiaDriver)
    assert [fix for _, _, fix in findings] == ['did you mean "version"?', 'did you mean "kernel_modules"?']
    assert all(named(name) for name in MEANT.values())


def test_a_key_that_switches_a_block_on_is_told_what_does_so_here() -> None:
    _, findings = convert({"enabled": True}, NvidiaDriver)
    assert [fix.partition(":")[0] for _, _, fix in findings] == ["take it out"]


def test_what_slurm_runs_containers_with_is_told_where_it_stands() -> None:
    """Somebody wrote slurm: {enroot: {}}, and read that gpuprov leaves it alone, when slurm.containers was there."""
    for key, words in {"enroot": "enroot: true", "pyxis": "enroot: true, pyxis: true"}.items():
        _, message, fix = report_unknown_key(("slurm",), key, ["gres", "shards", "containers"])
        assert (message, fix) == (f'unknown key "{key}" in slurm', f"write containers: {{{words}}}")
    _, _, fix = report_unknown_key(("rdma",), "enroot", ["fabric", "stack"])
    assert fix == "it is not a field of rdma: write slurm: {containers: {enroot: true}}"


def test_what_explain_knows_is_not_answered_with_a_list_of_blocks() -> None:
    for key in OUTSIDE:
        _, _, fix = report_unknown_key((), key, ["mig", "mps"])
        assert fix == f"it is not a block of gpuprov's; gpuprov explain {key} says what it is"
        assert find_term(key), key


@run_each("value", [float("nan"), float("inf"), -float("inf"), 1.5])
def test_a_number_that_is_no_whole_one_has_no_fix(value: float) -> None:
    assert fix_for(value, shape.type_info(int)) is None


def test_what_is_right_has_no_findings() -> None:
    assert convert({"inner": {"name": "x"}, "either": [1]}, Outer) == (Outer(inner=Inner(name="x"), either=(1,)), [])


class Outermost(Fragment, frozen=True):
    needed: Outer
    outer: Outer = Outer(at_most=2)


@run_each(
    ("value", "typed"),
    [
        ({"outer": False, "needed": {}}, Outermost(needed=Outer())),
        ({"outer": {"inner": False, "code": "B"}, "needed": {"inner": False}},
         Outermost(outer=Outer(code="B"), needed=Outer())),
    ],
)  # fmt: skip
def test_a_block_inside_a_block_is_switched_off(value: object, typed: Outermost) -> None:
    assert convert(value, Outermost) == (typed, [])


def test_what_is_needed_cannot_be_switched_off() -> None:
    _, findings = convert({"needed": False}, Outermost)
    assert [message for _, message, _ in findings] == ["needed is false"]


@run_each(
    ("value", "shown"),
    [
        (True, "true"),
        (None, "empty"),
        ("a", '"a"'),
        ({}, "a mapping"),
        ((), "a list"),
        (1.5, "1.5"),
        ("x" * 99, '"' + "x" * 56 + "..."),
    ],
)
def test_show(value: object, shown: str) -> None:
    assert show(value) == shown


@run_each(
    ("path", "text"),
    [
        ((), ""),
        (("mig", "layout", 0, "gpus"), "mig.layout[0].gpus"),
        (("kernel", "sysctl", "a.b"), "kernel.sysctl.a.b"),
    ],
)
def test_dotted(path: Path, text: str) -> None:
    assert format_path(path) == text


def test_problems_are_sorted_by_place_and_told_once() -> None:
    late, early = Origin("a.yaml", 9, 1), Origin("a.yaml", 2, 5)
    problems = [
        Problem(message="late", origin=late, hosts=("a",)),
        Problem(message="same", origin=early, hosts=("a",), fix="do so"),
        Problem(message="same", origin=early, hosts=("b",), fix="do so"),
        Problem(message="same", origin=early, hosts=("a",), fix="do so"),
        Problem(message="nowhere", severity="warning"),
    ]
    found = collect(problems)
    assert [str(problem) for problem in found] == ["warning: nowhere", "a.yaml:2:5: same; do so", "a.yaml:9:1: late"]
    assert found[1].hosts == ("a", "b")
    assert str(SpecError(problems)).splitlines()[1] == "a.yaml:2:5: same; do so"


def test_no_pattern_reaches_a_user() -> None:
    def list_texts(kind: shape.Type) -> Iterator[str]:
        for member in kind.types if isinstance(kind, shape.UnionType) else [kind]:
            bare = unwrap(member)
            if isinstance(bare, shape.StructType):
                for field in bare.fields:
                    yield from list_texts(field.type)
            elif isinstance(bare, shape.VarTupleType | shape.ListType):
                yield from list_texts(bare.item_type)
            elif isinstance(bare, shape.DictType):
                yield from (*list_texts(bare.key_type), *list_texts(bare.value_type))
            elif isinstance(bare, shape.UnionType):
                yield from list_texts(bare)
            elif isinstance(bare, shape.StrType):
                yield describe_allowed(member)

    texts = [text for item in CAPABILITIES for text in list_texts(shape.type_info(item.fragment))]
    assert len(texts) > 90
    assert not [text for text in texts if "^" in text or text[:2] in ("A ", "") or text.startswith("The ")]
