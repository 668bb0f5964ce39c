"""gpuprov/onhost/checkpoints.py, run on many hosts at a time."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from gpuprov import onhost, reading
from gpuprov.errors import GpuprovError, UnreachableError
from gpuprov.gather.children import Job, run_all
from gpuprov.gather.pace import Pace
from gpuprov.gather.script import compose, split
from gpuprov.gather.transport import Answer, job
from gpuprov.onhost import checkpoints
from gpuprov.plan.host_lock import with_python
from gpuprov.probe.base import Output, Probe
from gpuprov.render.code import modules
from gpuprov.spec.model import RawHost

LIMIT = 600.0
"""Seconds for one host: packages that apt has not kept are downloaded once more."""

LOADER = """
import base64, importlib.util, json, sys, zlib
class Carried:
    texts = json.loads(zlib.decompress(base64.b64decode({texts!r})))
    def find_spec(self, name, path=None, target=None):
        file = name.replace(".", "/")
        for origin, package in ((file + "/__init__.py", True), (file + ".py", False)):
            if origin in self.texts:
                spec = importlib.util.spec_from_loader(name, self, origin=origin, is_package=package)
                spec.has_location = True
                return spec
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        exec(compile(self.texts[module.__file__], module.__file__, "exec"), module.__dict__)
    def get_data(self, path):
        return self.texts[path].encode()
sys.meta_path.insert(0, Carried())
from gpuprov_onhost import checkpoints
checkpoints.main()
"""


@cache
def program() -> str:
    """The program as one text, as it goes to a host: an importer of its modules, which lie packed in it."""
    top = Path(str(onhost.__file__)).parent
    found = (find_spec(name) for name in modules(checkpoints.__name__) if name.startswith(onhost.__name__))
    files = [Path(spec.origin) for spec in found if spec and spec.origin]
    texts = {f"gpuprov_onhost/{file.relative_to(top).as_posix()}": file.read_text(encoding="utf-8") for file in files}
    packed = base64.b64encode(zlib.compress(json.dumps(texts).encode(), 9)).decode()
    return LOADER.replace("{texts!r}", repr(packed))


class Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the program answers; a host may say anything else."""

    problem: str | None = None
    kept: str = ""
    left_out: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unasked: str = ""
    locked: dict[str, Any] | None = None


def on_hosts(
    asked: Mapping[str, tuple[RawHost, Mapping[str, Any]]], pace: Pace | None = None
) -> dict[str, dict[str, Any]]:
    """By host, what the program answered; `problem` in it says why it did not do what it was asked for."""
    answers: dict[str, dict[str, Any]] = {name: {"problem": "not tried"} for name in asked}
    run_all(_jobs(asked, answers), (pace or Pace(0)).forks or 64)
    return answers


def _jobs(asked: Mapping[str, tuple[RawHost, Mapping[str, Any]]], answers: dict[str, dict[str, Any]]) -> Iterator[Job]:
    """One at a time: the program is in each, and a fleet of them would be a gigabyte."""
    for name, (raw, request) in asked.items():
        script = compose((Probe("checkpoint", with_python(program(), request), _text),), limit=int(LIMIT))
        try:
            yield job(raw, script, LIMIT, _noted(answers, name))
        except GpuprovError as error:
            answers[name] = {"problem": error.message}


def _text(output: Output) -> str:
    return output.text


def _noted(answers: dict[str, dict[str, Any]], host: str) -> Callable[[Answer], None]:
    def done(answer: Answer) -> None:
        if isinstance(answer, UnreachableError):
            answers[host] = {"problem": getattr(answer, "reason", answer.message)}
            return
        output = (split(answer) or {}).get("checkpoint", Output(""))
        try:
            told = msgspec.to_builtins(reading.typed_json(output.text, Told))
            answers[host] = {key: one if key == "locked" else _in_one_line(one) for key, one in told.items()}
        except reading.Unreadable:
            said = " ".join((output.error or output.text).split())[-300:]
            answers[host] = {"problem": said or f"exit status {output.status}"}

    return done


def _in_one_line(said: Any) -> Any:
    """Texts are told in a line of the host's; the lock's is compared with what it was."""
    return [_in_one_line(one) for one in said] if isinstance(said, list | tuple) else " ".join(said.split())
