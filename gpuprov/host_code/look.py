"""Program that answers a plan's questions on a host: the package manager's changes, the usable package sources, the
output of probes with those, and the texts of files that would be written.

Run on a host as a program, by root: a request as JSON on standard input, the answer as one line of JSON. It changes
nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import sys
from typing import Any, Iterator, TypedDict

from . import ahead, family, streams
from .packages import actions, choice, other_driver
from .packages.model import LISTS_MAX_AGE, Manager, Refused, Settings
from .packages.other_driver import Option
from .sources import Source

# The largest file whose text is returned, in bytes.
LONGEST = 64 << 10


class Transaction(TypedDict, total=False):
    """A transaction, as the actions of gpuprov_packages take it."""

    judge: bool
    hold: list[str]
    release: list[str]
    driver: Option


class Request(TypedDict, total=False):
    """A request."""

    transactions: list[Transaction]
    sources: list[Source]
    texts: list[str]
    without: list[str]
    # A script.
    reading: str
    lock_timeout: int
    max_age: int


class Tried(TypedDict):
    """The rows of a transaction, or the reason why it is refused."""

    rows: list[str]
    refused: str
    another_driver: bool


class Usable(TypedDict):
    """The files of a package source that would be added, or why the host cannot use it."""

    refused: str
    files: list[Any]


class Answers(TypedDict, total=False):
    """The answer."""

    problem: str
    transactions: list[Tried]
    sources: list[Usable]
    installed: dict[str, str]
    printed: str
    texts: dict[str, str]


def answer_request(request: Request) -> Answers:
    """Return `transactions` and `sources`: the changes by each one in the request, or the reason why it is refused;
    `printed`: the output of the script `reading` (`streams`); `installed`: the versions of the packages that would
    change; `texts`: those of the request's files; `problem`: the reason why the package manager gives no answer.
    Transactions and the script see the usable sources."""
    answers: Answers = {"problem": "", "transactions": [], "sources": [], "installed": {}, "printed": ""}
    answers["texts"] = {path: text for path in request["texts"] if (text := read_text(path)) is not None}
    try:
        manager = choice.choose_manager(
            Settings(request.get("lock_timeout", Settings.lock_timeout), tuple(request["without"]))
        )
        with open_sources(manager, request, answers):
            if request.get("reading"):
                answers["printed"] = streams.pack_streams(request["reading"])
            if request["transactions"]:
                manager.prepare(request.get("max_age", LISTS_MAX_AGE), True)
                answers["transactions"] = [
                    _try_transaction(manager, transaction) for transaction in request["transactions"]
                ]
                moved = {row.split()[1].partition(":")[0] for trial in answers["transactions"] for row in trial["rows"]}
                installed = manager.read([]).installed
                answers["installed"] = {name: installed[name] for name in sorted(moved) if name in installed}
    except Refused as refused:
        answers["problem"] = str(refused)
    return answers


def read_text(path: str) -> str | None:
    """Return the text of a file, bytes that are not UTF-8 as \\x80; None for a missing, special or large one."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode) or state.st_size > LONGEST:
                return None
            return file.read(LONGEST).decode("utf-8", "backslashreplace")
    except OSError:
        return None


@contextlib.contextmanager
def open_sources(manager: Manager, request: Request, answers: Answers) -> Iterator[None]:
    """Context in which the usable sources are seen; `sources` in the answers names them."""
    with contextlib.ExitStack() as stack:
        if request["sources"]:
            try:
                sandbox = stack.enter_context(ahead.open_sources(family.read_family()))
                answers["sources"] = [_try_source(manager, source, sandbox) for source in request["sources"]]
                stack.enter_context(sandbox.seen(request["without"]))
            except Refused as refused:
                stack.close()
                answers["sources"] = [{"refused": str(refused), "files": []} for _ in request["sources"]]
        yield


def _try_transaction(manager: Manager, transaction: Transaction) -> Tried:
    action = actions.judge_transaction if transaction["judge"] else actions.prepare_transaction
    try:
        rows = [*action(manager, transaction, True)["trial"]]
        rows += (
            manager.hold(transaction["hold"], transaction["release"], True)
            if transaction["hold"] or transaction["release"]
            else []
        )
    except Refused as refused:
        return {"rows": [], "refused": str(refused), "another_driver": isinstance(refused, other_driver.AnotherDriver)}
    return {"rows": rows, "refused": "", "another_driver": False}


def _try_source(manager: Manager, source: Source, sources: ahead.Ahead) -> Usable:
    try:
        result = sources.try_source(manager, source)
    except (Refused, ValueError) as refused:
        return {"refused": str(refused), "files": []}
    return {"refused": "", "files": [entry for entry in result.get("diff", []) if "before_header" in entry]}


def main() -> None:
    """Read the request, print the answer. A signal that ends it leaves nothing behind."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    request = json.load(sys.stdin)
    try:
        answers = answer_request(request)
    except (OSError, ValueError, KeyError, TypeError) as error:
        answers = {"problem": f"{type(error).__name__}: {error}"}
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
