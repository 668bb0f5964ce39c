"""Types specs with mistakes as far as possible, so that one mistake hides no other: rules judge the rest."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gpuprov.spec.build import convert, describe_shape
from gpuprov.spec.fixes import fix_for
from gpuprov.spec.kinds import Removed, drop_removed, find_kind, find_value, set_value
from gpuprov.spec.problem import Path, Problem, format_path
from gpuprov.spec.text_fixes import Unknown
from gpuprov.spec.unknown_keys import Finding

# Number of attempts at a block; deeper mistakes appear only once the level above is right.
ROUNDS = 5
# Fields one of which a block needs: rules name them without the block.
SOURCES = ("url", "file")
_MEANT = re.compile(r'\Adid you mean "([^"]+)"\?')


@dataclass
class Repairs:
    """Paths whose values were replaced by their fix, and paths without a usable value."""

    replaced: set[Path] = field(default_factory=set)
    dropped: set[Path] = field(default_factory=set)

    def convert(self, value: object, kind: Any, path: Path = ()) -> tuple[Any, list[Finding]]:
        """Convert as `build.convert` does, but return a block wherever one is left once mistakes are repaired or taken
        out."""
        block, first = convert(value, kind, path)
        findings = first
        for _ in range(ROUNDS):
            if block is not None:
                break
            value = self._repaired(value, kind, path, findings)
            block, findings = convert(value, kind, path)
        if block is None:
            self.dropped.add(path)
        return block, first

    def _repaired(self, value: object, kind: Any, path: Path, findings: Iterable[Finding]) -> object:
        for place, _, fix in findings:
            inner = place[len(path) :]
            of_it = find_kind(describe_shape(kind), inner)
            repair = fix_for(find_value(value, inner), of_it) if of_it else None
            new: object = Removed
            if repair and repair.value is not Unknown and place not in self.replaced:
                new = repair.value
                self.replaced.add(place)
            else:
                self.replaced.discard(place)
                self.dropped.add(place)
            if meant := _MEANT.match(fix) if not of_it else None:
                self.dropped.add((*place[:-1], meant[1]))
            value = set_value(value, inner, new)
        return drop_removed({} if value is Removed else value)

    def judged(self, problems: Iterable[Problem]) -> Iterator[Problem]:
        """Yield the problems that do not follow from what was taken out."""
        for problem in problems:
            if not any(_is_about(problem, path) for path in self.dropped):
                yield problem

    def unless_refused(self, findings: Iterable[Finding], problems: Iterable[Problem]) -> Iterator[Finding]:
        """Return the findings, without those whose fix a rule refuses: the rule's message is what to do."""
        refused = {problem.path for problem in problems if problem.severity == "error"}
        return (finding for finding in findings if finding[0] not in self.replaced & refused)


def _is_about(problem: Problem, path: Path) -> bool:
    shorter = min(len(problem.path), len(path))
    if problem.path[:shorter] == path[:shorter]:
        return True
    words = f"{problem.message} {problem.fix}"
    beside = path[:-1] in (problem.path, problem.path[:-1])
    if beside and path[-1] in SOURCES and re.search(rf"\b{path[-1]}\b", words):
        return True
    return re.search(rf"(?<![\w.]){re.escape(format_path(path))}(?!\w)", words) is not None


def place_as_written(problem: Problem, written: dict[Path, Path]) -> Problem:
    """Return the problem with the path of its field in the inventory."""
    for length in range(len(problem.path), 0, -1):
        if own_path := written.get(problem.path[:length]):
            return msgspec.structs.replace(problem, path=(*own_path, *problem.path[length:]))
    return problem
