"""A mistake in a spec: its place, the value, what is allowed, the fix."""

from collections.abc import Iterable
from typing import Literal, Protocol

import msgspec

from gpuprov.core.errors import GpuprovError
from gpuprov.core.sanitize import masked

# Path of a value inside a host's `gpuprov` variable, e.g. ("mig", "layout", 0, "gpus").
Path = tuple[str | int, ...]


class Origin(msgspec.Struct, frozen=True, order=True):
    """Source position of a value. `line` and `column` count from 1; 0 if the source has none (INI, scripts)."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


def format_path(path: Path) -> str:
    """Format `("mig", "layout", 0)` as `mig.layout[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
    return text


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One finding about an inventory or a spec. Sorted by place; the same finding from many hosts is reported once."""

    message: str
    path: Path = ()
    origin: Origin | None = None
    hosts: tuple[str, ...] = ()
    fix: str = ""
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        place = f"{self.origin}: " if self.origin else (f"{self.hosts[0]}: " if self.hosts else "")
        kind = "warning: " if self.severity == "warning" else ""
        return f"{place}{kind}{self.message}" + (f"; {self.fix}" if self.fix else "")


class Say(Protocol):
    """Makes a problem of the field at a path, or at dotted names; its message begins with the field's name."""

    def __call__(self, path: Path | str, message: str, fix: str, *, warning: bool = False) -> Problem: ...


def report_under(*here: str | int) -> Say:
    """Return a Say for fields below this place."""

    def problem(path: Path | str, message: str, fix: str, *, warning: bool = False) -> Problem:
        more = tuple(filter(None, path.split("."))) if isinstance(path, str) else path
        whole, joint = (*here, *more), "" if message[:1] in (" ", ":", ".") else " "
        severity: Literal["error", "warning"] = "warning" if warning else "error"
        return Problem(path=whole, message=f"{format_path(whole)}{joint}{message}", fix=fix, severity=severity)

    return problem


def collect(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems sorted by place, each once with all the hosts it concerns, and without secrets."""
    first: dict[tuple[object, ...], Problem] = {}
    hosts: dict[tuple[object, ...], dict[str, None]] = {}
    for problem in problems:
        key = (problem.severity, problem.origin, problem.path, problem.message, problem.fix)
        first.setdefault(key, problem)
        hosts.setdefault(key, {}).update(dict.fromkeys(problem.hosts))
    merged = [
        msgspec.structs.replace(
            problem, hosts=tuple(hosts[key]), message=masked(problem.message), fix=masked(problem.fix)
        )
        for key, problem in first.items()
    ]
    none = Origin("")
    return sorted(merged, key=lambda p: (p.origin or none, p.hosts[:1], format_path(p.path), p.message))


class SpecError(GpuprovError):
    """The inventory or a spec is not usable; carries every problem found, not only the first."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = collect(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
