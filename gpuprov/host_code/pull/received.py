"""Download with a time limit for the whole answer: a time-out of each read would restart with every byte that
arrives."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any, Callable, ContextManager, Iterator

PART = 1 << 20


def receive_parts(ask: Callable[[], ContextManager[Any]], seconds: float) -> Iterator[bytes]:
    """Yield the server's answer to `ask` in parts.

    Raises what `ask` and reading raise, and TimeoutError if name lookup, connection, headers and content together take
    longer.

    A thread asks and reads: a server that trickles may block the thread, never the caller. What arrives late is
    discarded.
    """
    box: queue.Queue[tuple[bytes, BaseException | None]] = queue.Queue(2)
    over = threading.Event()

    threading.Thread(target=_read_parts, args=(ask, box, over), daemon=True).start()
    until = time.monotonic() + seconds
    try:
        while True:
            try:
                part, error = box.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"it did not come within {seconds:g} s") from None
            if error:
                raise error
            if not part:
                return
            yield part
    finally:
        over.set()
        while not box.empty():
            box.get_nowait()


def _read_parts(
    ask: Callable[[], ContextManager[Any]], box: queue.Queue[tuple[bytes, BaseException | None]], over: threading.Event
) -> None:
    """Put the answer's parts into the box, and at its end an empty part with the error, if there was one."""
    try:
        with ask() as answer:
            while not over.is_set() and (part := answer.read(PART)):
                box.put((part, None))
            # http.client tells that content was cut off only where it was not asked for in parts.
            if remaining := getattr(answer, "length", 0):
                raise OSError(f"it ended {remaining} bytes early")
    except BaseException as error:
        box.put((b"", error))
    else:
        box.put((b"", None))
