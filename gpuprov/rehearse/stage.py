"""Simulated hosts that are brought up together, and taken down again whatever happens."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import FrameType
from typing import Protocol, TypeVar

from gpuprov.core.errors import GpuprovError
from gpuprov.core.signals import ENDING, handled
from gpuprov.simulate.description import Description
from gpuprov.simulate.host import SimulatedHost
from gpuprov.simulate.standins import ofed

T = TypeVar("T")
A = TypeVar("A")
# Attempts to remove a host: a Ctrl-C reaches the programs that remove a host as well, so they are started again.
ATTEMPTS = 3


class Backend(Protocol):
    """Interface of `gpuprov.simulate.hosts`."""

    def up(self, name: str, description: Description, /) -> SimulatedHost: ...
    def down(self, name: str, /) -> bool: ...
    def reboot(self, name: str, /) -> None: ...
    def run(self, name: str, script: str, /) -> str: ...
    def logs(self, name: str, /) -> str: ...


class Stage:
    """Hosts of one rehearsal. Every name is remembered before its host is begun, so that no half-made one is
    forgotten."""

    def __init__(self, backend: Backend, workers: int) -> None:
        self._backend, self._workers = backend, workers
        self._begun: list[str] = []
        self._pools: list[ThreadPoolExecutor] = []
        self._over = threading.Event()

    def up(self, descriptions: Mapping[str, Description]) -> dict[str, SimulatedHost | GpuprovError]:
        """Bring up the hosts. Returns them, or why one did not come up (with the end of its log, if there is one)."""
        return self._each(self._up, descriptions)

    def reboot(self, names: list[str]) -> dict[str, GpuprovError | None]:
        """Reboot hosts and wait for them. Returns why one did not come back."""
        return self._each(lambda name, _: self._backend.reboot(name), dict.fromkeys(names))

    def clear(self) -> tuple[str, ...]:
        """Remove every host that was begun, first waiting for those under way. Returns the names of those that
        stayed."""
        self._over.set()
        for pool in self._pools:
            pool.shutdown(wait=True, cancel_futures=True)
        with ThreadPoolExecutor(max_workers=self._workers) as pool:
            left = tuple(
                name for name, gone in zip(self._begun, pool.map(self._down, self._begun), strict=True) if not gone
            )
        self._begun = list(left)
        self._over.clear()
        return left

    def _each(self, work: Callable[[str, T], A], items: Mapping[str, T]) -> dict[str, A | GpuprovError]:
        pool = ThreadPoolExecutor(max_workers=self._workers)
        self._pools.append(pool)
        futures: dict[str, Future[A]] = {name: pool.submit(work, name, item) for name, item in items.items()}
        wait(futures.values())
        pool.shutdown()
        answers: dict[str, A | GpuprovError] = {}
        for name, future in futures.items():
            try:
                answers[name] = future.result()
            except GpuprovError as error:
                answers[name] = error
        return answers

    def _up(self, name: str, description: Description) -> SimulatedHost:
        if self._over.is_set():
            raise GpuprovError(f"{name}: the rehearsal was ended before it began")
        self._begun.append(name)
        host = self._backend.up(name, description)
        if description.ofed:
            self._backend.run(name, ofed.INSTALL)
        return host

    def _down(self, name: str) -> bool:
        for attempt in range(ATTEMPTS):
            try:
                self._backend.down(name)
            except GpuprovError:
                time.sleep(attempt)
            else:
                return True
        return False


@contextmanager
def limit_interrupts(say: Callable[[str], None]) -> Iterator[None]:
    """Turn the first SIGINT, SIGTERM or SIGHUP inside into a KeyboardInterrupt; later ones only print that hosts are
    being removed."""
    interrupted = False

    def handle(_signal: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted:
            say("still removing the simulated hosts")
            return
        interrupted = True
        raise KeyboardInterrupt

    with handled(ENDING, handle):
        yield
