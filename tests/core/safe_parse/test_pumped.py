"""A text that says one thing again and again costs a reader time by its length, and not by its square: a host may print
8 MiB."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import pytest

from gpuprov.capabilities.health.log import judge
from gpuprov.core import safe_parse
from gpuprov.core.masking import masked
from gpuprov.drift.judge import VERSION
from gpuprov.explain.choosing import LONGEST_LINE
from gpuprov.explain.messages import symptoms_in
from gpuprov.facts.captures import adapt, lspci
from gpuprov.facts.collect import reason_rules
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.containers import container_toolkit
from gpuprov.facts.probes.driver import cuda_toolkit
from gpuprov.facts.probes.gpus import fabric
from gpuprov.facts.probes.kernel.kernel_log import Event
from gpuprov.facts.probes.software import history
from gpuprov.init.slurm import GRES, PARAMETER
from tests.rows import run_each

LENGTH = 100_000
LIMIT = 0.5
"""Seconds of a processor; each took from 2 seconds to minutes."""
APT = "@zone +0000\n@apt\nStart-Date: 2025-01-01  00:00:00\nInstall: "
DNF = "2025-01-01T00:00:00Z SUBDEBUG Installed: a{0}-1-1\n2025-01-01T00:00:00Z SUBDEBUG Upgraded: b{0}-1-1\n"
XID = "xid (a)".ljust(LONGEST_LINE) + "\n"


def event(text: str) -> Event:
    return Event(device="0000:01:00", number=154, count=1, at=0.0, text=text)


def apt(text: str) -> object:
    return history.parse_history(Output(APT + text))


def dnf(text: str) -> object:
    return history.parse_history(Output(f"@zone +0000\n@dnf\n{text}"))


def spaced(text: str) -> object:
    return adapt.smi_rows(f"Driver Version : 1\nGPU 00000000:00\n    Product Name : a{text}x")


def states(text: str) -> object:
    return fabric.parse_state(Output(f"GPU 00000000:17:00.0\n    a{text}x\n"))


CASES: dict[str, tuple[Callable[[str], object], str]] = {
    "apt: a name without a version": (apt, "a"),
    "apt: architectures": (apt, "a:"),
    "masked: a name of names": (masked, "password"),
    "masked: tokens that are none": (masked, "eyJaaaaaaaa-"),
    "nvidia-smi -q: blanks": (spaced, " "),
    "lspci: classes": (lspci.convert_functions, "00:00.0 [0000]: "),
    "lspci: classes of adapters": (lspci.list_gone, "00:00.0 [0200]: "),
    "explain: an Xid without its number": (symptoms_in, XID),
    "drift: digits": (VERSION.findall, "0"),
    "Xid 154: brackets": (lambda text: judge(event(text)), "to 0xa ("),
    "sudo: an option": (reason_rules.WARNINGS.search, "a"),
    "slurm: a long word": (PARAMETER.findall, "a"),
    "slurm: brackets": (GRES.findall, "a:a("),
    "yaml: a long number that is none": (lambda text: safe_parse.parse_yaml(f"{text}x"), "6"),
    "toml: a long key": (safe_parse.parse_toml, "a"),
    "cuda: blanks": (lambda text: cuda_toolkit.parse_requires(Output(f"@a|1\na{text}x\n")), " "),
    "fabric: blanks": (states, " "),
    "CDI: empty lines": (lambda text: container_toolkit.parse_specifications(Output(f"@spec a\n{text}x")), "\n"),
}


class Late(Exception):
    pass


def late(_number: int, _frame: FrameType | None) -> None:
    raise Late


@run_each("case", CASES)
def test_a_text_that_repeats_itself_takes_no_longer_than_another(case: str) -> None:
    read, unit = CASES[case]
    text = unit * (LENGTH // len(unit))
    with suppress(safe_parse.Unreadable):
        read(unit)  # what is read once, as a catalogue, is not what is timed
    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        read(text)
    except safe_parse.Unreadable:
        pass
    except Late:
        pytest.fail(f"{case}: {LENGTH} characters take more than {LIMIT} s", pytrace=False)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@pytest.mark.install
def test_old_versions_of_dnf_packages_are_found_at_once() -> None:
    """A line for each of 10,000 packages, and one of another package's old version: each was looked for in all of
    them."""
    text = "".join(DNF.format(number) for number in range(10_000))
    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, 2.0)
    try:
        dnf(text)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def test_what_is_masked_stays_masked() -> None:
    told, count = masked("MY.db_password = 'x y'\nauth: abc12345xyz\nfoo=my-token=abcdefghijk; author: me")
    assert (told, count) == ("MY.db_password = '***'\nauth: ***\nfoo=my-token=***; author: me", 3)
