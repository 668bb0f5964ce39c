"""Problems as they are detected, host by host; the same problem of many hosts is kept once. One that leaves the rest
readable is not fatal: specs are judged beside it."""

from collections.abc import Iterable

from gpuprov.spec.problem import Origin, Path, Problem


class Findings:
    """Collects problems; `problems()` has each once, with all the hosts it concerns."""

    def __init__(self) -> None:
        self._hosts: dict[Problem, list[str]] = {}
        self.fatal = False
        """True if what was read is not enough to judge specs."""

    def add(self, message: str, origin: Origin | None, host: str = "", path: Path = (), fix: str = "") -> None:
        """Add a finding; `host` is empty if it is about a file and not a host."""
        problem = Problem(message=message, origin=origin, path=path, fix=fix)
        self.fatal = True
        hosts = self._hosts.setdefault(problem, [])
        if host and (not hosts or hosts[-1] != host):
            hosts.append(host)

    def take(self, problem: Problem, *, fatal: bool = True) -> None:
        """Add an existing problem."""
        self._hosts.setdefault(problem, [])
        self.fatal = self.fatal or fatal

    def take_all(self, problems: Iterable[Problem], *, fatal: bool = True) -> None:
        for problem in problems:
            self.take(problem, fatal=fatal)

    def __bool__(self) -> bool:
        return bool(self._hosts)

    def problems(self) -> list[Problem]:
        """Return each problem once."""
        return [
            Problem(message=p.message, origin=p.origin, path=p.path, fix=p.fix, hosts=tuple(hosts), severity=p.severity)
            for p, hosts in self._hosts.items()
        ]
