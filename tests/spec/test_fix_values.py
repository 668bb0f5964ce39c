"""A fix whose value only the user knows stands in no block and no list: it cannot be typed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import inspect as shape

from gpuprov.capabilities.nouveau import Nouveau
from gpuprov.capabilities.persistence.fragment import Persistence
from gpuprov.capabilities.rdma.fragment import FabricName
from gpuprov.spec.build import list_mistakes
from gpuprov.spec.described import describe
from gpuprov.spec.fixes import explain, fix_for
from gpuprov.spec.model import GpuSpec
from gpuprov.spec.text_fixes import Unknown
from tests.rows import run_each


@run_each("kind", [GpuSpec, tuple[str, ...]])
def test_a_number_that_was_a_word_makes_no_block_and_no_list(kind: Any) -> None:
    assert fix_for(1.5, shape.type_info(kind)) is None
    assert "write" not in explain(1.5, shape.type_info(kind))


def test_by_itself_it_is_told() -> None:
    fix = fix_for(1.5, shape.type_info(str))
    assert fix
    assert fix.value is Unknown
    assert fix.words == "quote it as it was written: YAML read a number"


@run_each(
    ("value", "kind", "fixed", "words"),
    [
        ("300W", int, 300, "write 300 (the unit is known)"),
        ("1410 MHz", int, 1410, "write 1410 (the unit is known)"),
        ("300", int, 300, "write 300 without quotes"),
        ("{}", Persistence, {}, "write {} without quotes"),
        ("0-3", tuple[int | str, ...], [0, 1, 2, 3], "write [0, 1, 2, 3]"),
        ("enabled", Persistence, {}, "write {} for the defaults"),
        (
            "H100-SXM5-80GB:8",
            GpuSpec,
            {"model": "H100-SXM5-80GB", "count": 8},
            "write {model: H100-SXM5-80GB, count: 8}",
        ),
        ("ib", FabricName, "infiniband", "write infiniband"),
        ("MLNX_OFED", Literal["auto", "doca-ofed"], "doca-ofed", "write doca-ofed"),
        ("pt", Literal["keep", "passthrough"], "passthrough", "write passthrough"),
        ("kubelet.service", Literal["k3s", "kubelet"], "kubelet", 'did you mean "kubelet"?'),
        (-1, int | Literal["unlimited"], "unlimited", "write unlimited"),
        ("1G", dict[Literal["2M", "1G"], int], Unknown, 'write it as a key: {"1G": ...}'),
    ],
)
def test_units_quotes_and_ranges_around_a_value(value: object, kind: Any, fixed: object, words: str) -> None:
    fix = fix_for(value, shape.type_info(kind))
    assert fix
    assert (fix.value, fix.words) == (fixed, words)


RATE = Annotated[int, describe("Gb/s that each port is to have", ge=0, le=3200)]
BANDWIDTH = Annotated[float, describe("GB/s of bus bandwidth", ge=0)]
KIB = Annotated[str, describe("unlimited, or KiB", pattern=r"^(unlimited|[1-9][0-9]{0,14})$")]
SHARE = Annotated[int, describe("the share, in percent", ge=1, le=100)]
COUNTS = Annotated[dict[str | int, Any] | tuple[Any, ...], describe("how many of which profile")]
Numbers = tuple[Annotated[int, describe("an index", ge=0, le=63)], ...]


@run_each(
    ("value", "kind", "fixed"),
    [
        ("400G", RATE, 400),
        ("400 Gb/s", RATE, 400),
        ("400Gbps", RATE, 400),
        ("NDR", RATE, 400),
        ("1.6T", RATE, None),
        ("50GB/s", RATE, None),
        ("450 GB/s", BANDWIDTH, 450),
        ("450Gb/s", BANDWIDTH, None),
        ("64G", KIB, "67108864"),
        ("64GiB", KIB, "67108864"),
        ("512K", KIB, "512"),
        ("50%", SHARE, 50),
        ("30s", Annotated[int, describe("seconds of a test", ge=5, le=600)], 30),
        ("5m", Annotated[int, describe("seconds of a test", ge=5, le=600)], 300),
        ("4M", Annotated[int, describe("bytes of a message", ge=1)], 4 << 20),
        ("8x", int, 8),
        ("8 GPUs", int, 8),
        ("eight", int, 8),
        ("many", int, None),
        ("1g.10gb", COUNTS, {"1g.10gb": 1}),
        ("7x 1g.10gb", COUNTS, {"1g.10gb": 7}),
        ("1g.10gb:4, 3g.40gb", COUNTS, {"1g.10gb": 4, "3g.40gb": 1}),
        ("all balanced", COUNTS, None),
        ("0-2,5", Numbers, [0, 1, 2, 5]),
        ("[0:3]", Numbers, [0, 1, 2, 3]),
        ("enabled", bool, True),
        ("N", bool, False),
        ("true", Persistence, {}),
    ],
)
def test_numbers_as_people_write_them(value: object, kind: Any, fixed: object) -> None:
    fix = fix_for(value, shape.type_info(kind))
    assert (fix and fix.value) == fixed


def test_a_unit_by_the_key_of_a_mapping() -> None:
    kind = Annotated[dict[str, int], describe("KiB for memlock; other numbers as they are")]
    fixes = [fix for *_, fix in list_mistakes({"memlock": "64G", "nofile": "64G"}, kind)]
    assert fixes == ["allowed: a whole number; write 67108864 (the unit is known)", "allowed: a whole number"]


def test_a_size_is_no_number_with_a_unit() -> None:
    assert fix_for("64G", shape.type_info(int)) is None, "the field counts KiB"


def test_a_word_for_off_is_no_name_in_a_block() -> None:
    assert fix_for("disabled", shape.type_info(Nouveau)) is None
