"""The server behind mirror.Mirror: forwards GETs, copies packages to disk, fails as it is told."""

from __future__ import annotations

import http.client
import ipaddress
import os
import socket
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, Literal, Protocol
from urllib.parse import urlsplit

Failure = Literal["cut", "503"]
CLIENTS = tuple(map(ipaddress.ip_network, ("127.0.0.0/8", "10.88.0.0/16")))  # this machine and podman's network
CHUNK = 64 * 1024
PATIENCE = 60.0  # seconds, for either side
PER_HOP = frozenset({"connection", "proxy-connection", "keep-alive", "te", "trailer", "upgrade", "host", "via"})


class Readable(Protocol):
    """A body."""

    def read(self, amount: int, /) -> bytes: ...


class Policy(Protocol):
    """What the server asks about each request."""

    @property
    def slots(self) -> threading.Semaphore:
        """How many requests are served at a time."""

    def verdict(self, url: str) -> Failure | None:
        """Count a package; how this request has to fail, or None."""

    def kept(self, url: str) -> Path | None:
        """Where a package is kept; None where it is not to be."""

    def hit(self) -> None:
        """Count a package served from disk."""


class Server(ThreadingHTTPServer):
    """A forward proxy for the machines in CLIENTS."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], policy: Policy):
        super().__init__(address, Handler)
        self.policy = policy

    def verify_request(self, request: object, client_address: object) -> bool:
        """Nobody else's proxy."""
        assert isinstance(client_address, tuple)
        return any(ipaddress.ip_address(client_address[0]) in network for network in CLIENTS)


class Handler(BaseHTTPRequestHandler):
    """One connection of apt, with many requests."""

    protocol_version = "HTTP/1.1"
    server: Server
    timeout: ClassVar[float] = PATIENCE

    def do_GET(self) -> None:
        """Forward, serve from disk, or fail."""
        policy = self.server.policy
        parts = urlsplit(self.path)
        if parts.scheme != "http" or not parts.hostname:
            self.send_error(501, "only absolute http:// addresses")
            return
        failure = policy.verdict(self.path)
        if failure == "503":
            self.send_error(503, "told to fail")
            return
        with policy.slots:
            kept = policy.kept(self.path)
            try:
                if kept and kept.exists() and failure is None:
                    policy.hit()
                    with kept.open("rb") as body:
                        self._answer(200, {"Content-Length": str(kept.stat().st_size)}, body, None, cut=False)
                else:
                    self._forward(parts.hostname, parts.port or 80, kept, cut=failure == "cut")
            except (OSError, http.client.HTTPException):
                self.close_connection = True

    def _forward(self, host: str, port: int, kept: Path | None, *, cut: bool) -> None:
        upstream = http.client.HTTPConnection(host, port, timeout=PATIENCE)
        try:
            target = urlsplit(self.path)
            headers = {k: v for k, v in self.headers.items() if k.lower() not in PER_HOP}
            path = (target.path or "/") + (f"?{target.query}" if target.query else "")
            upstream.request("GET", path, headers={**headers, "Host": target.netloc})
            answer = upstream.getresponse()
            passed = {k: v for k, v in answer.headers.items() if k.lower() not in PER_HOP | {"transfer-encoding"}}
            whole = answer.status == 200 and answer.length is not None
            self._answer(answer.status, passed, answer, kept if whole else None, cut=cut)
        finally:
            upstream.close()

    def _answer(self, status: int, headers: Mapping[str, str], body: Readable, keep: Path | None, *, cut: bool) -> None:
        length = next((int(value) for key, value in headers.items() if key.lower() == "content-length"), None)
        bodiless = status in {204, 304}
        self.send_response_only(status)
        for key, value in headers.items():
            self.send_header(key, value)
        if length is None and not bodiless:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if bodiless:
            return
        if cut:
            self.wfile.write(body.read((length or CHUNK) // 2))
            self.connection.shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError("told to cut the connection")
        self._copy(body, length, keep)

    def _copy(self, body: Readable, length: int | None, keep: Path | None) -> None:
        partial = keep.with_name(f".{keep.name}.{os.getpid()}.{threading.get_ident()}") if keep else None
        sent = 0
        try:
            with partial.open("wb") if partial else open(os.devnull, "wb") as copy:
                while chunk := body.read(CHUNK):
                    copy.write(chunk)
                    sent += len(chunk)
                    if partial and keep and sent == length:  # before the last byte goes out: who asks again finds it
                        copy.flush()
                        os.replace(partial, keep)
                    self.wfile.write(chunk)
            if length is not None and sent != length:
                raise ConnectionAbortedError(f"{self.path}: {sent} of {length} bytes")
        finally:
            if partial:
                partial.unlink(missing_ok=True)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  http.server's name
        """Silent: tests print what they need."""
