"""A gpuprov package source with its trusted key, as one state: tried, written together, or removed."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from typing import Any, Iterator, Sequence, TypedDict

from . import openpgp, source_files, sources
from .packages.apt_files import try_source
from .packages.commands import run, shorten_end
from .packages.dnf import makecache
from .packages.model import Manager, Refused

# Environment variable of a run whose packages come from a bundle: the source is written as in the spec, and not
# queried.
BUNDLE = "GPUPROV_BUNDLE"
UNPROVEN = re.compile("NO_PUBKEY|EXPKEYSIG|BADSIG|not signed|[Ss]ignature|GPG")
PROXIES = {"debian": "Acquire::http::Proxy of apt.conf", "redhat": "proxy of dnf.conf", "suse": "/etc/sysconfig/proxy"}


class Done(TypedDict, total=False):
    """The result of an action."""

    changed: bool
    # The source is still to be written.
    comes: bool
    # As Ansible shows it.
    diff: list[Any]


def settle(manager: Manager, desired: sources.Source, family: str, check: bool, room: str = "") -> Done:
    """Bring the source to its desired state. `key` of it is the key, which the machine that runs Ansible has judged.
    Raises Refused.

    room: the folder in which its index is tried, and stays.
    """
    diffs: list[Any]
    if not desired["url"]:
        gone = remove_files(desired, family, check)
        diffs = [
            {"before": {"path": path, "state": "file"}, "after": {"path": path, "state": "absent"}} for path in gone
        ]
        return {"changed": bool(gone), "comes": False, "diff": diffs}
    planned = plan_files(desired, desired["key"], family)
    if planned["right"]:
        return {"changed": False, "comes": False}
    if not os.environ.get(BUNDLE):
        try_repository(desired, planned, family, room)
    if not check:
        put(manager, desired, planned, family)
    files = [planned["source"], planned["key"]]
    diffs = [
        {
            "before_header": file["path"],
            "after_header": file["path"],
            "before": file["before"] or "",
            "after": file["text"],
        }
        for file in files
    ]
    return {"changed": True, "comes": check, "diff": diffs}


def remove_files(desired: sources.Source, family: str, check: bool) -> list[str]:
    """Remove gpuprov's own files under this name; return the removed files."""
    name = desired["name"]
    gone = [
        path
        for path in (sources.derive_path(name, family), sources.get_key_path(name, family))
        if os.path.lexists(path)
    ]
    for path in () if check else gone:
        os.unlink(path)
    return gone


def plan_files(desired: sources.Source, key: str, family: str) -> sources.Plan:
    """Return what is to be written (see `sources.plan`). Raises Refused if the source is somebody else's."""
    ran = run(["sh", "-c", source_files.SCRIPTS[family] + source_files.END])
    if lost := source_files.find_missing_part(ran.out):
        raise Refused(
            f"{desired['of']}: the package sources could not be read: {lost}. Fix: correct it, then apply again"
        )
    fingerprints = openpgp.judge(key, desired["fingerprint"])["fingerprints"]
    text = openpgp.armour_keys(key, each=family != "debian")
    planned = sources.plan(openpgp.replace_rpm_keys(ran.out), desired, text, fingerprints, family)
    if planned["problem"]:
        raise Refused(f"{desired['of']}: {planned['problem']}. Fix: {planned['fix']}")
    return planned


def try_repository(desired: sources.Source, planned: sources.Plan, family: str, room: str = "") -> None:
    """Fetch the repository's index with this key and no other, without changing the host. Raises Refused."""
    with contextlib.ExitStack() as stack:
        folder = room or stack.enter_context(tempfile.TemporaryDirectory(prefix="gpuprov-source-"))
        os.chmod(folder, 0o755)  # apt reads it as a user of its own
        key = os.path.join(folder, "key.asc")
        _write(key, planned["key"]["text"])
        problem = {"debian": try_apt, "redhat": try_dnf, "suse": try_zypper}[family](folder, key, planned)
    if problem:
        fix = (
            "the key that its owner signs it with now (key_file or key_url, and fingerprint)"
            if UNPROVEN.search(problem)
            else f"fix the URL, the network or the host's proxy ({PROXIES[family]}), or name a mirror that the host "
            "can reach"
        )
        raise Refused(
            f"{desired['of']}: this host cannot use {desired['url']} with the key "
            f"{', '.join(planned['fingerprints'])}; nothing was "
            f"written. {shorten_end(problem, 600)}. Fix: {fix}"
        )


def put(manager: Manager, desired: sources.Source, planned: sources.Plan, family: str) -> None:
    """Write all of it and fetch the lists, or leave everything unchanged. Raises Refused."""
    key, source = planned["key"], planned["source"]
    try:
        os.makedirs(os.path.dirname(key["path"]), mode=0o755, exist_ok=True)
        for file in (key, source):
            _write(file["path"], file["text"])
        # zypper takes no other key than those in rpm's database.
        if planned["imports"]:
            import_key(key["path"])
        if not os.environ.get(BUNDLE):
            manager.fetch(planned["name"])
    except (OSError, Refused) as error:
        for file in (source, key):
            if file["before"] is not None:
                _write(file["path"], file["before"])
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(file["path"])
        raise Refused(
            f"{desired['of']}: {desired['url']} could not be put among the package sources, and was taken away again: "
            f"{shorten_end(str(error), 600)}. Fix: correct what it reports, then apply again"
        ) from error


def import_key(path: str) -> None:
    ran = run(["rpm", "--import", path])
    if ran.status:
        raise Refused(f"rpm --import {path}: {ran.message}")


def _write(path: str, text: str) -> None:
    with tempfile.NamedTemporaryFile(
        "w", dir=os.path.dirname(path), prefix=".gpuprov-", delete=False, encoding="utf-8"
    ) as file:
        file.write(text)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


def try_apt(folder: str, key: str, planned: sources.Plan) -> str:
    return try_source(folder, re.sub(r"(?m)^Signed-By:.*$", f"Signed-By: {key}", planned["source"]["text"]))


def try_dnf(folder: str, key: str, planned: sources.Plan) -> str:
    _write(
        os.path.join(folder, "gpuprov.repo"),
        re.sub(r"(?m)^gpgkey=.*$", f"gpgkey=file://{key}", planned["source"]["text"]),
    )
    options = [f"--setopt=reposdir={folder}", f"--setopt=cachedir={folder}/cache", "--noplugins"]
    return makecache("--disablerepo=*", f"--enablerepo=gpuprov-{planned['name']}", *options, patience=0)


def try_zypper(folder: str, key: str, planned: sources.Plan) -> str:
    """Try it in a separate system, whose rpm knows only this key: zypper asks nobody whether to trust another, and
    refuses it."""
    repos = os.path.join(folder, "root", "etc", "zypp", "repos.d")
    os.makedirs(repos)
    root = os.path.join(folder, "root")
    _write(os.path.join(repos, "gpuprov.repo"), re.sub(r"(?m)^gpgkey=.*\n", "", planned["source"]["text"]))
    problem = _run_and_report(["rpm", "--root", root, "--import", key])
    return problem or _run_and_report(["zypper", "--root", root, "--non-interactive", "refresh", "--force"])


def _run_and_report(argv: Sequence[str]) -> str:
    """Return the error message of a program that failed; "" if it did not."""
    ran = run(argv)
    lines: Iterator[str] = (line.strip() for line in (ran.err + "\n" + ran.out).splitlines())
    return (" ".join(dict.fromkeys(filter(None, lines))) or "no answer") if ran.status else ""
