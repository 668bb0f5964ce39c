"""Options by the names that Ansible, Terraform and kubectl have for them, with what to type here."""

import click

_TO_PLAN = "gpuprov plan shows what apply would change, and changes nothing"
_HARMLESS = "leave it out: this command changes nothing on hosts"
_ONLY = "--only NAME,... chooses capabilities"
_JSON = "--json prints JSON"
_CHECK = "gpuprov check says whether an inventory is valid"
_FACTS = "gpuprov export writes what hosts are now, gpuprov show HOST what is known of one"
# Commands of other tools, and what does the same here.
OTHER_COMMANDS = {
    "help": "gpuprov --help, or gpuprov COMMAND --help",
    "version": "gpuprov --version",
    **dict.fromkeys(("validate", "lint", "syntax-check"), _CHECK),
    **dict.fromkeys(
        ("deploy", "install", "provision", "run", "converge"), "gpuprov apply makes hosts what they should be"
    ),
    **dict.fromkeys(("status", "test-hosts", "assert"), "gpuprov verify says whether hosts are as wanted"),
    **dict.fromkeys(("list", "facts", "describe", "get", "inspect"), _FACTS),
    **dict.fromkeys(
        ("destroy", "uninstall", "remove"), "nvidia_absent: {} in a spec, and gpuprov apply, removes NVIDIA's software"
    ),
}
_LIMIT = "--limit PATTERN chooses hosts"
_YES = "-y answers its question"

# The parameter that a command must have for the advice, and the advice, by option.
MEANT: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("--tags", "--skip-tags", "--capability", "--capabilities", "--role", "--roles"), ("only", _ONLY)),
    **dict.fromkeys(("--format", "--output", "--output-format"), ("as_json", _JSON)),
    **dict.fromkeys(("--host", "--hosts", "--node", "--nodes", "--target", "--targets"), ("limit", _LIMIT)),
    **dict.fromkeys(("--auto-approve", "--assume-yes", "--non-interactive", "--no-input"), ("yes", _YES)),
}
DRY = ("--dry-run", "--check", "--diff", "--noop", "--no-op", "--what-if", "--simulate")


def suggest_option(given: str, command: click.Command, *, reads: bool) -> str:
    """Return what to type in place of an option that a command does not have; empty if unknown. `reads`: whether the
    command changes nothing on hosts."""
    if given in DRY:
        return _HARMLESS if reads else _TO_PLAN
    if given == "--plan" and command.name == "apply":
        return "a saved plan stands in place of the inventory: gpuprov apply FILE"
    needed, advice = MEANT.get(given, ("", ""))
    return advice if needed in {parameter.name for parameter in command.params} else ""
