"""click's support of the three shells, with fixes for faults of its scripts.

bash breaks the line at each : and @, which occur in patterns of hosts, and click sees the pieces. zsh and fish do not
break at =, but click answers for `--limit=g` as if they did. fish's script cuts a suggestion at its first comma.
https://click.palletsprojects.com/en/stable/shell-completion/
"""

import os
from typing import Any

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)


class Bash(BashComplete):
    """The words of the line as typed; suggestions without the start of the last word that bash keeps ($2 is the part it
    replaces)."""

    source_template = BashComplete.source_template.replace(
        "env COMP_WORDS=", 'env COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_REPLACED="$2" COMP_WORDS='
    )
    _kept = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("COMP_LINE")
        if line is None:
            return super().get_completion_args()
        words = split_arg_string(line)
        incomplete = "" if not words or line[-1:].isspace() else words.pop()
        self._kept = incomplete.removesuffix(os.environ.get("COMP_REPLACED", ""))
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        return f"{item.type},{item.value.removeprefix(self._kept)}"


def _complete_value(args: list[str], incomplete: str, items: list[CompletionItem[Any]]) -> list[CompletionItem[Any]]:
    """Return suggestions for the value of `--option=value`, as the whole word."""
    option, given, _ = incomplete.partition("=")
    if given and option.startswith("--") and "--" not in args:
        for item in items:
            item.value = f"{option}={item.value}"
    return items


class Zsh(ZshComplete):
    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        return _complete_value([*args], incomplete, super().get_completions(args, incomplete))


class Fish(FishComplete):
    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        return _complete_value([*args], incomplete, super().get_completions(args, incomplete))


def use() -> None:
    """Activate these classes for completion."""
    for shell in (Bash, Zsh, Fish):
        add_completion_class(shell)
