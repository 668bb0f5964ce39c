"""Packages by zypper, of SLES and openSUSE."""

from __future__ import annotations

import fnmatch
import glob
import os
import platform
import re
import time
from typing import Mapping, Sequence

from . import rpm_database, zypper_answer, zypper_locks
from .commands import Ran, run, shorten_end, shorten_middle
from .model import MARKER, Done, Known, Prepared, Refused, Settings, Transaction, Trial

DRIVER_VERSION = re.compile(r"(\d+:)?(\d{3}(\.\d+)+)-")
# The folder of the lists, which in a run with a bundle is inside the bundle.
RAW = f"{os.environ.get('GPUPROV_BUNDLE') or '/var/cache/zypp'}/raw"
# Nobody is there to agree to a license: whoever writes the spec has. Recommended packages are left out, as by the other
# managers.
INSTALL = ("install", "--oldpackage", "--no-recommends", "--auto-agree-with-licenses")


class Zypper:
    """See `model.Manager`."""

    name = "zypper"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def prepare(self, max_age: int, check: bool) -> Prepared:
        is_ours = os.path.exists(MARKER)
        changed = rpm_database.rebuild_database(is_ours, check)
        twice = rpm_database.find_twice()
        older = [old for _, each in twice for old in each]
        if twice and not is_ours:
            raise Refused(
                f"{', '.join(name for name, _ in twice)} stand(s) twice in rpm's database: a transaction was cut "
                f"off, and not one of gpuprov; nothing was changed. Fix, on the host: rpm -e --nodeps {' '.join(older)}"
            )
        if twice and not check:
            rpm_database.drop(older)
        changed += [f"remove the older {name}" for name, _ in twice]
        lists = glob.glob(f"{RAW}/*/repodata/repomd.xml")
        fresh = bool(lists) and time.time() - min(map(os.path.getmtime, lists)) <= max_age
        problem = "" if check or fresh else zypper_answer.find_problem(self._zypper(["refresh"], refresh=True))
        if problem and not lists:
            raise Refused(
                f"zypper refresh failed, and the host has no package lists: {shorten_end(problem, 300)}. Fix: "
                "correct what it reports (the network, the host's proxy, or the repository), then apply again"
            )
        warning = f"zypper refresh failed, the older package lists are used: {shorten_end(problem, 300)}"
        return Prepared(changed, [warning] if problem else [])

    def fetch(self, source: str) -> None:
        # Only this one: another that does not answer must not keep it from being used.
        problem = zypper_answer.find_problem(self._zypper(["refresh", "--force", f"gpuprov-{source}"], refresh=True))
        if problem:
            raise Refused(shorten_middle(problem, 600))

    def read(self, names: Sequence[str], related: str = "") -> Known:
        rows = rpm_database.read_rows()
        installed = list_installed(rows)
        beside = [row[1] for row in rows if related and re.match(related, row[3])]
        index = self._offered(list(dict.fromkeys([*names, *beside])))
        held = zypper_locks.list_held(zypper_locks.read(), installed)
        return Known(sorted(rows), installed, index, held, zypper_locks.explain_unheeded())

    def attempt(self, transaction: Transaction) -> Trial:
        ran = self._transaction(transaction, "--dry-run")
        problem = zypper_answer.find_problem(ran)
        rows = zypper_answer.list_changes(zypper_answer.parse_tree(ran))
        return Trial(rows, problem or describe_left_out(transaction, rows, list_installed(rpm_database.read_rows())))

    def download(self, transaction: Transaction) -> str:
        return zypper_answer.find_problem(self._transaction(transaction, "--download-only"))

    def commit(self, transaction: Transaction) -> Done:
        ran = self._transaction(transaction)
        rows = zypper_answer.list_changes(zypper_answer.parse_tree(ran))
        undone = list_undone(rows, rpm_database.read_rows())
        problem = zypper_answer.find_problem(ran)
        if problem or undone:
            return Done("; ".join(filter(None, [problem, *undone])))
        return Done("", zypper_answer.list_failed_scripts(ran))

    def hold(self, hold: Sequence[str], release: Sequence[str], check: bool) -> list[str]:
        if hold and zypper_locks.explain_unheeded():
            raise Refused(f"zypper: {zypper_locks.explain_unheeded()}. Fix: locksfile.apply = yes, then apply again")
        locks = zypper_locks.read()
        named = {zypper_locks.name_of(block) for block in locks}
        whole = zypper_locks.list_held(locks, hold)
        new = [name for name in dict.fromkeys(hold) if name not in whole]
        loose = [name for name in dict.fromkeys(release) if name not in hold and name in named]
        for word, names in (("addlock", new), ("removelock", loose)):
            if names and not check:
                ran = self._zypper([word, "--type", "package", *names])
                if problem := zypper_answer.find_problem(ran):
                    raise Refused(f"zypper {word}: {problem}. Fix: correct what it reports, then apply again")
        if loose and not check:
            zypper_locks.drop(loose)
        return [f"hold {name}" for name in new] + [f"release {name}" for name in loose]

    def files(self, packages: Sequence[str]) -> list[str]:
        ran = self._zypper(["download", *packages])
        paths = {
            f"{result.findtext('solvable/name')}={format_edition(result.find('solvable/edition'))}": str(
                place.get("path")
            )
            for result in zypper_answer.parse_tree(ran).iter("download-result")
            for place in result.iter("localfile")
        }
        for package in packages:
            if not os.path.exists(paths.get(package, "")):
                why = zypper_answer.find_problem(ran) or "it is not among what was downloaded"
                raise Refused(f"{package} cannot be downloaded: {why}. Fix: correct what it reports, then apply again")
        return [paths[package] for package in packages]

    def _offered(self, names: Sequence[str]) -> dict[str, list[str]]:
        if not names:
            return {}
        ran = self._zypper(["search", "--details", "--match-exact", "--type", "package", *names])
        answer = zypper_answer.parse_tree(ran)
        if not zypper_answer.has_no_result(ran, answer) and (problem := zypper_answer.find_problem(ran)):
            raise Refused(f"zypper search: {problem}. Fix: correct what it reports (zypper repos), then apply again")
        return zypper_answer.list_offered(answer, (platform.machine(), "noarch"))

    def _transaction(self, transaction: Transaction, *options: str) -> Ran:
        installed = list_installed(rpm_database.read_rows())
        present = [name for name in transaction.install if name in installed]
        named = {
            re.split("[=:]", spec)[0] for spec in (*transaction.install, *transaction.remove, *transaction.may_remove)
        }
        patterns = transaction.pin.patterns if transaction.pin else ()
        changes = [format_argument(spec) for spec in transaction.install if spec not in present]
        changes += [f"!{spec.partition(':')[0]}" for spec in transaction.remove if spec.partition(":")[0] in installed]
        if not changes:
            return Ran(0, "", "")
        with zypper_locks.lift_locks(named, patterns, self._shut_out(transaction, installed)) as environment:
            return self._zypper([*INSTALL, *options, "--", *changes], environment)

    def _shut_out(self, transaction: Transaction, installed: Mapping[str, str]) -> dict[str, list[str]]:
        """Return offered versions that a pin forbids; not installed ones, which may be removed."""
        if not transaction.pin:
            return {}
        excluded = {}
        for name, versions in self._offered(transaction.pin.patterns).items():
            drivers = [
                (version, DRIVER_VERSION.match(version)) for version in versions if version != installed.get(name)
            ]
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in transaction.pin.patterns):
                excluded[name] = [
                    version for version, match in drivers if match and match[2] != transaction.pin.version
                ]
        return excluded

    def _zypper(
        self, words: Sequence[str], environment: Mapping[str, str] | None = None, *, refresh: bool = False
    ) -> Ran:
        waiting = {"ZYPP_LOCK_TIMEOUT": str(self._settings.lock_timeout)}
        options = ["--non-interactive", "--xmlout", *([] if refresh else ["--no-refresh"])]
        return run(["zypper", *options, *words], {**waiting, **(environment or {})})


def format_argument(spec: str) -> str:
    """Return `NAME:ARCHITECTURE=VERSION` as zypper takes it; a file unchanged."""
    return spec if spec.startswith("/") else re.sub(r"^([^=:]+):([^=]+)", r"\1.\2", spec)


def list_installed(rows: Sequence[Sequence[str]]) -> dict[str, str]:
    """Return versions by name; for a package in several architectures the host's own, for several kernels the
    youngest."""
    native = (platform.machine(), "noarch")
    foreign = {row[1]: row[2] for row in rows if row[4] not in native}
    return {**foreign, **{row[1]: row[2] for row in rows if row[4] in native}}


def describe_left_out(transaction: Transaction, rows: Sequence[str], installed: Mapping[str, str]) -> str:
    """Return what zypper skips silently, such as a version that it does not downgrade to."""
    exact = [spec.partition("=")[::2] for spec in transaction.install if "=" in spec and not spec.startswith("/")]
    plain = [(name.partition(":")[0], version) for name, version in exact]
    lacking = [f"{n}={v}" for n, v in plain if f"Inst {n} {v}" not in rows and installed.get(n) != v]
    return f"it would leave out {', '.join(lacking)}" if lacking else ""


def list_undone(rows: Sequence[str], installed: Sequence[Sequence[str]]) -> list[str]:
    """List what a transaction left undone, judging by rpm's database afterwards."""
    versions = {(row[1], row[2]) for row in installed}
    names = {row[1] for row in installed}
    words = [row.split() for row in rows]
    lacking = [
        f"{row[1]}-{row[2]} is not installed" for row in words if row[0] == "Inst" and (row[1], row[2]) not in versions
    ]
    return lacking + [f"{row[1]} is still installed" for row in words if row[0] == "Remv" and row[1] in names]


def format_edition(element: object) -> str:
    get = getattr(element, "get", lambda *_: "")
    epoch = get("epoch", "0") or "0"
    return f"{'' if epoch == '0' else epoch + ':'}{get('version', '')}-{get('release', '')}"
