"""scontrol and squeue: what they are asked, and what their answers mean."""

from __future__ import annotations

import os

from gpuprov import reading
from gpuprov.drain.program import ENGLISH, Unanswered, ask, said
from gpuprov.drain.slurm.node import Node, of_json, of_text
from gpuprov.gather.children import Ended

NO_JSON = (b"unrecognized option", b"serializer", b"plugin")
"""Complaints of a scontrol without --json (before 23.02), or without the plugin that writes it."""
NO_NODE = (b"not found", b"Invalid node name")
OWN = ("SQUEUE_", "SLURM_TIME_FORMAT")
"""What the variables begin with by which somebody has squeue leave jobs out (SQUEUE_STATES, SQUEUE_USERS, SQUEUE_PARTITION ...), or
times written in another way, as they stand behind a reason: https://slurm.schedmd.com/squeue.html#SECTION_ENVIRONMENT-VARIABLES"""


class Client:
    """The client programs on this machine. `limit`: seconds for one question."""

    def __init__(self, limit: float) -> None:
        self._limit, self._json = limit, True

    def node(self, name: str) -> Node | None:
        """The node as Slurm has it now; None where it knows none of that name. Raises Unanswered."""
        if self._json:
            told = self._ask("scontrol", "show", "node", name, "--json")
            if told.status == 0:
                try:
                    return of_json(told.out, name)
                except reading.Unreadable:
                    pass  # the text says the same
            self._json = not any(words in told.error for words in NO_JSON)
        told = self._ask("scontrol", "show", "node", name)
        if told.status != 0 or not told.out.strip():
            if any(words in told.out + told.error for words in NO_NODE):
                return None
            raise Unanswered(said(told) or f"scontrol ended with {told.status}")
        try:
            return of_text(told.out.decode(errors="replace"), name)
        except reading.Unreadable as problem:
            raise Unanswered(f"scontrol show node {name}: {problem}") from None

    def jobs(self, name: str) -> tuple[str, ...]:
        """Jobs that are on the node, suspended and completing ones too; none of other clusters of a federation. Raises Unanswered."""
        told = self._ask("squeue", "--noheader", "--all", "--local", f"--nodelist={name}", "--format=%i %T")
        if told.status != 0:
            raise Unanswered(said(told) or f"squeue ended with {told.status}")
        lines = told.out.decode(errors="replace").split("\n")
        return tuple(f"job {line.strip()}" for line in lines if line.strip())

    def change(self, *arguments: str) -> str:
        """Nothing, or what scontrol complains of. Raises Unanswered."""
        told = self._ask("scontrol", *arguments)
        return "" if told.status == 0 else said(told) or f"scontrol ended with {told.status}"

    def _ask(self, *argv: str) -> Ended:
        left_out = {name: None for name in os.environ if name.startswith(OWN)}
        return ask(list(argv), limit=self._limit, environment={**ENGLISH, **left_out})
