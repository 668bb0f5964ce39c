"""`--limit`: Ansible's host patterns (https://docs.ansible.com/ansible/latest/inventory_guide/intro_patterns.html),
evaluated without importing Ansible.

In addition, a name may have ranges as in an inventory (`gpu[001:032]`), which is how gpuprov shows many hosts. If a
group has the name before the bracket, the bracket is a subscript of its members, as in Ansible.
"""

import fnmatch
import os
import re
from collections.abc import Sequence

from gpuprov.core.safe_parse import DIGITS, Unreadable, read_contents
from gpuprov.core.sanitize import has_login
from gpuprov.inventory.names import unfold_names
from gpuprov.spec.model import RawHost
from gpuprov.spec.problem import Problem

_PIECE = re.compile(r"(?:[^\s:\[\]]|\[[^\]]*\])+")
# A name with a list in brackets, which commas would cut.
_LISTED = re.compile(r"(?:\A|,)\s*([^~,\[{][^,\[{]*[\[{][^\]},]*,[^\]}]*[\]}][^,]*)")
_MANY_DIGITS = re.compile(rf"\[[^\]]*[0-9]{{{DIGITS + 1}}}")
_SUBSCRIPT = re.compile(r"^(.+)\[(?:(-?[0-9]+)|([0-9]+)[:-]([0-9]*))\]\Z")


def select(hosts: Sequence[RawHost], groups: Sequence[str], limit: str) -> tuple[tuple[RawHost, ...], list[Problem]]:
    """Return the hosts that the pattern matches, in inventory order, and a problem for each part that matches
    nothing."""
    patterns, problems = split_patterns(limit)
    universe = _Universe(hosts, groups)
    inclusive = [p for p in patterns if p[0] not in "!&"] or ([] if problems else ["all"])
    chosen: set[str] = set()
    for pattern in inclusive:
        chosen |= universe.match(pattern)
    for pattern in patterns:
        if pattern[0] == "&":
            chosen &= universe.match(pattern[1:])
    for pattern in patterns:
        if pattern[0] == "!":
            chosen -= universe.match(pattern[1:])
    problems += universe.problems
    if not chosen and not problems:
        problems.append(
            Problem(message=f'--limit "{limit}" leaves no host', fix=correct(limit) or "leave it out to mean all hosts")
        )
    return tuple(host for host in hosts if host.name in chosen), problems


def make_absolute(limit: str) -> str:
    """Return the same pattern for use in another folder: the files that it names get absolute paths."""
    if "@" not in limit:
        return limit
    return ",".join(f"@{os.path.abspath(part[1:])}" if part.startswith("@") else part for part in _split(limit))


def split_patterns(limit: str) -> tuple[list[str], list[Problem]]:
    parts: list[str] = []
    problems: list[Problem] = []
    if has_login(limit):
        fix = "write the name of a host or group of the inventory"
        return [], [Problem(message=f'--limit "{limit}" has a user name and password', fix=fix)]
    for piece in _LISTED.findall(limit):
        fix = correct(piece.strip()) or "write each host, with commas between them"
        problems.append(Problem(message=f'--limit: "{piece.strip()}" is a list of the shell or Slurm', fix=fix))
    for part in _split(limit) if not problems else ():
        if not part.startswith("@"):
            parts.append(part)
            continue
        if part == "@":
            problems.append(Problem(message='--limit: no file is named after "@"', fix="write @FILE, a file of hosts"))
            continue
        try:
            text = read_contents(part[1:]).decode("utf-8")
            parts += [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
        except (OSError, UnicodeDecodeError, Unreadable) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else reason
            problems.append(Problem(message=f"--limit: {part[1:]} cannot be read: {reason}"))
    if not parts and not problems:
        problems.append(Problem(message="--limit is empty", fix="leave it out to mean all hosts"))
    return parts, problems


def _split(limit: str) -> list[str]:
    if "," in limit:
        return [part.strip() for part in limit.split(",") if part.strip(" !&")]
    if ":" not in limit or _is_address(limit):
        return [limit.strip()] if limit.strip(" !&") else []
    return [part for part in _PIECE.findall(limit) if part.strip("!&")]


def _is_address(text: str) -> bool:
    from ipaddress import ip_address

    try:
        ip_address(text)
    except ValueError:
        return False
    return True


class _Universe:
    """Host and group names, and the meaning of patterns among them."""

    def __init__(self, hosts: Sequence[RawHost], groups: Sequence[str]) -> None:
        self.problems: list[Problem] = []
        self._names = [host.name for host in hosts]
        self._known = set(self._names)
        self._members: dict[str, list[str]] = {name: [] for name in groups}
        self._members["all"] = self._names
        for host in hosts:
            for group in host.groups:
                self._members.setdefault(group, []).append(host.name)

    def match(self, pattern: str) -> set[str]:
        if pattern in self._known:
            return {pattern}
        if not pattern.startswith("~") and _MANY_DIGITS.search(pattern):
            message = f'--limit: "{pattern[:40]}..." has a number of too many digits'
            self.problems.append(Problem(message=message, fix=f"allowed: {DIGITS} digits"))
            return set()
        expression, subscript = parse_subscript(pattern)
        if expression not in self._members and (ranged := unfold_names(pattern, self._known)):
            return ranged
        try:
            matcher = re.compile(pattern[1:] if pattern.startswith("~") else fnmatch.translate(expression))
        except re.error as error:
            self.problems.append(Problem(message=f'--limit: "{pattern}" is not a regular expression: {error}'))
            return set()
        groups = [name for name in self._members if matcher.match(name)]
        matched = [host for name in groups for host in self._members[name]]
        if not groups or pattern.startswith("~") or any(special in expression for special in ".?*["):
            matched += [name for name in self._names if matcher.match(name)]
        matched = list(dict.fromkeys(matched))
        if not matched and not groups:
            self._unknown(pattern)
        if subscript is None or not matched:
            return set(matched)
        if isinstance(subscript, int):
            if not -len(matched) <= subscript < len(matched):
                message = f'--limit: "{pattern}" asks for item {subscript} of {len(matched)}'
                self.problems.append(Problem(message=message, fix=f"allowed: 0 to {len(matched) - 1}"))
                return set()
            return {matched[subscript]}
        return set(matched[subscript])

    def _unknown(self, pattern: str) -> None:
        from difflib import get_close_matches

        close = get_close_matches(pattern, [*self._members, *self._names], n=1, cutoff=0.6)
        named = sorted(name for name in self._members if name not in ("all", "ungrouped"))[:10]
        groups = f"groups: {', '.join(named)}" if named else ""
        fix = correct(pattern) or (f'did you mean "{close[0]}"?' if close else groups)
        self.problems.append(Problem(message=f'--limit: no host or group matches "{pattern}"', fix=fix))


def correct(pattern: str) -> str:
    """Return the fix for a range as the shell and Slurm write it; "" if the pattern is none."""
    from gpuprov.inventory.ranges import correct_names  # which imports Ansible

    meant = ",".join(correct_names(pattern))
    return f"write {meant}" if meant else ""


def parse_subscript(pattern: str) -> tuple[str, int | slice | None]:
    match = None if pattern.startswith("~") else _SUBSCRIPT.match(pattern)
    if not match:
        return pattern, None
    expression, item, start, end = match.groups()
    if item:
        return expression, int(item)
    return expression, slice(int(start), int(end) + 1 if end else None)
