"""Password input from the terminal. Without a terminal, getpass would warn and read standard input with the password
visible."""

from gpuprov.core.errors import GpuprovError


def ask_for_password(prompt: str, what: str, hint: str) -> str:
    """Return the password. Raises GpuprovError if there is no terminal; the hint names the option that needs none."""
    import warnings
    from getpass import GetPassWarning, getpass

    with warnings.catch_warnings():
        warnings.simplefilter("error", GetPassWarning)
        try:
            return getpass(prompt)
        except GetPassWarning as error:
            raise GpuprovError(f"{what} is to be asked for, and there is no terminal to ask on", hint) from error
