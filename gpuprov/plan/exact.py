"""The plan with the host's answers: packages as its package manager would move them, files with their differences."""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from gpuprov.capabilities import BY_NAME
from gpuprov.core.errors import defect
from gpuprov.facts.collect.rounds import Pace
from gpuprov.host_code import look
from gpuprov.plan.collect import merged
from gpuprov.plan.foresee import Foreseen, Keys, request, with_keys
from gpuprov.plan.host_code import run_on_hosts
from gpuprov.plan.made import moves
from gpuprov.plan.model import HostPlan, Item
from gpuprov.spec.model import RawHost
from gpuprov.verify.evaluate import Result


class Transaction(msgspec.Struct, frozen=True):
    """The rows of a transaction as worded by `model.Trial`, or the reason why it is refused."""

    rows: tuple[str, ...]
    refused: str
    another_driver: bool


class SourceFile(msgspec.Struct, frozen=True):
    """A file of a package source."""

    after_header: str
    before: str
    after: str


class Source(msgspec.Struct, frozen=True):
    """The files of a package source that would be added, or why the host cannot use it."""

    refused: str
    files: tuple[SourceFile, ...]


class Answer(msgspec.Struct, frozen=True):
    """The answer of `gpuprov.host_code.look`."""

    problem: str = ""
    transactions: tuple[Transaction, ...] = ()
    sources: tuple[Source, ...] = ()
    installed: dict[str, str] = {}
    printed: str = ""
    texts: dict[str, str] = {}


def complete(
    plans: Sequence[HostPlan],
    foreseen: Mapping[str, tuple[RawHost, Foreseen]],
    *,
    limit: float,
    keys: Keys | None = None,
    pace: Pace | None = None,
    on_done: Callable[[str], None] | None = None,
) -> list[HostPlan]:
    """Complete the plans of hosts that are not blocked: each host with something left to find out is contacted again.
    limit: seconds for one host. keys: those of package sources that were tried so far."""
    keys = {} if keys is None else keys
    hosts = [plan.host for plan in plans if plan.host in foreseen and not plan.blocked]
    known = {name: with_keys(foreseen[name][1], keys) for name in hosts}
    requests = {name: (foreseen[name][0], sent) for name, entry in known.items() if (sent := request(entry))}
    returned = run_on_hosts(look, requests, Answer, limit=limit, pace=pace, on_done=on_done) if requests else {}
    answers = {name: result.answer or Answer(problem=result.problem) for name, result in returned.items()}
    return [
        _add_answer(plan, known[plan.host], answers.get(plan.host, Answer())) if plan.host in known else plan
        for plan in plans
    ]


def _add_answer(plan: HostPlan, foreseen: Foreseen, answer: Answer) -> HostPlan:
    """Complete a plan; an unusable answer affects only its host."""
    try:
        return with_answer(plan, foreseen, answer)
    except Exception as error:
        doubt = "; ".join(defect("what a host answered to its plan", error))
        return msgspec.structs.replace(plan, unpredicted=(*plan.unpredicted, doubt))


def with_answer(plan: HostPlan, foreseen: Foreseen, answer: Answer) -> HostPlan:
    """Return the plan with the predicted changes and the host's answer to them."""
    pairs = [(name, transaction) for name, each in foreseen.packages.items() for transaction in each]
    trials = list(zip(pairs, answer.transactions, strict=False))
    refused = [(name, trial) for (name, _), trial in trials if trial.refused]
    blocked = [
        _make_refusal(plan.host, name, trial)
        for name, trial in refused
        if trial.another_driver or name in plan.versions
    ]
    doubts = [
        f"{name}: {trial.refused}" for name, trial in refused if not (trial.another_driver or name in plan.versions)
    ]
    sources = list(zip(foreseen.sources, answer.sources, strict=False))
    doubts += [f"{name}: {trial.refused}" for name, trial in sources if trial.refused]
    doubts += [f"what the host's package manager would do: {answer.problem}"] * bool(answer.problem)
    doubts += [f"{name}: {why}" for name, why in foreseen.unknown.items()]
    files = [
        Item(capability=name, kind="file", name=file.path, before=file.before, after=file.after)
        for name, each in foreseen.files.items()
        for file in each
    ]
    diffs = [
        *_list_diffs(foreseen, answer),
        *(_make_diff(name, *_find_texts(file)) for name, trial in sources for file in trial.files),
    ]
    exact = {name for (name, _), trial in trials if not trial.refused and name not in foreseen.waits}
    known = {Item.of("", change) for name in exact for change in foreseen.moves.get(name, ())}
    others = [change for change in plan.changes if Item.of("", change) not in known]
    moved = [Item.of(name, move) for (name, _), trial in trials for move in moves(trial.rows, answer.installed)]
    return msgspec.structs.replace(
        plan,
        blocked=(*plan.blocked, *blocked),
        differs=plan.differs or bool(blocked),
        changes=merged([*moved, *others, *files]),
        diffs=tuple(diffs),
        unpredicted=tuple(dict.fromkeys([*plan.unpredicted, *doubts])),
    )


def _list_diffs(foreseen: Foreseen, answer: Answer) -> Iterator[Item]:
    for name, each in foreseen.texts.items():
        for file in each:
            before = answer.texts.get(file.path)
            before = None if before is None or len(before) > look.LONGEST * 4 else before
            if before is None and file.before not in ("", "absent"):
                yield Item(capability=name, kind="file", name=file.path, before=file.before, after="written")
            elif before != file.text:
                yield _make_diff(name, file.path, before or "", file.text)


def _find_texts(file: SourceFile) -> tuple[str, str, str]:
    return file.after_header, file.before, file.after


def _make_diff(capability: str, path: str, before: str, after: str) -> Item:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="")
    was = "" if before else "absent"
    return Item(capability=capability, kind="file", name=path, before=was, after="written", diff="\n".join(lines))


def _make_refusal(host: str, capability: str, trial: Transaction) -> Result:
    message, _, fix = trial.refused.partition(" Fix: ")
    return Result(
        host=host,
        capability=capability,
        check=_find_resolving_check(capability),
        status="fail",
        expected="no packages of another driver than the host's"
        if trial.another_driver
        else "a transaction that the package manager can do",
        found=message,
        fix=fix,
        moment="preflight",
    )


def _find_resolving_check(capability: str) -> str:
    """Return the check that fails when the packages of a capability cannot be installed."""
    known = [check.id for check in BY_NAME[capability].checks if check.moment == "preflight"]
    return next((name for name in known if name.endswith(".resolvable")), next(iter(known), f"{capability}.resolvable"))
