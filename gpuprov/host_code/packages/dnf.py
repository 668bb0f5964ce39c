"""Packages by dnf 4: its own Python module does the work, under the interpreter that the module belongs to.

That interpreter may be older (3.6 on EL 8) than Ansible's, so a program of a few modules is passed to it as text.
"""

from __future__ import annotations

import json
import os
import pkgutil
import time
from typing import TYPE_CHECKING, Sequence, TypedDict

from ..json_members import Json
from . import rpm_database
from .commands import run, shorten_end
from .model import MARKER, Done, Known, Prepared, Refused, Settings, Transaction, Trial

if TYPE_CHECKING:  # never run, but Ansible carries to the host what it finds imported
    from . import dnf_actions, dnf_base, dnf_locks, dnf_program, dnf_transaction  # noqa: F401

PROGRAM = ("dnf_base", "dnf_locks", "dnf_transaction", "dnf_actions", "dnf_program")
PYTHONS = ("/usr/libexec/platform-python", "/usr/bin/python3")
BEGIN = """
import json, sys, types
package = sys.modules["gpuprov_dnf"] = types.ModuleType("gpuprov_dnf")
package.__path__ = []
given = json.load(sys.stdin)
for name, text in given["program"]:
    module = types.ModuleType("gpuprov_dnf." + name)
    module.__package__ = "gpuprov_dnf"
    sys.modules[module.__name__] = module
    setattr(package, name, module)
    try:
        exec(compile(text, name + ".py", "exec"), module.__dict__)
    except ImportError as error:
        sys.exit(print(json.dumps({"problem": "the host has no dnf 4: %s" % error})))
module.main(given["request"])
"""
# The package of `dnf versionlock` on EL 8 to 10.
LOCK_PLUGIN = "python3-dnf-plugin-versionlock"
SOURCES = "/etc/yum.repos.d"
# Exit status if another dnf is running.
LOCKED = 200
PAUSE = 2.0


class Answer(TypedDict, total=False):
    """The answer of the program, for all its actions."""

    problem: str
    twice: list[str]
    changed: list[str]
    rows: list[list[str]]
    installed: dict[str, str]
    index: dict[str, list[str]]
    held: list[str]
    lockable: bool
    lock_problem: str
    trial: list[str]
    stream: object
    warnings: list[str]
    files: list[str]


class Dnf:
    """See `model.Manager`."""

    name = "dnf"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def prepare(self, max_age: int, check: bool) -> Prepared:
        is_ours = os.path.exists(MARKER)
        changed = rpm_database.rebuild_database(is_ours, check)
        state = self._must({"action": "state", "repair": is_ours and not check})
        if state["twice"] and not is_ours:
            raise Refused(
                f"{', '.join(state['twice'])} stand(s) twice in rpm's database: a transaction was cut off, and not "
                "one of gpuprov; nothing was changed. Fix, on the host: dnf remove --duplicates"
            )
        changed += [f"remove the older {name}" for name in state.get("changed", state["twice"])]
        problem = "" if check else self._ask({"action": "refresh", "max_age": max_age})["problem"]
        warning = f"dnf makecache failed, the older package lists are used: {shorten_end(problem, 300)}"
        return Prepared(changed, [warning] if problem else [])

    def fetch(self, source: str) -> None:
        # The other sources are not asked: one of them that does not answer must not keep this one from being used.
        only = ["--disablerepo=*", f"--enablerepo=gpuprov-{source}", "--noplugins", "--setopt=keepcache=0"]
        if problem := makecache(f"--setopt=reposdir={SOURCES}", *only, patience=self._settings.lock_timeout):
            raise Refused(shorten_end(problem, 600))

    def read(self, names: Sequence[str], related: str = "") -> Known:
        answer = self._must({"action": "read", "names": list(dict.fromkeys(names)), "related": related})
        needs = [] if answer["lockable"] else [LOCK_PLUGIN]
        return Known(
            answer["rows"], answer["installed"], answer["index"], answer["held"], answer["lock_problem"], needs
        )

    def attempt(self, transaction: Transaction) -> Trial:
        answer = self._ask({**build_request(transaction), "action": "try", "download": False})
        return Trial(answer.get("trial", []), answer["problem"], bool(answer.get("stream")))

    def download(self, transaction: Transaction) -> str:
        return str(self._ask({**build_request(transaction), "action": "try", "download": True})["problem"])

    def commit(self, transaction: Transaction) -> Done:
        answer = self._ask({**build_request(transaction), "action": "install"})
        return Done(answer["problem"], answer.get("warnings", []))

    def hold(self, hold: Sequence[str], release: Sequence[str], check: bool) -> list[str]:
        names = [name for name in release if name not in hold]
        answer = self._must({"action": "lock", "hold": list(hold), "release": names, "check": check})
        return [("hold " if line.startswith("+") else "release ") + line[1:] for line in answer["changed"]]

    def files(self, packages: Sequence[str]) -> list[str]:
        return [str(path) for path in self._must({"action": "files", "packages": list(packages)})["files"]]

    def _must(self, request: dict[str, Json]) -> Answer:
        answer = self._ask(request)
        if answer["problem"]:
            raise Refused(
                f"dnf: {answer['problem']}. Fix: correct what it reports (dnf -v repolist shows the repositories), "
                "then apply again"
            )
        return answer

    def _ask(self, request: dict[str, Json]) -> Answer:
        """Return the program's answer; a `problem` if it has none."""
        python = next((path for path in PYTHONS if os.access(path, os.X_OK)), PYTHONS[-1])
        waiting = {"timeout": self._settings.lock_timeout, "mirror_timeout": self._settings.mirror_timeout}
        message = {"program": list_program(), "request": {**waiting, **request}}
        ran = run([python, "-c", BEGIN], stdin=json.dumps(message))
        try:
            answer: Answer = json.loads(ran.out)
        except ValueError:
            return {"problem": f"{python} ended with status {ran.status}: {shorten_end(ran.message[-300:], 300)}"}
        return answer


def makecache(*options: str, patience: float) -> str:
    """Fetch the lists of some repositories; return the problem."""
    # Waits at most so many seconds for another dnf: dnf itself waits for ever.
    words = ["dnf", "-q", "-y", "--setopt=timeout=30", "--setopt=retries=2", "--setopt=exit_on_lock=1", *options]
    until = time.monotonic() + patience
    while (ran := run([*words, "makecache", "--refresh"])).status == LOCKED and time.monotonic() < until:
        time.sleep(PAUSE)
    return (ran.message or f"dnf makecache ends with status {ran.status}") if ran.status else ""


def build_request(transaction: Transaction) -> dict[str, Json]:
    pin = {"version": transaction.pin.version, "patterns": list(transaction.pin.patterns)} if transaction.pin else {}
    return {
        "install": list(transaction.install),
        "remove": list(transaction.remove),
        "pin": pin,
        "module": transaction.stream,
    }


def list_program() -> list[list[str]]:
    """Return the modules of the program, each as name and text."""
    texts = ((name, pkgutil.get_data(str(__package__), f"{name}.py")) for name in PROGRAM)
    return [[name, (text or b"").decode()] for name, text in texts]
