"""A forward HTTP proxy for apt in simulated hosts: counts packages, keeps them on request, fails on request.

with Mirror(cache=cache_dir() / "debs") as mirror:
    mirror.fail_from(3)               # the third package is cut off half-way, and each one after it
    ... mirror.apt_conf(gateway("host1")) ...
"""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.e2e.mirror_server import Failure, Server


class Mirror:
    """The proxy; use it as a context manager."""

    def __init__(self, *, cache: Path | None = None, address: str = "0.0.0.0", most: int = 16):
        self.cache = cache
        self.debs: list[str] = []  # each package asked for, once, in order
        self.hits = 0
        self.slots: threading.Semaphore = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._from: int | None = None
        self._failure: Failure = "cut"
        self._server = Server((address, 0), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="mirror", daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def apt_conf(self, gateway: str) -> str:
        """What a host writes to /etc/apt/apt.conf.d/."""
        return f'Acquire::http::Proxy "http://{gateway}:{self.port}";\n'

    def fail_from(self, nth: int, failure: Failure = "cut") -> None:
        """Fail at the nth package from now (the first is 1) and at each after it, until heal()."""
        with self._lock:
            self.debs.clear()
            self._from, self._failure = nth, failure

    def heal(self) -> None:
        """Fail no more."""
        with self._lock:
            self._from = None

    def verdict(self, url: str) -> Failure | None:
        """Count a package; how this request has to fail, or None."""
        with self._lock:
            if not url.endswith(".deb"):
                return None
            if url not in self.debs:
                self.debs.append(url)
            nth = self.debs.index(url) + 1
            return self._failure if self._from is not None and nth >= self._from else None

    def kept(self, url: str) -> Path | None:
        """Where a package is kept; indexes never are."""
        if self.cache is None or not url.endswith(".deb"):
            return None
        self.cache.mkdir(parents=True, exist_ok=True)
        return self.cache / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.deb"

    def hit(self) -> None:
        """Count a package served from disk."""
        with self._lock:
            self.hits += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)
