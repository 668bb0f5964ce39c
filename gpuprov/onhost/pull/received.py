"""What a server sends, within a limit of time for all of it: a time-out for each read is begun anew by every byte that comes."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any, Callable, ContextManager, Iterator

PART = 1 << 20


def received(ask: Callable[[], ContextManager[Any]], seconds: float) -> Iterator[bytes]:
    """What the server sends to `ask`, in parts. Raises what `ask` and the reading raise; TimeoutError where name, connection,
    headers and content together take longer.

    A thread asks and reads: a server that dribbles may hold it, and never who waits. What comes late goes nowhere.
    """
    box: queue.Queue[tuple[bytes, BaseException | None]] = queue.Queue(2)
    over = threading.Event()

    def read() -> None:
        try:
            with ask() as answer:
                while not over.is_set() and (part := answer.read(PART)):
                    box.put((part, None))
                # http.client tells that content was cut off only where it was not asked for in parts.
                if left := getattr(answer, "length", 0):
                    raise OSError(f"it ended {left} bytes early")
        except BaseException as error:
            box.put((b"", error))
        else:
            box.put((b"", None))

    threading.Thread(target=read, daemon=True).start()
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
