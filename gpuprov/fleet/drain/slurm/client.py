"""scontrol and squeue: the questions, and parsing of the answers."""

import os

from gpuprov.core import safe_parse
from gpuprov.facts.collect.children import Ended
from gpuprov.fleet.drain.program import ENGLISH, Unanswered, ask, format_complaint
from gpuprov.fleet.drain.slurm.node import Node, of_json, of_text

# Complaints of a scontrol without --json (before 23.02), or without the plugin that writes it.
NO_JSON = (b"unrecognized option", b"serializer", b"plugin")
NO_NODE = (b"not found", b"Invalid node name")
# Prefixes of variables by which somebody has squeue leave jobs out (SQUEUE_STATES, SQUEUE_USERS, SQUEUE_PARTITION
# ...), or format the times behind a reason differently:
# https://slurm.schedmd.com/squeue.html#SECTION_ENVIRONMENT-VARIABLES
OWN = ("SQUEUE_", "SLURM_TIME_FORMAT")


class Client:
    """The client programs on this machine. `limit`: seconds for one question."""

    def __init__(self, limit: float) -> None:
        self._limit, self._json = limit, True

    def node(self, name: str) -> Node | None:
        """Read the node's present state; None if Slurm knows no node of that name. Raises Unanswered."""
        if self._json:
            result = self._ask("scontrol", "show", "node", name, "--json")
            if result.status == 0:
                try:
                    return of_json(result.out, name)
                except safe_parse.Unreadable:
                    pass  # the text says the same
            self._json = not any(words in result.error for words in NO_JSON)
        result = self._ask("scontrol", "show", "node", name)
        if result.status != 0 or not result.out.strip():
            if any(words in result.out + result.error for words in NO_NODE):
                return None
            raise Unanswered(format_complaint(result) or f"scontrol ended with {result.status}")
        try:
            return of_text(result.out.decode(errors="replace"), name)
        except safe_parse.Unreadable as problem:
            raise Unanswered(f"scontrol show node {name}: {problem}") from None

    def jobs(self, name: str) -> tuple[str, ...]:
        """List jobs on the node, suspended and completing ones too; none of other clusters of a federation. Raises
        Unanswered."""
        result = self._ask("squeue", "--noheader", "--all", "--local", f"--nodelist={name}", "--format=%i %T")
        if result.status != 0:
            raise Unanswered(format_complaint(result) or f"squeue ended with {result.status}")
        lines = result.out.decode(errors="replace").split("\n")
        return tuple(f"job {line.strip()}" for line in lines if line.strip())

    def change(self, *arguments: str) -> str:
        """Run scontrol; return its complaint, empty on success. Raises Unanswered."""
        result = self._ask("scontrol", *arguments)
        return "" if result.status == 0 else format_complaint(result) or f"scontrol ended with {result.status}"

    def _ask(self, *argv: str) -> Ended:
        left_out = {name: None for name in os.environ if name.startswith(OWN)}
        return ask(list(argv), limit=self._limit, environment={**ENGLISH, **left_out})
