"""Lists of one of apt's sources, and files of packages."""

from __future__ import annotations

import glob
import os
import time
from typing import Callable, Mapping

from .apt_settings import name_source
from .commands import run, shorten_end
from .model import Refused

ARCHIVES = "/var/cache/apt/archives"
SECONDS = 30
PAUSE = 2.0


def update(listed: str, *options: str) -> str:
    """Fetch the lists of the sources in this file alone; return the problem."""
    settings = {
        "Acquire::http::Timeout": SECONDS,
        "Acquire::https::Timeout": SECONDS,
        "Acquire::Retries": 1,
        "Acquire::Languages": "none",
        "APT::Update::Error-Mode": "any",
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::sourcelist": listed,
    }
    words = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    ran = run(["apt-get", "-qq", *words, *options, "update"])
    return (ran.message or f"apt-get update ends with status {ran.status}") if ran.status else ""


def try_source(folder: str, text: str) -> str:
    """Fetch the lists of a source that the host does not have into this folder; return the problem. The source stays
    there, too."""
    lists, listed = os.path.join(folder, "lists"), os.path.join(folder, "gpuprov.sources")
    os.makedirs(os.path.join(lists, "partial"))
    with open(listed, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(listed, 0o644)
    options = ("-o", f"Dir::State::lists={lists}", "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=")
    return update(listed, *options)


def wait_and_fetch(fetching: Callable[[], str], patience: float) -> str:
    """Retry fetching lists while their lock is taken, which DPkg::Lock::Timeout does not cover; return the remaining
    problem."""
    until = time.monotonic() + patience
    while "Could not get lock" in (problem := fetching()) and time.monotonic() < until:
        time.sleep(PAUSE)
    return problem


def fetch(name: str, patience: int) -> None:
    """Fetch the lists of gpuprov's source of this name; the others stay unchanged. Raises Refused."""
    if problem := wait_and_fetch(lambda: update(name_source(name), "-o", "APT::Get::List-Cleanup=0"), patience):
        raise Refused(shorten_end(problem, 600))
    judge_sources({})


def judge_sources(environment: Mapping[str, str]) -> None:
    """Raise Refused if one source contradicts another, which leaves apt without any."""
    together = run(["apt-get", "indextargets"], environment)
    if together.status:
        raise Refused(shorten_end(together.err, 600))


def fetch_file(package: str, environment: Mapping[str, str]) -> str:
    """Return the file of `NAME=VERSION` in apt's archives, downloaded if necessary. Raises Refused."""
    name, _, version = package.partition("=")
    folder = os.path.realpath(ARCHIVES)
    form = os.path.join(glob.escape(folder), glob.escape(f"{name}_{version.replace(':', '%3a')}_") + "*.deb")
    if not glob.glob(form):
        ran = run(["apt-get", "-qq", "download", package], environment, folder=folder)
        if ran.status:
            raise Refused(
                f"{package} cannot be downloaded: {shorten_end(ran.message, 300)}. Fix: correct what it reports, "
                "then apply again"
            )
    paths = sorted(glob.glob(form))
    if not paths:
        raise Refused(
            f"{package} is not among the packages in {folder}. Fix: apt-get clean on the host, then apply again"
        )
    return paths[0]
