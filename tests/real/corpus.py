"""The captures: what lies in each folder, what is read of it, and how that is compared with what is true of the
host."""

from __future__ import annotations

import importlib
import pkgutil
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

import gpuprov.facts.probes
from gpuprov.facts.captures import read
from gpuprov.facts.probes.base import Facts, Output, Probe, ProbeFailed
from tests.real.commands import COMMANDS, Reading, name_parser
from tests.real.scripts import SCRIPTS, Script, pieces_of, printed

HERE = Path(__file__).parent
WHOLE = "host.capture.json"
"""What probes printed on the host itself, in the form of `gpuprov capture`."""
PROGRAMS = {"gpuprov.facts.probes.gpus.mig_reader"}
"""Programs that run on hosts, not readers of outputs."""


class About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`about.yaml`. `facts` (written `true`): what is true of the host by a person's reading, not by our code's answer.

    `partial`: an output was cut. `mock`: no real host printed it. `status`: exit statuses other than 0; `commands`: the
    command, where the file's name does not say all. `messages`: lines that a user would paste, each with the key of the
    symptom that it is.
    """

    source: str | tuple[str, ...]
    facts: dict[str, Any] = msgspec.field(name="true")
    mock: bool = False
    gpu: str = ""
    driver: str | None = None
    distribution: str = ""
    kernel: str = ""
    date: str = ""
    partial: bool = False
    note: str = ""
    commands: dict[str, str] = {}
    status: dict[str, int] = {}
    messages: dict[str, str] = {}


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """One host at one time; `files` by name."""

    name: str
    about: About
    files: dict[str, Output]

    def readings(self) -> Iterator[tuple[str, Reading, Output]]:
        """Each file with each reading that its command has, and each script that the pieces are enough for."""
        for name, output in self.files.items():
            readings = COMMANDS.get(command_of(name))
            for reading in readings if isinstance(readings, tuple) else ():
                yield name, reading, output
            if name == WHOLE:
                yield from self._recorded()
        pieces = pieces_of(self.about.commands, self.files)
        for script in SCRIPTS:
            if script.wants(pieces, self.about.facts):
                yield self._run(script)

    def _recorded(self) -> Iterator[tuple[str, Reading, Output]]:
        """Each probe that was read on the host itself, and of which something is true."""
        (record,) = read(HERE / self.name / WHOLE)
        for name, output in record.outputs.items():
            if name in self.about.facts:
                yield f"{WHOLE}: {name}", Reading(name_parser(probes()[name]), _tell(probes()[name])), output

    def _run(self, script: Script[Any]) -> tuple[str, Reading, Output]:
        kernel = self.about.kernel if re.fullmatch(r"\S+", self.about.kernel) else ""

        family = self.about.distribution.partition(" ")[0].replace("el", "rhel").replace("rhrhel", "rhel")

        def facts(_: Output) -> dict[str, Any]:
            said = printed(script, HERE / self.name, kernel, family, tuple(self.about.commands.items()))
            return script.facts(script.probe.parse(said))

        return f"script of {script.probe.name}", Reading(script.parser, facts), Output("")


def _tell(probe: Probe[Any]) -> Callable[[Output], dict[str, Any]]:
    """What a probe says of its output, as a check gets it: the whole fact, or why there is none, under the probe's
    name."""

    def tell(output: Output) -> dict[str, Any]:
        try:
            return {probe.name: plain(Facts({probe.name: output}).get(probe))}
        except ProbeFailed as error:
            return {probe.name: {"refused": str(error)}}

    return tell


def command_of(file: str) -> str:
    """The key of a file's command in the table."""
    return file.partition(".")[0]


@cache
def captures() -> tuple[Capture, ...]:
    """All of them, by name."""
    return tuple(_read(folder) for folder in sorted(HERE.iterdir()) if (folder / "about.yaml").is_file())


def _read(folder: Path) -> Capture:
    about = msgspec.yaml.decode((folder / "about.yaml").read_bytes(), type=About)
    files = {
        path.name: Output(path.read_text(encoding="utf-8"), about.status.get(path.name, 0))
        for path in sorted(folder.iterdir())
        if path.name != "about.yaml"
    }
    return Capture(name=folder.name, about=about, files=files)


def differences(true: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Where a parser says another thing than what is true. Of a mapping, the keys that are named are compared; null:
    not there."""
    said = []
    for key, value in true.items():
        if key not in found:
            continue
        if isinstance(value, dict) and isinstance(found[key], Mapping):
            wrong = {name: found[key].get(name) for name in value if not _same(value[name], found[key].get(name))}
            said += [f"{key}.{name}: true {value[name]!r}, read {there!r}" for name, there in wrong.items()]
        elif not _same(value, found[key]):
            said.append(f"{key}: true {value!r}, read {found[key]!r}")
    return said


def _same(true: object, found: object) -> bool:
    if isinstance(true, dict) and isinstance(found, list | tuple):
        found = {"count": len(found)} | dict(enumerate(found))
    if isinstance(true, dict) and isinstance(found, Mapping):
        return not differences(true, {**dict.fromkeys(true), **found})
    return bool(true == msgspec.json.decode(msgspec.json.encode(found)))


def plain(found: object) -> Any:
    """The same in mappings, lists and words: fields by their names, what is in no order sorted."""
    if isinstance(found, tuple) and hasattr(found, "_asdict"):
        found = found._asdict()
    if isinstance(found, msgspec.Struct):
        found = msgspec.structs.asdict(found)
    elif is_dataclass(found):
        found = {field.name: getattr(found, field.name) for field in fields(found)}
    if isinstance(found, Mapping):
        return {str(key): plain(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [plain(value) for value in found]
    return sorted(found) if isinstance(found, set | frozenset) else msgspec.to_builtins(found)


@cache
def probes() -> dict[str, Probe[Any]]:
    """Every probe in gpuprov/facts/probes, by its name."""
    found: dict[str, Probe[Any]] = {}
    for info in pkgutil.walk_packages(gpuprov.facts.probes.__path__, "gpuprov.facts.probes."):
        if info.name in PROGRAMS:
            continue
        module = importlib.import_module(info.name)
        found |= {value.name: value for value in vars(module).values() if isinstance(value, Probe)}
    return found


def list_own() -> list[str]:
    """Parsers of what gpuprov itself writes on hosts: no other program decides its form."""
    own = {name_parser(probe) for probe in probes().values() if probe.own}
    return sorted(own - {name_parser(probe) for probe in probes().values() if not probe.own})


@cache
def parsers() -> frozenset[str]:
    """Every parser in gpuprov/facts/probes of what others decide: those that probes name, and the readers of acceptance
    programs' outputs."""
    found = {name_parser(probe) for probe in probes().values()} - set(list_own())
    found |= {
        f"acceptance_outputs.{name}" for name in ("bandwidth", "latency", "pingpong", "ibping", "rping", "copies")
    }
    return frozenset(
        found | {"acceptance_outputs.collective", "acceptance_outputs.diagnostics", "imex.domain", "ofed.release"}
    )


@cache
def counts() -> Counter[str]:
    """How many captures each parser was tried on; mocks are none."""
    real = (capture for capture in captures() if not capture.about.mock)
    return Counter(parser for capture in real for parser in {reading.parser for _, reading, _ in capture.readings()})


def summary() -> str:
    """The paragraph of docs/explanation/limits.md that says which parsers real outputs have hardly tried."""
    short = sorted(name for name in parsers() if counts()[name] < 3)
    told = ", ".join(f"`{name}`" + (f" ({counts()[name]})" if counts()[name] else "") for name in short)
    tried = "fewer than three [real captures](../../tests/real/README.md) have tried"
    own = ", ".join(f"`{name}`" for name in list_own())
    text = (
        f"* Parsers that {tried}, with the number that have: {told}. Not counted, as gpuprov itself writes what they read: "
        f"{own}."
    )
    return textwrap.fill(text, 130, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def with_summary(text: str) -> str:
    """The text of limits.md with the paragraph that is right now in place of the one that it has."""
    old = re.compile(r"^\* Parsers that fewer than three .*?(?=^(?:\*|$))", re.MULTILINE | re.DOTALL)
    assert len(old.findall(text)) == 1
    return old.sub(lambda _: f"{summary()}\n", text)
