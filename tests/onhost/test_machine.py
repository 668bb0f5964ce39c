"""Whether two answers are of one machine; what a reboot makes of it stands in tests/historic/test_reboot.py."""

from __future__ import annotations

import subprocess

import pytest

from gpuprov.onhost.machine import IDENTITY, MACHINE, same

BOOT, OTHER = "9f0c1b1e-0000-4000-8000-000000000001", "9f0c1b1e-0000-4000-8000-000000000002"
IN, BESIDE = "pid:[4026532001]", "pid:[4026532002]"


@pytest.mark.parametrize(
    ("here", "there", "is_same"),
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
def test_one_machine(here: str, there: str, is_same: bool) -> None:
    assert same(here, there) is is_same


def test_this_machine_knows_itself() -> None:
    said = subprocess.run(["sh", "-c", IDENTITY], capture_output=True, text=True, check=True).stdout
    assert same(said, said)
