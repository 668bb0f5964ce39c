"""Runs a module of gpuprov/host_code on many hosts at a time as a program: a request on its standard input, one line of
JSON back."""

import ast
import base64
import importlib.util
import json
import shlex
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

from gpuprov import host_code
from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError, UnreachableError
from gpuprov.facts.collect.children import Job, run_all
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.collect.script import compose_one, split, with_environment
from gpuprov.facts.collect.transport import Answer, job
from gpuprov.facts.probes.base import Output
from gpuprov.rules import reach
from gpuprov.spec.model import PACKAGE_BUNDLE, RawHost


@cache
def find_modules(name: str) -> tuple[str, ...]:
    """Return the module and everything that it imports, directly or not, with their packages."""
    collected: set[str] = set()
    waiting = [name]
    while waiting:
        module_name = waiting.pop()
        if module_name not in collected and (file := _find_file(module_name)):
            collected.add(module_name)
            waiting += [module_name.rpartition(".")[0], *_find_imports(module_name, file)]
    return tuple(sorted(collected))


def _find_file(name: str) -> Path | None:
    if not name.startswith(host_code.__name__):
        return None
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # a name in a module
        return None
    return Path(spec.origin) if spec and spec.origin else None


def _find_imports(name: str, file: Path) -> Iterator[str]:
    """Yield what it imports relatively: modules, and names that may be modules."""
    above = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            place = ".".join([*above[: len(above) - node.level + 1], *([node.module] if node.module else [])])
            yield place
            yield from (f"{place}.{alias.name}" for alias in node.names)


T = TypeVar("T")
Request = Mapping[str, Any]
_PROBE = "host_code"
NO_PYTHON = f"no Python 3.8 or newer on the host: {reach.NEWER}"
# EL 8's python3 is 3.6, too old for the program; a newer one that Ansible is set to use lies beside it.
_PYTHON = f"""for python in python3 {reach.BESIDE} {reach.PLATFORM} ''; do
  [ -n "$python" ] || {{ echo '{NO_PYTHON}' >&2; exit 127; }}
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null && break
done"""

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
from {module} import main
main()
"""


def with_python(text: str, request: Request) -> str:
    """Return a shell command that runs a program with the host's Python, the request on its standard input."""
    return f'{_PYTHON}\nprintf %s {shlex.quote(json.dumps(request))} | "$python" -IS -c {shlex.quote(text)}'


class HostAnswer(NamedTuple, Generic[T]):
    """A host's answer, or in one line the reason why there is none."""

    answer: T | None = None
    problem: str = ""


@cache
def program(module: str) -> str:
    """Return one text: an importer with the module and everything of gpuprov/host_code that it imports, which calls its
    function `main`."""
    top = Path(str(host_code.__file__)).parent
    specs = (find_spec(name) for name in find_modules(module) if name.startswith(host_code.__name__))
    files = [Path(spec.origin) for spec in specs if spec and spec.origin]
    texts = {
        f"gpuprov_host_code/{file.relative_to(top).as_posix()}": file.read_text(encoding="utf-8") for file in files
    }
    packed = base64.b64encode(zlib.compress(json.dumps(texts).encode(), 9)).decode()
    called = module.replace(host_code.__name__, "gpuprov_host_code", 1)
    return LOADER.replace("{texts!r}", repr(packed)).replace("{module}", called)


def run_on_hosts(
    module: ModuleType,
    requests: Mapping[str, tuple[RawHost, Request]],
    answers: type[T],
    *,
    limit: float,
    pace: Pace | None = None,
    on_done: Callable[[str], None] | None = None,
) -> dict[str, HostAnswer[T]]:
    """Run the module on these hosts and return the answers by host. A host may forge its answer: it is read as the type
    `answers`.

    requests: host and request by name. limit: seconds for one host."""
    outcomes: dict[str, HostAnswer[T]] = {name: HostAnswer(problem="not tried") for name in requests}

    def note(name: str, answer: HostAnswer[T]) -> None:
        outcomes[name] = answer
        if on_done:
            on_done(name)

    run_all(_make_jobs(module.__name__, requests, answers, limit, note), (pace or Pace(0)).forks or 64)
    return outcomes


def _make_jobs(
    module: str,
    requests: Mapping[str, tuple[RawHost, Request]],
    answers: type[T],
    limit: float,
    note: Callable[[str, HostAnswer[T]], None],
) -> Iterator[Job]:
    """Yield the jobs one at a time: each contains the program, and a whole fleet of them would take a gigabyte."""
    for name, (raw, request) in requests.items():
        script = compose_one(_PROBE, with_python(program(module), request), limit)
        script = with_environment(script, reach.of_bundle(str(raw.connection.get(PACKAGE_BUNDLE) or "")))
        try:
            yield job(raw, script, limit, _make_note_taker(name, answers, note))
        except GpuprovError as error:
            note(name, HostAnswer(problem=error.message))


def _make_note_taker(
    name: str, answers: type[T], note: Callable[[str, HostAnswer[T]], None]
) -> Callable[[Answer], None]:
    def done(answer: Answer) -> None:
        if isinstance(answer, UnreachableError):
            note(name, HostAnswer(problem=getattr(answer, "reason", answer.message)))
            return
        output = (split(answer) or {}).get(_PROBE, Output(""))
        try:
            note(name, HostAnswer(safe_parse.parse_typed_json(output.text, answers)))
        except safe_parse.Unreadable:
            words = " ".join((output.error or output.text).split())[-300:]
            note(name, HostAnswer(problem=words or f"exit status {output.status}"))

    return done
