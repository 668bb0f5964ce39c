"""Describes how a program ended, by its exit status: by a signal, or, for ssh, by a cut connection."""

import re
import signal
from collections.abc import Mapping
from typing import TypeAlias

# Ansible's result of a task on a host.
Result: TypeAlias = Mapping[str, object]
# ssh(1): an error of ssh's own, or a connection that was closed.
OF_SSH = 255
WANT_OF_MEMORY = 'for want of memory ("journalctl -k" tells), or by somebody there'
# Start of Ansible's message when a module gave no answer: a program that was killed prints nothing more.
UNREAD = re.compile(r"(?:(?:Task|Module|Action) failed: )*(?:MODULE FAILURE|Module result deserialization failed)")
# Lines before a module's answer break it, since Ansible starts to parse there:
# https://github.com/ansible/ansible/blob/v2.19.0/lib/ansible/module_utils/json_utils.py
NOISE = (
    "its login prints lines that begin as a module's answer does, with {, before what it is asked for. Fix: have "
    "its startup files (.bashrc, .profile, /etc/profile.d) print nothing where there is no terminal"
)
_MISSING = re.compile(r"\s*Missing (\w+) password\s*")
# Messages of ssh about a closed connection, and Ansible's prefix: they give no reason.
CLOSED = re.compile(
    r"(?:Failed to connect to the host via ssh: )?(?:Shared c|C)onnection to \S+ closed(?: by remote host)?\.?\s*"
)


def by_signal(status: object) -> str:
    """Return the signal by which a program ended: from the status of Python's subprocess (-N), or of a shell (128+N);
    else empty."""
    number = (
        0 if not isinstance(status, int) else -status if status < 0 else status - 128 if 128 < status < OF_SSH else 0
    )
    return signal.Signals(number).name if number in set(signal.Signals) else ""


def on_host(status: object, what: str) -> str:
    """Explain that a signal ended a program on the host, and possible reasons; empty for another status."""
    name = by_signal(status)
    if name == "SIGKILL":
        return f"{what} was killed ({name}): {WANT_OF_MEMORY}"
    return f"{what} was ended by {name}" if name else ""


def connection(status: object) -> str:
    """Explain ssh's status: killed here, its shell killed there, or the connection cut; empty for another status."""
    if name := by_signal(status):
        return f"ssh was ended by {name}, on this machine" if _was_local(status) else on_host(status, "its shell there")
    return "the connection was cut" if status == OF_SSH else ""


def _was_local(status: object) -> bool:
    """True if the process ended on this machine: a shell of the host never reports a negative status."""
    return isinstance(status, int) and status < 0


def answer(result: Result) -> str:
    """Return the message of a module's result; for a module that gave no answer, how it ended and its last output."""
    message = str(result.get("msg") or "")
    return silent(result) if UNREAD.match(message) else message


def unanswered(message: str) -> str:
    """Return why sudo had no password, if the message of Ansible's ssh is only that; any other message unchanged."""
    # Ansible reports it even if it sent one: the shell there ended while sudo asked, so that sudo reads the end of its
    # input.
    match = _MISSING.fullmatch(message)
    return (
        f"{match[1]} had no password: none is set (ansible_become_password), or its shell there was ended as it asked"
        if match
        else message
    )


def raised(message: str) -> str:
    """Return the line of a Python traceback, left by a program on the host, with the exception; any other text
    unchanged."""
    if "Traceback (most recent call last)" not in message:
        return message
    lines = [line.strip() for line in message.splitlines()]
    return next(line for line in reversed(lines) if line and not CLOSED.fullmatch(line))


def is_misleading(noise: str) -> bool:
    """True if Ansible mistakes a login's output before an answer for the answer."""
    return _count_answers(noise) > 0


def _count_answers(printed: str) -> int:
    return sum(line.startswith("{") for line in printed.splitlines())


def silent(result: Result, *, of_module: bool = True) -> str:
    """Return a program's last output, and how it ended. The status of a module is that of the connection, if that was
    cut."""
    if of_module and result.get("rc") == 0 and _count_answers(str(result.get("module_stdout") or "")) > 1:
        return NOISE  # the module has ended well, and answers in one line
    streams = [str(result.get(name) or "") for name in ("stderr", "module_stderr", "stdout", "module_stdout")]
    lines = (line.strip() for stream in streams for line in reversed(stream.splitlines()))
    text = next((line for line in lines if line and not CLOSED.fullmatch(line)), "")
    status = _format_status(result["rc"], of_module=of_module) if "rc" in result else str(result.get("msg") or "")
    return f"{text} ({status})" if text else status


def _format_status(code: object, *, of_module: bool) -> str:
    if of_module and isinstance(code, int) and (code < 0 or code == OF_SSH):
        return f"{connection(code)}: what it did there is not known"
    return on_host(code, "its program on the host") or f"exit status {code}"
