"""Slurm: nodes are drained with a reason that names the run, and resumed if the reason is still the same.

No job is ended: running jobs run to their end. A node that somebody else has taken down or drained is left as it is.
https://slurm.schedmd.com/scontrol.html
"""

import re
from collections.abc import Callable, Mapping

import msgspec

from gpuprov.core.fill import fill
from gpuprov.fleet.drain.base import MARK, RUN, Step, Told, checked_run, find_node_name, format_undrain
from gpuprov.fleet.drain.program import LIMIT, Unanswered
from gpuprov.fleet.drain.slurm.client import Client
from gpuprov.fleet.drain.slurm.node import BUSY, HELD, REBOOTING, Node

# One node: no list, no range, nothing that scontrol takes for several.
NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?")
# Texts that slurmctld appends to a reason, after " : ". All but the last were seen in 22.05 and 24.11.
APPENDED = frozenset(
    {"reboot issued", "reboot complete", "reboot timed out", "Not responding", "Node unexpectedly rebooted"}
)
# scontrol's messages for missing permission. Seen in 22.05 and 24.11; documented.
DENIED = ("Invalid user id", "ermission denied")
LESS = (
    "it stays drained: its slurmd has registered with less than slurm.conf says, as one does that was there "
    "before the GPUs"
)
# Messages for INVALID_REG, which outlives a RESUME; slurmctld adds no reason to a node that is drained already.
# validate_node_specs() in https://github.com/SchedMD/slurm/blob/master/src/slurmctld/node_mgr.c,
# https://slurm.schedmd.com/sinfo.html#SECTION_NODE-STATE-CODES
RESTART = "on the host: slurmd -C and slurmd -G say what it finds; systemctl restart slurmd has it register again"
# Number of jobs that a step names.
NAMED = 20
ELSEWHERE = "set host_slurm_node for the host, if Slurm calls it otherwise; sinfo -N names the nodes"


class Slurm:
    """The adapter, through scontrol and squeue. `nodes`: names of nodes that differ from the inventory's."""

    name = "slurm"

    def __init__(self, nodes: Mapping[str, str] | None = None, limit: float = LIMIT) -> None:
        self._nodes, self._client = nodes or {}, Client(limit)

    def drain(self, host: str, run: str) -> Step:
        """Drain the node, with a reason that names the run. Running jobs go on."""
        return self._step(host, run, self._drain)

    def drained(self, host: str, run: str) -> Step:
        """Report whether the last job has left the node."""
        return self._step(host, run, self._drained)

    def returned(self, host: str, run: str, green: bool) -> Step:
        """Resume the node, if this run has drained it and nobody has changed the reason since."""
        return self._step(host, run, lambda node, run: self._returned(node, run, green=green))

    def _step(self, host: str, run: str, do: Callable[[Node, str], Told[Node]]) -> Step:
        checked_run(run)
        name = find_node_name(host, self._nodes)
        if not NAME.fullmatch(name) or name.upper() == "ALL":
            return Step(
                host=host, node=name, state="refused", message=f"{name[:80]!r} is not a name of one node", fix=ELSEWHERE
            )
        try:
            node = self._client.node(name)
            if node is None:
                return Step(host=host, node=name, state="refused", message=f"Slurm knows no node {name}", fix=ELSEWHERE)
            result = do(node, run)
        except Unanswered as problem:
            return Step(host=host, node=name, state="unknown", message=f"Slurm was not asked to the end: {problem}")
        return fill(Step, result, host=host, node=name, read=result.node.shown)

    def _again(self, node: Node) -> Node:
        """Read the node again after a change. Raises Unanswered."""
        current = self._client.node(node.name)
        if current is None:
            raise Unanswered(f"node {node.name} is gone")
        return current

    def _drain(self, node: Node, run: str) -> Told[Node]:
        if node.states & (HELD | REBOOTING):
            return Told("done", node) if is_ours(node, run) else self._leave(node)
        problem = self._client.change("update", f"NodeName={node.name}", "State=DRAIN", f"Reason={make_reason(run)}")
        after = self._again(node)
        if not after.states & HELD:
            return _refuse_change(after, problem, "it takes jobs as before")
        return Told("done", after) if is_ours(after, run) else self._leave(after)

    def _drained(self, node: Node, run: str) -> Told[Node]:
        if not node.states & HELD:
            return Told("refused", node, "it is in service: it was not drained, or somebody has resumed it")
        if not is_ours(node, run):
            return self._leave(node)
        jobs = self._list_jobs(node)
        return Told("waiting", node, "jobs run on it", waits_for=jobs) if jobs else Told("done", node)

    def _leave(self, node: Node) -> Told[Node]:
        """Refuse a node that this run has not taken out, with the jobs that still run on it."""
        refused = refuse_others(node)
        return msgspec.structs.replace(refused, waits_for=self._list_jobs(node)) if refused.others else refused

    def _list_jobs(self, node: Node) -> tuple[str, ...]:
        jobs = self._client.jobs(node.name)
        if not jobs and node.states & BUSY:
            jobs = ("jobs that squeue does not show to this user",)
        more = (f"and {len(jobs) - NAMED} more",) if len(jobs) > NAMED else ()
        return (*jobs[:NAMED], *more)

    def _returned(self, node: Node, run: str, *, green: bool) -> Told[Node]:
        if not node.states & HELD:
            return _check_answering(node)
        if not is_ours(node, run):
            return refuse_others(node)
        if not green:
            return Told("refused", node, "it stays drained: it is not known to be as its spec says")
        if node.states & REBOOTING:
            return Told("waiting", node, "it reboots")
        if "INVALID_REG" in node.states:
            return Told("waiting", node, LESS, RESTART)
        problem = self._client.change("update", f"NodeName={node.name}", "State=RESUME")
        after = self._again(node)
        return _refuse_change(after, problem, "it stays drained") if after.states & HELD else _check_answering(after)


def make_reason(run: str) -> str:
    """Return the reason that Slurm shows for the node while a run has it."""
    return f"{MARK} {run}"


def is_ours(node: Node, run: str) -> bool:
    """True if the reason is this run's, and only slurmctld has added to it."""
    return _parse_run(node) == run


def _parse_run(node: Node) -> str:
    """Return the run that has the node; empty if it is not gpuprov's."""
    text, *added = node.reason.split(" : ")
    mark, _, run = text.partition(" ")
    return run if mark == MARK and RUN.fullmatch(run) and set(added) <= APPENDED else ""


def refuse_others(node: Node) -> Told[Node]:
    """Refuse a node that this run has not taken out: describe who has. One that waits for a reboot may still get
    jobs."""
    others = bool(node.states & HELD) and not node.states & REBOOTING
    words = "+".join(sorted(node.states & (HELD | REBOOTING)))
    if run := _parse_run(node):
        fix = f"{format_undrain('slurm', run)} gives it back"
        return Told("refused", node, f"run {run} has it ({words})", fix, others=others)
    by = f" ({node.user})" if node.user else ""
    message = f"somebody else{by} has taken it out, {words}: {node.reason or 'no reason given'}"
    return Told("refused", node, message, "it is left as it is", others=others)


def _check_answering(node: Node) -> Told[Node]:
    """Report whether the slurmd of a node that is in service has answered since."""
    if "NOT_RESPONDING" in node.states:
        return Told("waiting", node, "it is in service, and its slurmd has not answered yet", "systemctl status slurmd")
    return Told("done", node)


def _refuse_change(node: Node, problem: str, what: str) -> Told[Node]:
    if any(words in problem for words in DENIED):
        return Told("refused", node, f"{what}: {problem}", "run gpuprov as root, SlurmUser, or an operator of Slurm")
    return Told("unknown", node, f"{what}: {problem or 'scontrol had nothing to complain of'}")
