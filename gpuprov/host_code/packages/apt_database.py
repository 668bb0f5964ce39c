"""The state of dpkg's database and of apt's lists, checked and fixed before any decision relies on them."""

from __future__ import annotations

import glob
import os
import time

from ..driver import aside
from . import half_configured
from .apt_files import wait_and_fetch
from .commands import run, shorten_end
from .model import MARKED, MARKER, Prepared, Refused

LISTS = "/var/lib/apt/lists"
QUIETLY = {"DEBIAN_FRONTEND": "noninteractive", "autoinstall_all_kernels": "1"}


def prepare(patience: int, max_age: int, check: bool) -> Prepared:
    """See `model.Manager`."""
    waiting = ["-o", f"DPkg::Lock::Timeout={patience}"]
    changed = repair_database(waiting, check)
    has_lists = bool(glob.glob(f"{LISTS}/*_Packages*"))
    if check or (has_lists and compute_age(LISTS) <= max_age):
        return Prepared(changed)
    problem = shorten_end(wait_and_fetch(update_lists, patience), 300)
    if problem and not has_lists:
        raise Refused(
            f"apt-get update failed, and the host has no package lists: {problem}. Fix: correct what it reports (the "
            "network, the host's proxy, or the archive), then apply again"
        )
    warning = f"apt-get update failed, the older package lists are used: {problem}"
    return Prepared(changed, [warning] if problem else [])


def update_lists() -> str:
    """Fetch the lists of all sources; return the problem."""
    ran = run(["apt-get", "-qq", "-o", "APT::Update::Error-Mode=any", "update"])
    return (ran.err.strip() or f"apt-get update ends with status {ran.status}") if ran.status else ""


def repair_database(waiting: list[str], check: bool) -> list[str]:
    """Complete an interrupted apply. Raises Refused for problems that it cannot fix, or that are not gpuprov's."""
    # apt-get check waits for another apt to finish, so that nobody's work looks half done.
    checked, audit = run(["apt-get", "-qq", *waiting, "check"]), run(["dpkg", "--audit"]).out
    if not checked.status and not audit.strip():
        return []
    names = half_configured.parse_audit(audit)
    complaint = half_configured.describe_packages(names) if names else shorten_end(f"{audit} {checked.err}", 300)
    fix = f"Fix, on the host: {half_configured.describe_fix(names)}"
    if not os.path.exists(MARKER):
        raise Refused(
            "the package database is broken (dpkg or apt-get check complains), and not by gpuprov; nothing was "
            f"changed: {complaint}. {fix}"
        )
    if half_configured.needs_answer(names):
        raise Refused(
            f"the package database is broken, and no run may repair it; nothing was changed: {complaint}. {fix}"
        )
    if check:
        return [f"repair {complaint}"]
    aside.clear("debian", damaged=True)  # what a package's scriptlet would load
    for argv in (
        ["dpkg", "--configure", "-a", "--force-confdef", "--force-confold"],
        ["apt-get", "-qq", "-y", "-f", *waiting, "--allow-downgrades", "--allow-change-held-packages", "install"],
    ):
        ran = run(argv, QUIETLY)
        if ran.status:
            raise Refused(
                f"the package database is broken since {MARKED}, and cannot be repaired: {complaint}: "
                f"{' '.join(ran.err.splitlines()[:6])}. {fix}"
            )
    return [f"repair {complaint}"]


def compute_age(path: str) -> float:
    return time.time() - os.stat(path).st_mtime
