"""Errors that a user can act on, outcomes, and their exit codes."""

from collections.abc import Iterable
from typing import Literal

EXIT_CODES: dict[int, str] = {
    0: "success: what was asked is so, or is done",
    1: "the host differs from its spec (or a reboot is still required), or nothing of it could be proven",
    2: "usage, inventory or spec error; nothing was changed",
    3: "apply failed on at least one host",
    4: "at least one host could not be reached",
    5: "another run works on at least one host, and nothing else is wrong: try again later",
    70: "gpuprov itself broke, and says so with a traceback: nothing is known of the hosts",
    130: "interrupted",
}

Code = Literal[0, 1, 2, 3, 4, 5, 130]
# The outcome of a command on one host, or on all. unusable: the host cannot be rehearsed. nothing asked: no check asks
# anything of it, which says nothing of the others, and proves nothing where it is so on all.
Outcome = Literal[
    "interrupted", "failed", "unreachable", "locked", "unusable", "differs", "not proven", "ok", "nothing asked"
]
# The exit code of each outcome; of several outcomes the first one here is that of all.
CODES: dict[Outcome, Code] = {
    "interrupted": 130,
    "failed": 3,
    "unreachable": 4,
    "locked": 5,
    "unusable": 2,
    "differs": 1,
    "not proven": 1,
    "ok": 0,
    "nothing asked": 1,
}
# EX_SOFTWARE, sysexits(3). Python's own status for an exception is 1, which means that a host differs.
BROKEN = 70
DEFECT = "a defect of gpuprov, not of the host"


def find_worst(outcomes: Iterable[Outcome], otherwise: Outcome = "nothing asked") -> Outcome:
    """Return the outcome of a whole command from those of its parts, or `otherwise` if there are none."""
    present = set(outcomes)
    return next((outcome for outcome in CODES if outcome in present), otherwise)


def choose_code(outcomes: Iterable[Outcome], otherwise: Outcome = "nothing asked") -> Code:
    """Return the exit code of a command. Nothing else in gpuprov decides one."""
    return CODES[find_worst(outcomes, otherwise)]


def defect(where: str, error: BaseException) -> tuple[str, str]:
    """Return a message about an unexpected exception while `where` judged one host, and what to report."""
    import os
    import platform
    import sys
    import traceback

    import gpuprov

    frames = traceback.extract_tb(error.__traceback__)
    home = os.path.dirname(str(gpuprov.__file__)) + os.sep
    own_frames = [frame for frame in frames if frame.filename.startswith(home)] or frames
    place = f" at {own_frames[-1].filename.removeprefix(home)}:{own_frames[-1].lineno}" if own_frames else ""
    text = " ".join(str(error).encode(errors="replace").decode().split())[:200]
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    command = " ".join(["gpuprov", *sys.argv[1:2]])
    version = f"gpuprov {gpuprov.__version__}, Python {platform.python_version()}, {command}"
    return f"{where} broke: {message}{place}", f"{DEFECT}: report it with this line ({version})"


class GpuprovError(Exception):
    """An error with a visible cause and a fix; printed without a traceback."""

    exit_code: Code = CODES["unusable"]

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}\nfix: {self.fix}" if self.fix else self.message


class UnreachableError(GpuprovError):
    """A host could not be reached."""

    exit_code = CODES["unreachable"]
