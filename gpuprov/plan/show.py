"""Progress output of a run: none by default, the terminal for the command line."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from gpuprov.plan.events import Step


class Show:
    """Silent. Override these methods to show a run to the user."""

    def say(self, text: str) -> None:
        """Print a line about the whole run."""

    @contextmanager
    def reading(self, hosts: Sequence[str], doing: str) -> Iterator[Callable[[str], None]]:
        """Read hosts inside; call the yielded function with the name of each host after it was read."""
        yield lambda _host: None

    @contextmanager
    def applying(self, hosts: Sequence[str], doing: str, earlier: str = "") -> Iterator[Callable[[Step], None]]:
        """Run Ansible inside; call the yielded function with each step. earlier: how long it took the last time."""
        yield lambda _step: None


class Terminal(Show):
    """Live on a terminal; otherwise a line for each act and for each change or failure (with `verbose`, for every
    task), and now and then what is being waited for. `quiet`: otherwise only that."""

    def __init__(self, *, verbose: bool = False, quiet: bool = False) -> None:
        self._verbose, self._quiet = verbose, quiet

    def say(self, text: str) -> None:
        from gpuprov.core import terminal

        terminal.progress(text)

    @contextmanager
    def reading(self, hosts: Sequence[str], doing: str) -> Iterator[Callable[[str], None]]:
        from gpuprov.core import terminal

        self.say(f"{doing} {len(hosts)} host{'s' if len(hosts) != 1 else ''}")
        with terminal.Progress(hosts, doing, quiet=True) as progress:
            yield progress.done

    @contextmanager
    def applying(self, hosts: Sequence[str], doing: str, earlier: str = "") -> Iterator[Callable[[Step], None]]:
        from gpuprov.core import terminal

        live = terminal.on_terminal(sys.stderr)
        shown = ("start", "changed") if live else ("ok", "changed") if self._verbose else ("changed",)
        with terminal.Progress(hosts, doing, quiet=self._quiet, earlier=earlier) as progress:

            def step(event: Step) -> None:
                if event.kind == "act":
                    progress.act(event.text)
                    if not self._quiet:
                        terminal.progress(event.text)
                elif event.kind in ("failed", "unreachable"):
                    progress.done(event.host, f"{event.kind}: {event.text}")
                    if live and not self._quiet:
                        terminal.progress(f"{event.host}: {event.kind}: {event.text}")
                elif event.kind in shown:
                    progress.update(
                        event.host, f"waits for {event.waits} ({event.text})" if event.waits else event.text
                    )
                elif event.kind == "start":
                    progress.note(event.host, f"waits for {event.waits} ({event.text})" if event.waits else event.text)

            yield step
