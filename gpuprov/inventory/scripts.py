"""A time limit for inventory scripts: Ansible's `script` plugin would wait for them for ever."""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

from ansible.errors import AnsibleError

from gpuprov.core import safe_parse

# Maximum number of seconds for one call of a script.
LIMIT = 60.0


class Timed(subprocess.Popen[bytes]):
    """A script in its own session, without input: it cannot wait for an answer, and its child processes end with it."""

    def __init__(self, command: list[str], heard: Callable[[bytes], None] | None = None, **given: Any) -> None:
        self._heard = heard
        super().__init__(command, stdin=subprocess.DEVNULL, start_new_session=True, **given)

    def communicate(self, input: bytes | None = None, timeout: float | None = None) -> tuple[bytes, bytes]:  # noqa: A002
        """Communicate as Popen does, with limits on time and output."""
        try:
            out, error = self._read(time.monotonic() + (LIMIT if timeout is None else timeout))
            safe_parse.check_json(out.decode(errors="replace"))
            if self._heard:
                self._heard(out)
            return out, error
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise AnsibleError(f"Inventory script did not end within {LIMIT:g} s.") from None
            if isinstance(error, safe_parse.Unreadable):
                raise AnsibleError(error.message) from safe_parse.Unreadable(
                    f"the inventory script printed what is not read: {error.message}", error.allowed
                )
            raise

    def _read(self, deadline: float) -> tuple[bytes, bytes]:
        received = {stream: bytearray() for stream in (self.stdout, self.stderr) if stream}
        with selectors.DefaultSelector() as selector:
            for stream in received:
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise subprocess.TimeoutExpired(self.args, LIMIT)
                for key, _ in ready:
                    data = os.read(key.fd, 1 << 16)
                    received[key.fileobj] += data  # type: ignore[index]
                    if not data:
                        selector.unregister(key.fileobj)
                    elif sum(map(len, received.values())) > safe_parse.FILE:
                        raise safe_parse.Unreadable("too much output", f"{safe_parse.FILE >> 20} MiB")
        self.wait(max(0.0, deadline - time.monotonic()))
        out, error = (bytes(received[stream]) if stream else b"" for stream in (self.stdout, self.stderr))
        return out, error


def limit_scripts(plugin: object, heard: Callable[[bytes], None] | None = None) -> None:
    """Make the `script` plugin run scripts as `Timed`. `heard`: called with all their output."""
    module = sys.modules[type(plugin).__module__]
    vars(module)["subprocess"] = SimpleNamespace(Popen=partial(Timed, heard=heard), PIPE=subprocess.PIPE)


def list_hosts_with_specs(output: bytes) -> Iterator[str]:
    """Yield the hosts that have a `gpuprov` under `_meta` in a script's output, whether or not they are in a group."""
    if b"gpuprov" not in output or b"_meta" not in output:
        return
    try:
        hosts = safe_parse.parse_json(output, len(output))["_meta"]["hostvars"]
    except (safe_parse.Unreadable, LookupError, TypeError):  # the plugin says what is wrong with it
        return
    if isinstance(hosts, dict):
        yield from (name for name, values in hosts.items() if isinstance(values, dict) and "gpuprov" in values)
