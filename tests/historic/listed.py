"""The list of historic bugs (bugs.yaml), and the way to plant one on a host's facts and see it caught."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
import yaml

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.base import Moment
from gpuprov.capabilities.nouveau import Nouveau
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.persistence import Persistence
from gpuprov.facts.probes.base import Output
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from gpuprov.verify.evaluate import Result, evaluate
from tests.capabilities import contents_host
from tests.capabilities.asking import BARE, facts, good

FILE = Path(__file__).with_name("bugs.yaml")
NO_FABRIC = {
    **dict.fromkeys(("fabric_bridges", "fabric_packages", "fabric_state"), ""),
    "fabric_manager": BARE["fabric_manager"],
}
NO_RDMA = {
    **dict.fromkeys(("erdma_initramfs", "ofed_packages"), ""),
    **{name: BARE[name] for name in ("erdma", "nccl", "ofed", "roce")},
}
ALL: tuple[Moment, ...] = ("preflight", "now", "next-boot")


class Caught(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A check that fails on the bug, and words of the fix it gives; `host`: the distribution whose hosts alone give
    it."""

    check: str
    fix: str
    host: Literal["", "Ubuntu", "EL"] = ""


class Bug(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of bugs.yaml, whose head explains the fields."""

    id: str
    where: tuple[str, ...]
    what: str
    state: Literal["covered", "later", "not ours"]
    caught: tuple[Caught, ...] = ()
    tests: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    needs: str = ""
    how: str = ""
    why: str = ""


class Listed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file: what is still to come, and the bugs."""

    later: dict[str, str]
    bugs: tuple[Bug, ...]


@cache
def listed() -> Listed:
    """bugs.yaml, read strictly."""
    return msgspec.convert(yaml.load(FILE.read_bytes(), Loader=yaml.CSafeLoader), Listed)


def bug(identifier: str) -> Bug:
    """The entry of this id."""
    return next(entry for entry in listed().bugs if entry.id == identifier)


def spec(driver: NvidiaDriver | None = None, gpu: GpuSpec | None = None, *, fabric: bool = False) -> HostSpec:
    """Every capability as the defaults have it, `fabric_manager` where asked; what nouveau asks of the kernel is in
    it."""
    kernel = Kernel(blacklist=("nouveau", "nova_core"), module_options={"nouveau": {"modeset": 0}})
    blocks: dict[str, Fragment] = {
        "kernel": kernel,
        "nouveau": Nouveau(),
        "nvidia_driver": driver or NvidiaDriver(),
        "persistence": Persistence(),
    }
    if fabric:
        blocks["fabric_manager"] = BY_NAME["fabric_manager"].fragment()
    return HostSpec(name="gpu1", gpu=gpu, capabilities=blocks)


def judged(host: HostSpec, **planted: Output | str) -> dict[str, Result]:
    """Every check of every moment, asked of the good host with these probes' outputs changed."""
    texts = {**NO_FABRIC, **good(), **NO_RDMA}
    assert set(planted) <= set(texts), f"no probe is called {set(planted) - set(texts)}"
    told = {**texts, **planted}
    if isinstance(also := planted.get("contents", contents_host.Also()), contents_host.Also):
        told["contents"] = contents_host.whole(host, facts(**{**told, "contents": ""})) + also
    results = evaluate(host, facts(**told), ALL)
    return {result.check: result for result in results}


def failing(results: Mapping[str, Result]) -> dict[str, Result]:
    """Those that neither pass nor skip."""
    return {name: result for name, result in results.items() if result.status not in ("pass", "skip", "n/a")}


SOUND: set[str] = set()
"""Hosts without a bug that were judged before."""


def _assert_sound(asked: HostSpec, host: Mapping[str, Output | str]) -> None:
    """Assert that a host without the bug passes everything; each host is judged once."""
    key = repr((asked, [(name, text, getattr(text, "__dict__", None)) for name, text in sorted(host.items())]))
    if key not in SOUND:
        assert failing(judged(asked, **host)) == {}
        SOUND.add(key)


def caught(
    identifier: str,
    *checks: str,
    along: Collection[str] = (),
    driver: NvidiaDriver | None = None,
    gpu: GpuSpec | None = None,
    base: Mapping[str, Output | str] | None = None,
    asked: HostSpec | None = None,
    on: str = "",
    **planted: Output | str,
) -> dict[str, Result]:
    """Plant the bug: exactly `checks`, each with the fix that bugs.yaml has for it, and `along` must fail.

    The same host without the bug passes everything: the failures are the bug's and nothing else's. `base`: a host with
    NVSwitches, whose spec asks for fabric_manager; without it, the good host of tests/capabilities. `asked`: another
    spec. `on`: the distribution of `base`, whose fixes bugs.yaml may have on their own.
    """
    fabric = base is not None
    host = dict(base or {})
    _assert_sound(asked or spec(fabric=fabric), host)
    failed = failing(judged(asked or spec(driver, gpu, fabric=fabric), **{**host, **planted}))
    told = {name: (result.found, result.fix) for name, result in failed.items()}
    assert set(failed) == {*checks, *along}, told
    known = {entry.check: entry.fix for entry in bug(identifier).caught if not entry.host}
    known |= {entry.check: entry.fix for entry in bug(identifier).caught if entry.host == on}
    for name in checks:
        assert failed[name].status == "fail", told
        assert known[name] in failed[name].fix, told
    return failed
