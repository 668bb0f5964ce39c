"""Whether two answers are of one machine; what a reboot makes of it stands in tests/historic/test_reboot.py."""

from __future__ import annotations

import subprocess

from gpuprov.host_code.machine import IDENTITY, MACHINE, find_duplicates, is_same, list_warnings
from tests.rows import run_each

BOOT, OTHER = "9f0c1b1e-0000-4000-8000-000000000001", "9f0c1b1e-0000-4000-8000-000000000002"
IN, BESIDE = "pid:[4026532001]", "pid:[4026532002]"


@run_each(
    ("here", "there", "is_alike"),
    [
        (f"{BOOT} {MACHINE}", f"{BOOT} {MACHINE}", True),
        (f"{BOOT} {IN}", f"{BOOT} {IN}", True),
        (f"{BOOT} {IN}", f"{BOOT} {MACHINE}", True),  # this container's machine
        (f"{BOOT} {MACHINE}", f"{BOOT} {IN}", False),  # a container on this machine
        (f"{BOOT} {IN}", f"{BOOT} {BESIDE}", False),
        (f"{BOOT} {MACHINE}", f"{OTHER} {MACHINE}", False),
        ("", "", False),
        (f"{BOOT} {MACHINE}", "", False),
    ],
)
def test_one_machine(here: str, there: str, is_alike: bool) -> None:
    assert is_same(here, there) is is_alike


def test_this_machine_knows_itself() -> None:
    said = subprocess.run(["sh", "-c", IDENTITY], capture_output=True, text=True, check=True).stdout
    assert is_same(said, said)


def test_names_of_one_machine() -> None:
    """Clones have one machine-id, and each a boot of its own; containers have one boot, and each a namespace of its
    own."""
    here, there = f"{BOOT} {MACHINE}", f"{OTHER} {MACHINE}"
    answers = {"a": here, "b": there, "a-ib": here, "c1": f"{BOOT} {IN}", "c2": f"{BOOT} {BESIDE}", "a.x": here}
    assert find_duplicates(answers) == {"a-ib": "a", "a.x": "a"}
    [told] = list_warnings(answers)
    assert told.startswith("a, a-ib, a.x are one machine, which apply works on by the name a alone. Fix: ")


def test_what_is_not_known_is_no_machine() -> None:
    assert find_duplicates({"a": "", "b": "", "c": MACHINE, "d": MACHINE, "e": BOOT, "f": BOOT}) == {}


def test_this_machine_says_which_it_is() -> None:
    said = [subprocess.run(["sh", "-c", IDENTITY], capture_output=True, text=True, check=True).stdout for _ in "12"]
    assert find_duplicates(dict(zip("ab", said, strict=True))) == {"b": "a"}
