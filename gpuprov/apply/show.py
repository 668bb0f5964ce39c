"""Where the progress of a run goes: nowhere by default, to the terminal for the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from gpuprov.plan.events import Step


class Show:
    """Silent. What a user sees of a run is shown by overriding these."""

    def say(self, text: str) -> None:
        """A line about the whole run."""

    @contextmanager
    def reading(self, hosts: Sequence[str], doing: str) -> Iterator[Callable[[str], None]]:
        """Hosts are read inside; what is yielded is told the name of each that was."""
        yield lambda _host: None

    @contextmanager
    def applying(self, hosts: Sequence[str], doing: str) -> Iterator[Callable[[Step], None]]:
        """Ansible runs inside; what is yielded is told each step."""
        yield lambda _step: None


class Terminal(Show):
    """Live on a terminal; elsewhere a line for each act and for what changes or fails (with `verbose`, for every task)."""

    def __init__(self, *, verbose: bool = False) -> None:
        self._verbose = verbose

    def say(self, text: str) -> None:
        from gpuprov import console

        console.progress(text)

    @contextmanager
    def reading(self, hosts: Sequence[str], doing: str) -> Iterator[Callable[[str], None]]:
        from gpuprov import console

        self.say(f"{doing} {len(hosts)} host{'s' if len(hosts) != 1 else ''}")
        with console.Progress(hosts, doing, quiet=True) as progress:
            yield progress.done

    @contextmanager
    def applying(self, hosts: Sequence[str], doing: str) -> Iterator[Callable[[Step], None]]:
        from gpuprov import console

        live = sys.stderr.isatty()
        shown = ("start", "changed") if live else ("ok", "changed") if self._verbose else ("changed",)
        with console.Progress(hosts, doing) as progress:

            def step(one: Step) -> None:
                if one.kind == "act":
                    console.progress(one.text)
                elif one.kind in ("failed", "unreachable"):
                    progress.done(one.host, f"{one.kind}: {one.text}")
                    if live:
                        console.progress(f"{one.host}: {one.kind}: {one.text}")
                elif one.kind in shown:
                    progress.update(one.host, one.text)

            yield step
