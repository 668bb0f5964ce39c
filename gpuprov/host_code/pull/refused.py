"""The error that ends a pull before anything has changed."""

from __future__ import annotations


class Refused(Exception):
    """The problem, what is allowed, and the fix. The exit code is that of a usage or specification error."""

    code = 2

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message, self.fix = message, fix


class Unfetched(Refused):
    """The location of bundles, or of results, does not answer; it may do so later."""

    code = 4
