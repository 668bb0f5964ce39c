"""A site's own command: the same words for each step, with a result by exit status.

It runs here, in a shell, as the operator has written it. Its subject is passed in its environment, never in its text:
GPUPROV_STEP (drain, drained, return), GPUPROV_HOST, GPUPROV_NODE and GPUPROV_RUN.
"""

from collections.abc import Mapping

from gpuprov.fleet.drain.base import State, Step, checked_run, find_node_name
from gpuprov.fleet.drain.program import Unanswered, ask, format_complaint

# Seconds for one call; a step that takes longer returns NOT_YET, and is called again.
LIMIT = 300.0
# EX_TEMPFAIL of sysexits.h.
NOT_YET = 75


class Command:
    """The command, and the site's names of hosts."""

    name = "command"

    def __init__(self, command: str, nodes: Mapping[str, str] | None = None, limit: float = LIMIT) -> None:
        self._command, self._nodes, self._limit = command, nodes or {}, limit

    def drain(self, host: str, run: str) -> Step:
        """Run the command with GPUPROV_STEP=drain."""
        return self._step("drain", host, run)

    def drained(self, host: str, run: str) -> Step:
        """Run the command with GPUPROV_STEP=drained."""
        return self._step("drained", host, run)

    def returned(self, host: str, run: str, green: bool) -> Step:
        """Run the command with GPUPROV_STEP=return; not for a host that is not green."""
        if not green:
            message = "it stays out: it is not known to be as its spec says"
            return Step(host=host, node=find_node_name(host, self._nodes), state="refused", message=message)
        return self._step("return", host, run)

    def _step(self, step: str, host: str, run: str) -> Step:
        node = find_node_name(host, self._nodes)
        variables = {"STEP": step, "HOST": host, "NODE": node, "RUN": checked_run(run)}
        if "\0" in host + node:
            return Step(host=host, node=node, state="refused", message="its name cannot be handed to a command")
        try:
            environment = {f"GPUPROV_{name}": value for name, value in variables.items()}
            ended = ask(["sh", "-c", self._command], limit=self._limit, environment=environment)
        except Unanswered as problem:
            return Step(host=host, node=node, state="unknown", message=f"the site's command: {problem}")
        state: State = "done" if ended.status == 0 else "waiting" if ended.status == NOT_YET else "refused"
        words = format_complaint(ended)
        if state == "waiting":
            return Step(host=host, node=node, state=state, waits_for=(words,) if words else (), message="not yet")
        message = "" if state == "done" else f"the site's command ended with {ended.status}: {words or 'nothing said'}"
        return Step(host=host, node=node, state=state, read=words, message=message)
