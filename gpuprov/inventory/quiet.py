"""Ansible's messages, captured instead of printed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ansible.utils.display import Display


@dataclass
class Heard:
    """Warnings with the object they are about, and failures of inventory plugins: (plugin name, exception)."""

    warnings: list[tuple[str, Any]] = field(default_factory=list)
    failures: list[tuple[str, BaseException]] = field(default_factory=list)


@contextmanager
def silence_ansible() -> Iterator[Heard]:
    """Keep Ansible's output off the terminal in this context; warnings and plugin failures are kept, the rest is
    dropped."""
    heard = Heard()

    def warning(msg: str, formatted: bool = False, *, help_text: str | None = None, obj: Any = None) -> None:
        heard.warnings.append((str(msg), obj))

    def error_as_warning(msg: str | None, exception: BaseException, **_: Any) -> None:
        # "Failed to parse inventory with 'yaml' plugin."
        name = (msg or "").partition("'")[2].partition("'")[0]
        heard.failures.append((name, exception))

    def nothing(*_: Any, **__: Any) -> None:
        return None

    display = Display()
    hooks = {"warning": warning, "error_as_warning": error_as_warning}
    hooks |= dict.fromkeys(("display", "deprecated", "error", "_warning", "_deprecated", "_error"), nothing)
    for name, hook in hooks.items():
        setattr(display, name, hook)
    try:
        yield heard
    finally:
        for name in hooks:
            delattr(display, name)
