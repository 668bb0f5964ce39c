"""Inventory scripts end: Ansible's `script` plugin waits for ever for what it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from ansible.errors import AnsibleError

LIMIT = 60.0
"""Seconds that one call of a script may take."""


class Timed(subprocess.Popen[bytes]):
    """A script in a session of its own, without input: it cannot wait for an answer, and its helpers end with it."""

    def __init__(self, command: list[str], **given: Any) -> None:
        super().__init__(command, stdin=subprocess.DEVNULL, start_new_session=True, **given)

    def communicate(self, input: bytes | None = None, timeout: float | None = None) -> tuple[bytes, bytes]:  # noqa: A002
        """As Popen's, but it ends."""
        try:
            return super().communicate(input, LIMIT if timeout is None else timeout)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise AnsibleError(f"Inventory script did not end within {LIMIT:g} s.") from None
            raise


def time_limit(plugin: object) -> None:
    """Let the `script` plugin run scripts as `Timed`."""
    module = sys.modules[type(plugin).__module__]
    vars(module)["subprocess"] = SimpleNamespace(Popen=Timed, PIPE=subprocess.PIPE)
