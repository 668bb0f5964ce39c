"""A password from the terminal. Without one, getpass would warn and read standard input in the open."""

from __future__ import annotations

from gpuprov.errors import GpuprovError


def asked(prompt: str, what: str, hint: str) -> str:
    """The password. Raises GpuprovError where there is no terminal to ask on; the hint names what needs none."""
    import warnings
    from getpass import GetPassWarning, getpass

    with warnings.catch_warnings():
        warnings.simplefilter("error", GetPassWarning)
        try:
            return getpass(prompt)
        except GetPassWarning as error:
            raise GpuprovError(f"{what} is to be asked for, and there is no terminal to ask on", hint) from error
