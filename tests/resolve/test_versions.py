"""One version for the whole set, from what real Debian repositories offer."""

from __future__ import annotations

from typing import Any

from gpuprov.catalog.drivers.sets import find_packages
from gpuprov.host_code.packages import lists
from gpuprov.rules import resolve
from gpuprov.rules.package_lists import Answer
from tests.facts.probes import captured
from tests.rows import run_each

BOOKWORM = lists.parse_madison(captured("package_index", "bookworm").text)
TRIXIE = lists.parse_madison(captured("package_index", "trixie").text)
NAMES = find_packages("debian", "12")
assert NAMES
RULES_OF = NAMES.sets
SETS = {flavour: list(resolve.fitting(rules, "535")) for flavour, rules in NAMES.sets.items()}
OLD, NEW = "535.261.03-1", "535.309.01-0+deb12u1"


def decide(version: str, modules: str = "auto", **more: Any) -> Answer:
    """What a bookworm host with an H100 should have, unless said otherwise."""
    arguments = {"pci_ids": ["10de:2330"], "table": {"10de:2330": "either"}, "index": BOOKWORM, "installed": {}, **more}
    return resolve.decide(version, modules, sets=RULES_OF, **arguments)


def whole(version: str, flavour: str = "proprietary") -> dict[str, str]:
    return dict.fromkeys(SETS[flavour], version)


def test_order_is_by_number() -> None:
    versions = ["535.98", "535.309.01-0+deb12u1", "535.104.05", "550.163.01-2", "535.261.03-1"]
    assert [resolve.upstream(v) for v in sorted(versions, key=resolve.order)] == [
        "535.98",
        "535.104.05",
        "535.261.03",
        "535.309.01",
        "550.163.01",
    ]
    assert resolve.order("535.x.1") == (535, 0, 1)


@run_each(
    ("version", "wanted", "fits"),
    [
        ("535.261.03-1", "any", True),
        ("535.261.03-1", "535", True),
        ("535.261.03-1", "535.261.03", True),
        ("535.261.03-1", "535.261", False),
        ("535.261.03-1", "53", False),
        ("535.261.03-1", "550", False),
        ("535.261.03-1", "535.309.01", False),
        ("1:535.261.03-1", "535", True),
    ],
)
def test_satisfies(version: str, wanted: str, fits: bool) -> None:
    assert resolve.satisfies(version, wanted) is fits


def test_madison() -> None:
    assert BOOKWORM["nvidia-kernel-dkms"] == [NEW, OLD, "535.216.03-2~bpo12+1"]
    assert BOOKWORM["nvidia-open-kernel-dkms"] == [OLD]
    assert TRIXIE["nvidia-modprobe"] == ["570.133.07-1"]


def test_madison_without_sources_repeats_and_noise() -> None:
    text = (
        "N: Unable to locate package x\n"
        " nvidia-smi | 535.261.03-1 | http://mirror.example/debian bookworm/non-free amd64 Packages\n"
        " nvidia-smi | 535.261.03-1 | http://mirror.example/debian bookworm-updates/non-free amd64 Packages\n"
        "nvidia-graphics-drivers | 535.261.03-1 | http://mirror.example/debian bookworm/non-free Sources\n"
    )
    assert lists.parse_madison(text) == {"nvidia-smi": ["535.261.03-1"]}


def test_installed_leaves_out_what_is_only_known_or_configured() -> None:
    text = (
        "ii |nvidia-smi|535.261.03-1|nvidia-graphics-drivers\n"
        "hi |libcuda1|535.261.03-1|nvidia-graphics-drivers\n"
        "iF |nvidia-open-kernel-dkms|535.261.03-1|nvidia-open-gpu-kernel-modules\n"
        "rc |nvidia-kernel-support|535.261.03-1|nvidia-graphics-drivers\n"
        "un |libcuda1-any||libcuda1-any\n\n"
    )
    assert sorted(lists.parse_installed(text)) == ["libcuda1", "nvidia-open-kernel-dkms", "nvidia-smi"]


@run_each("wanted", ["any", "535", "535.309.01"])
def test_the_newest_whole_set_is_taken(wanted: str) -> None:
    answer = decide(wanted)
    assert (answer["version"], answer["flavour"], answer["kept"]) == ("535.309.01", "proprietary", False)
    assert answer["packages"] == whole(NEW)
    assert answer["problem"] == ""


@run_each("wanted", ["any", "535", "535.261.03"])
def test_bookworm_has_the_open_modules_whole_only_at_261(wanted: str) -> None:
    answer = decide(wanted, "open")
    assert answer["packages"] == whole(OLD, "open")
    assert answer["problem"] == ""


def test_an_open_version_that_is_not_whole_says_what_is_missing_and_the_nearest() -> None:
    answer = decide("535.309.01", "open")
    assert answer["problem"] == (
        "version 535.309.01 is incomplete in the host's repositories: no nvidia-open-kernel-dkms, "
        "nvidia-open-kernel-support 535.309.01-0+deb12u1"
    )
    assert answer["fix"] == "the nearest version with the whole set is 535.261.03; whole sets: 535.261.03"
    assert (answer["version"], answer["packages"]) == ("", {})


@run_each(
    ("wanted", "nearest"),
    [("550", "535.309.01"), ("470", "535.309.01"), ("535.280.01", "535.261.03"), ("535.999", "535.309.01")],
)
def test_a_version_that_nobody_offers_names_the_nearest(wanted: str, nearest: str) -> None:
    answer = decide(wanted)
    assert answer["problem"] == f'no driver version matches "{wanted}" in the host\'s repositories'
    assert (
        answer["fix"]
        == f"the nearest version with the whole set is {nearest}; whole sets: 535.309.01, 535.261.03, 535.216.03"
    )


def test_an_empty_index_names_the_components() -> None:
    answer = decide("535", index={})
    assert answer["problem"].startswith(
        "the host's repositories have none of nvidia-kernel-dkms, nvidia-kernel-support,"
    )
    assert answer["fix"] == resolve.NO_DRIVER


@run_each("wanted", ["any", "535", "535.261.03"])
def test_an_installed_whole_set_is_kept(wanted: str) -> None:
    answer = decide(wanted, installed=whole(OLD))
    assert (answer["version"], answer["kept"]) == ("535.261.03", True)


@run_each(("wanted", "target"), [("535.309.01", NEW), ("535.216.03", "535.216.03-2~bpo12+1")])
def test_another_exact_version_moves_the_set_both_ways(wanted: str, target: str) -> None:
    answer = decide(wanted, installed=whole(OLD))
    assert (answer["packages"], answer["kept"]) == (whole(target), False)


def test_a_mixed_set_follows_its_module() -> None:
    mixed = {**whole(OLD), "libcuda1": NEW}
    assert decide("535", installed=mixed)["packages"] == whole(OLD)


def test_a_half_set_that_is_no_longer_offered_moves_to_the_newest() -> None:
    assert decide("535", installed={"nvidia-kernel-dkms": "535.183.01-1"})["packages"] == whole(NEW)


def test_trixie() -> None:
    answer = decide("any", index=TRIXIE)
    assert (answer["version"], answer["flavour"]) == ("550.163.01", "proprietary")
