"""Values of a spec in messages."""

from collections.abc import Mapping

from gpuprov.core.sanitize import cleaned, is_hidden

# The most that is shown of an address: what is wrong with one often stands at its end.
ADDRESS = 300


def show(value: object) -> str:
    """Return a value as the user wrote it, short enough for one line, unless it is a secret."""
    if isinstance(value, str | int | float) and not isinstance(value, bool) and is_hidden(str(value)):
        text = "a value from the vault"
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str):
        text = f'"{cleaned(value)}"'.replace("\n", "\\n").replace("\t", "\\t")
    elif value is None:
        text = "empty"
    elif isinstance(value, Mapping):
        text = "a mapping"
    elif isinstance(value, list | tuple):
        text = "a list"
    else:
        text = str(value)
    most = ADDRESS if "://" in text else 60
    return text if len(text) <= most else text[: most - 3] + "..."
