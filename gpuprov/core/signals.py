"""Signals that end the work. A signal ignored from the start stays ignored: nohup(1) ignores SIGHUP, and a shell
without job control SIGINT for background jobs
(https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html, 2.11)."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def handled(numbers: Iterable[int], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Direct these signals to the handler while inside. Only the main thread receives signals at all."""
    main = threading.current_thread() is threading.main_thread()
    heeded = [number for number in numbers if main and signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def ended_politely() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the work inside as Ctrl-C does: with cleanup. Existing handlers stay."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with handled(
        (number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL), stop
    ):
        yield
