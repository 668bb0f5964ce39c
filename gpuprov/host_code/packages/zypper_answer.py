"""Parser of zypper's --xmlout output: the changes of a transaction, the packages on offer, and errors."""

from __future__ import annotations

import os
import re
from xml.etree import ElementTree

from .commands import Ran, shorten_middle

# https://github.com/openSUSE/zypper/blob/master/doc/zypper.8.txt, exit codes
NOT_FOUND, SKIPPED, SCRIPT_FAILED = 104, 106, 107
# Exit statuses of success: also if a reboot or a second run is required, or a script failed after its package was
# installed.
FINE = frozenset((0, 102, 103, SCRIPT_FAILED))
# Exists while a rollback offers the files of a checkpoint: repositories whose mirror does not answer are then skipped.
KEPT = "/etc/zypp/repos.d/gpuprov-kept.repo"


def parse_tree(ran: Ran) -> ElementTree.Element:
    """Parse the answer; empty if there is none."""
    try:
        return ElementTree.fromstring(ran.out[max(ran.out.find("<?xml"), 0) :])
    except ElementTree.ParseError:
        return ElementTree.Element("stream")


def list_changes(answer: ElementTree.Element) -> list[str]:
    """Return the rows of a summary, `Inst NAME VERSION` and `Remv NAME`."""
    rows = []
    for group in answer.iterfind("install-summary/*"):
        for solvable in group.iterfind("solvable"):
            name = solvable.get("name", "")
            if solvable.get("type", "package") == "package":
                going = group.tag == "to-remove"
                rows.append(f"Remv {name}" if going else f"Inst {name} {solvable.get('edition', '')}")
    return sorted(rows)


def list_offered(answer: ElementTree.Element, archs: tuple[str, ...]) -> dict[str, list[str]]:
    """Return versions by name, newest first, as zypper sorts them."""
    offered: dict[str, list[str]] = {}
    for solvable in answer.iter("solvable"):
        name, edition = solvable.get("name", ""), solvable.get("edition", "")
        available = solvable.get("arch") in archs and solvable.get("repository") != "(System Packages)"
        if name and available and edition not in offered.setdefault(name, []):
            offered[name].append(edition)
    return {name: versions for name, versions in offered.items() if versions}


def list_failed_scripts(ran: Ran) -> list[str]:
    """Return scripts of packages that failed although the packages are installed, in rpm's words."""
    lines = (line for each in parse_tree(ran).iter("message") for line in (each.text or "").splitlines())
    # warning: %post(a-1) scriptlet failed, exit status 3
    failed = [line.strip() for line in lines if re.search(r"script(let)? failed", line)]
    return failed or (
        ["a script of a package failed: see /var/log/zypp/history"] if ran.status == SCRIPT_FAILED else []
    )


def list_errors(answer: ElementTree.Element) -> list[str]:
    """List zypper's error messages, such as about a repository it cannot read."""
    return [each.text or "" for each in answer.iter("message") if each.get("type") == "error"]


def has_no_result(ran: Ran, answer: ElementTree.Element) -> bool:
    """Return whether a search had no results, in all relevant repositories."""
    return ran.status == NOT_FOUND and (os.path.exists(KEPT) or not list_errors(answer))


def find_problem(ran: Ran) -> str:
    """Return the reason why the command failed; "" if it did not."""
    if ran.status in FINE or (ran.status == SKIPPED and os.path.exists(KEPT)):
        return ""
    answer = parse_tree(ran)
    messages = list_errors(answer)
    messages += [each.text or "" for prompt in answer.iter("prompt") for each in prompt.iterfind("description")]
    words = shorten_middle(" ".join(messages) or ran.err or " ".join(ran.lines[-6:]), 900)
    return f"{words} (zypper ends with status {ran.status})"
