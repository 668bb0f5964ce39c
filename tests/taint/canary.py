"""Strings that make a file, if anything on this machine takes them for more than data; and others that mean more than
they say."""

from __future__ import annotations

from pathlib import Path

DELIMITERS = (
    "{{{{ lookup('ansible.builtin.pipe', 'touch {file}') }}}}",
    "{{% set it = lookup('ansible.builtin.pipe', 'touch {file}') %}}",
    "x{{# #}}{{{{ lookup('ansible.builtin.pipe', 'touch {file}') }}}}y",
    "#jinja2:variable_start_string:'[%', variable_end_string:'%]'\n[% lookup('ansible.builtin.pipe', 'touch "
    "{file}') %]",
)
"""Templates of Ansible; the last has no usual delimiter."""
OTHERS = (
    "$(touch {file})",
    "`touch {file}`",
    "; touch {file} ;",
    "' ; touch {file} ; '",
    '" ; touch {file} ; "',
    "-oProxyCommand=touch {file}",
    "!touch {file}",
    "/../../../../../../..{file}",
    "%s{{0.__class__}}",
    "\x1b]0;OWNED\x07\x1b[2J",
)
"""Shell words, options, paths, format strings, terminal sequences."""


class Nest:
    """Makes canaries, and looks whether one of them flew."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.count = 0
        """Canaries made so far."""

    def templates(self) -> list[str]:
        """One of each template."""
        return [self._made(form) for form in DELIMITERS]

    def all(self) -> list[str]:
        """One of each kind."""
        return [self._made(form) for form in (*DELIMITERS, *OTHERS)]

    def one(self, *, lines: bool = False) -> str:
        """The next kind in turn; of several lines only where they may be."""
        forms = [form for form in (*DELIMITERS, *OTHERS) if lines or "\n" not in form]
        return self._made(forms[self.count % len(forms)])

    def _made(self, form: str) -> str:
        self.count += 1
        return form.format(file=self._folder / f"canary-{self.count}")

    def flown(self) -> list[str]:
        """Canaries that something ran."""
        return sorted(path.name for path in self._folder.iterdir())
