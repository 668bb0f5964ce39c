"""The host as used by a step of a play."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol, TypedDict

from gpuprov.core import ended
from gpuprov.core.safe_parse import TreeView


class StepFailed(Exception):
    """A step that cannot continue: its text is the task's message."""


class Result(TypedDict, total=False):
    """A task's result, or that of a step on the host, as far as steps read it."""

    failed: bool
    unreachable: bool
    changed: bool
    msg: str
    rc: int
    stdout: str
    stderr: str
    diff: dict[str, str]
    warnings: list[str]
    results: list[Result]
    answer: Any
    clients: list[str]
    started: list[str]
    not_started: list[str]
    missing: bool
    reasons: list[str]
    restart: list[str]
    machine: str


class Host(Protocol):
    """Ansible's services for a step (plugins/action/gpuprov_step.py)."""

    @property
    def variables(self) -> TreeView:
        """The task's variables."""

    @property
    def check_mode(self) -> bool:
        """Return whether nothing may be changed."""

    @property
    def name(self) -> str:
        """The host's name in the inventory."""

    def step(self, step: str, /, **arguments: Any) -> Result:
        """Do a step on the host, and return its result, failed or not."""

    def shell(self, script: str) -> Result:
        """Run one of our scripts by /bin/sh on the host, even in check mode; return Ansible's result."""

    def login(self, script: str) -> None:
        """Run a script on the host as the user who logs in, without Python there, whatever becomes of it."""

    def template(self, value: Any) -> Any:
        """Expand a variable of the site."""

    def find_file(self, name: str) -> str:
        """Find a file beside the inventory or the play; a vaulted one is decrypted. Passes on Ansible's exceptions."""

    def send(self, path: str) -> AbstractContextManager[str]:
        """Copy a file to a temporary folder on the host, and yield its path there."""

    def fetch(self, path: str, place: str) -> Result:
        """Copy a file from the host to `place` on this machine, and compare both; return Ansible's result."""


def succeeded(answer: Result) -> Result:
    """Return the result of a step that did not fail. Raises StepFailed with the last line of its output."""
    if answer.get("failed") or answer.get("unreachable"):
        printed = (str(answer.get("stderr") or "") or str(answer.get("stdout") or "")).strip().splitlines()
        message = (
            f"{printed[-1]} (exit status {answer.get('rc')})" if printed and "rc" in answer else ended.answer(answer)
        )
        raise StepFailed(str(message or "the host gave no answer"))
    return answer
