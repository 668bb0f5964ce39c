"""ssh with a password: paramiko in a thread that looks like a child process.

testinfra's paramiko backend accepts unknown host keys with a warning; here they are refused unless Ansible's
`host_key_checking` is off, as with ssh.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gpuprov.facts.collect import command
from gpuprov.facts.collect.command import remote_command
from gpuprov.facts.collect.settings import Settings

if TYPE_CHECKING:
    import paramiko


class Worker:
    """A process-like thread that runs the script over paramiko; the host's output appears on `stdout` and `stderr`."""

    def __init__(self, settings: Settings, script: str) -> None:
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None
        self.stderr: IO[bytes] | None
        self.stdout, self._out = _open_pipe()
        self.stderr, self._error = _open_pipe()
        self.returncode: int | None = None
        self._settings, self._script = settings, script
        self._silent = False
        self._client: paramiko.SSHClient | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def poll(self) -> int | None:
        return None if self._thread.is_alive() else self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._thread.join(timeout)
        if self._thread.is_alive() and timeout is not None:
            raise subprocess.TimeoutExpired("paramiko", timeout)
        return self.returncode or 0

    def terminate(self) -> None:
        if self._client:
            self._client.close()

    def kill(self) -> None:
        """Close the connection. The thread is a daemon: if it does not end, it ends with gpuprov."""
        self.terminate()
        self._thread = threading.Thread()

    def _work(self) -> None:
        with self._out as out, self._error as error:
            try:
                self.returncode = self._talk(out, error)
            except Exception as problem:  # paramiko raises a dozen kinds, some of them bare Exception
                self.returncode = 255
                _write(error, f"{problem or type(problem).__name__}\n".encode())

    def _talk(self, out: IO[bytes], error: IO[bytes]) -> int:
        self._client = client = connect(self._settings)
        with client:
            remote, feed = remote_command(self._settings, self._script)
            transport = client.get_transport()
            if transport is None:
                return 255
            threading.Thread(target=self._listen, args=(transport,), daemon=True).start()
            channel = transport.open_session()
            channel.exec_command(shlex.join(remote))
            channel.sendall(feed)
            channel.shutdown_write()
            drain = threading.Thread(target=_copy, args=(channel.recv_stderr, error), daemon=True)
            drain.start()
            _copy(channel.recv, out)
            drain.join()
            if self._silent:
                _write(error, b"Timeout, server not responding.\n")  # as ssh says it
                return 255
            return channel.recv_exit_status()

    def _listen(self, transport: paramiko.Transport) -> None:
        """Close the connection to a host that is silent. paramiko's own keep-alive sends requests, but does not wait
        for answers."""
        while transport.is_active():
            answered = threading.Event()
            threading.Thread(target=_ask, args=(transport, answered), daemon=True).start()
            if not answered.wait(command.INTERVAL * command.COUNT):
                self._silent = transport.is_active()
                transport.close()
                return
            time.sleep(command.INTERVAL)


def _ask(transport: paramiko.Transport, answered: threading.Event) -> None:
    """Send a request that no server knows: sshd's refusal is an answer."""
    with suppress(Exception):  # the connection has ended: nobody waits for the answer any more
        transport.global_request("keepalive@openssh.com", wait=True)
        answered.set()


def connect(settings: Settings) -> paramiko.SSHClient:
    """Open a connection; host keys are checked as by ssh."""
    import logging

    import paramiko

    # Without a handler, Python prints what paramiko logs: the host's banner, and tracebacks.
    logging.getLogger("paramiko").addHandler(logging.NullHandler())
    client = paramiko.SSHClient()
    client.load_system_host_keys()
    if not settings.flag("host_key_checking", True):
        client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    else:
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
    options: dict[str, Any] = {}
    config = Path("~/.ssh/config").expanduser()
    if config.is_file():
        options = paramiko.SSHConfig.from_path(str(config)).lookup(settings.host)
    key = settings.text("key")
    host, port = options.get("hostname", settings.host), int(settings.text("port") or options.get("port", 22))
    proxy = proxy_command(options, host, port)
    client.connect(
        host,
        port=port,
        username=settings.text("user") or options.get("user"),
        password=settings.text("password") or None,
        key_filename=os.path.expanduser(key) if key else options.get("identityfile"),
        timeout=float(settings.text("timeout", "10")),
        sock=paramiko.ProxyCommand(proxy) if proxy else None,
    )
    return client


def proxy_command(config: Mapping[str, str | None], host: str, port: int) -> str:
    """Return the proxy program for the host, as paramiko does not support ProxyJump; empty for none. `config`: the
    host's options in ~/.ssh/config, in order: of ProxyCommand and ProxyJump the first counts (ssh_config(5))."""
    option = next((name for name in config if name in ("proxycommand", "proxyjump")), "")
    value = config.get(option) or "none"
    if option == "proxycommand" or value.lower() == "none":
        return value if value.lower() != "none" else ""
    *before, last = value.split(",")
    jumps = ["-J", ",".join(before)] if before else []
    to = last if last.startswith("ssh://") else f"ssh://{last}"
    return shlex.join(["ssh", "-o", "BatchMode=yes", *jumps, "-W", f"[{host}]:{port}", to])


def _open_pipe() -> tuple[IO[bytes], IO[bytes]]:
    read, write = os.pipe()
    return os.fdopen(read, "rb", 0), os.fdopen(write, "wb", 0)


def _copy(receive: Any, to: IO[bytes]) -> None:
    while data := receive(1 << 16):
        _write(to, data)


def _write(to: IO[bytes], data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(to.fileno(), view) :]
