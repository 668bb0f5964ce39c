"""Hosts whose every answer is hostile: gpuprov's own frames and parsers, and no connection."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import gpuprov.facts.collect.gather  # noqa: F401
from gpuprov.facts.collect.children import Job
from gpuprov.facts.collect.script import split
from gpuprov.facts.probes.base import Output
from gpuprov.spec.model import RawHost
from tests.capabilities.asking import good
from tests.taint.canary import Nest

TOKEN = re.compile(r"""[^\s|,=:;"'{}\[\]()<>]+""")
NONCE = "01234567-89ab-cdef-0123-456789abcdef"
Texts = dict[str, str]


MORE = {
    "sysctl_files": "".join(f"net.ipv4.conf.all.key{n} = some\n" for n in range(40)),
    "modprobe_config": "".join(f"options nvidia-current NVreg_Key{n}=some\n" for n in range(20)),
}
"""Where a host may say what it likes."""


def answers() -> Texts:
    """What the probes of a good host print."""
    return {name: text.text if isinstance(text, Output) else text for name, text in good().items()} | MORE


def poisoned(texts: Mapping[str, str], nest: Nest, number: int, of: int) -> Texts:
    """The answers with every `of`-th word of each, from the `number`-th on, replaced by a canary."""
    count = iter(range(10**9))

    def word(found: re.Match[str]) -> str:
        return nest.one() if next(count) % of == number else found[0]

    return {name: TOKEN.sub(word, text) for name, text in texts.items()}


def serve(monkeypatch: pytest.MonkeyPatch, hosts: Mapping[str, Texts]) -> None:
    """From now on `gather` reads these hosts."""

    def job(raw: RawHost, script: str, _timeout: float, done: Callable[[bytes], None]) -> Any:
        names = re.findall(r"(?m)^probe '?([\w.-]+)'? ", script)
        assert names
        told = [f"{NONCE}>{name}\n{hosts[raw.name].get(name, '')}{NONCE}<0\n" for name in names]
        begin = re.search(r"gpuprov-begin %s %s %s\\n' (\w+)", script)
        assert begin
        framed = f"gpuprov-begin {begin[1]} {NONCE} 0\n{''.join(told)}{NONCE}.\n".encode()
        assert split(framed)
        return Job(lambda: done(framed), b"", bool, 1, done)  # type: ignore[arg-type,return-value]

    def run_all(jobs: list[Job], _workers: int) -> None:
        for one in jobs:
            one.start()

    module = sys.modules["gpuprov.facts.collect.gather"]  # its function has the same name
    monkeypatch.setattr(module, "job", job)
    monkeypatch.setattr("gpuprov.facts.collect.rounds.run_all", run_all)
