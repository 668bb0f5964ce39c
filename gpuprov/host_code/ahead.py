"""Package managers as they will be with package sources that are still to be added.

The index of each such source is fetched into a separate folder, and verified before the source is written. The host's
own sources and lists are linked beside it; they and the caches stay unchanged. The folder is deleted at the end.
"""

from __future__ import annotations

import configparser
import contextlib
import fcntl
import glob
import os
import re
import resource
import shutil
import signal
import tempfile
import time
from typing import Any, Callable, Iterator, Mapping, Sequence

from . import bundle, openpgp, repository, source_files, sources
from .packages import apt_files, apt_settings, zypper_locks
from .packages.commands import shorten_end
from .packages.model import Manager, Refused

PREFIX = "gpuprov-ahead-"
# Maximum number of seconds for the complete index of a source.
SECONDS = 120.0
# Maximum size of one file of an index, in bytes.
LARGEST = 512 << 20
# Minimum free space for it, in bytes.
ROOM = 512 << 20
# Seconds after which an unused folder is considered a leftover of a killed run.
OLD = 3600
APT_LISTS = "/var/lib/apt/lists"
DNF_CONF = "/etc/dnf/dnf.conf"
DNF_SOURCES = ("/etc/yum.repos.d", "/etc/yum/repos.d", "/etc/distro.repos.d")
DNF_CACHE = "/var/cache/dnf"
ZYPPER_SOURCES = "/etc/zypp/repos.d"
ZYPPER_CACHE = "/var/cache/zypp"


class Ahead:
    """Sources that are still to be added, in this folder."""

    def __init__(self, folder: str, family: str) -> None:
        self._folder, self._family = folder, family
        self._listing = os.path.join(folder, "told")
        self._rooms: dict[str, str] = {}

    def try_source(self, manager: Manager, desired: sources.Source) -> repository.Done:
        """Verify a source; return the answer of `repository.settle` in check mode. Raises Refused, also if it is late
        or too large.

        """
        room = os.path.join(self._folder, f"source-{len(os.listdir(self._folder))}")
        os.mkdir(room, 0o755)
        named = desired["url"] if "url" in desired else ", ".join(desired["files"])
        what = f"{desired['of']}: this host could not fetch the index of {named}"
        with limit_time_and_size(what):
            if "files" in desired:
                result = self._try_files(what, desired["files"], room)
            else:
                result = repository.settle(manager, desired, self._family, True, room)
        if result["changed"]:
            self._rooms[os.path.basename(result["diff"][0]["after_header"])] = room
            self._tell(result["diff"])
        return result

    @contextlib.contextmanager
    def seen(self, without: Sequence[str]) -> Iterator[None]:
        """Context in which apt, dnf and zypper see the verified sources beside the host's own, except gpuprov's of the
        names in `without`. Raises Refused if that is impossible."""
        more: dict[str, str] = {}
        # A run with a bundle sees that alone, whatever sources there are.
        if self._rooms and not os.environ.get(bundle.VARIABLE):
            made: dict[str, Callable[[Sequence[str]], dict[str, str]]]
            made = {"debian": self._apt, "redhat": self._dnf, "suse": self._zypper}
            try:
                more = {**made[self._family](without), bundle.AHEAD: self._folder}
            except (OSError, configparser.Error, Refused) as error:
                raise Refused(
                    f"the package lists of this host could not be laid beside those of a new source: {error}. Fix: "
                    "correct that; apply decides when the source is there"
                ) from error
        with set_environment(more):
            yield

    def _try_files(self, what: str, files: Mapping[str, str], room: str) -> repository.Done:
        ((path, text),) = files.items()
        if not os.environ.get(bundle.VARIABLE) and (problem := apt_files.try_source(room, text)):
            raise Refused(f"{what}: {shorten_end(problem, 600)}. Fix: correct what it reports; apply tries it again")
        return {"changed": True, "comes": True, "diff": [{"after_header": path, "after": text}]}

    def _tell(self, files: Sequence[Any]) -> None:
        """Make the reader of a host's sources (`source_files`) report the source and its key as if they existed."""
        lines = []
        for file in files:
            lines += [f"@file {file['after_header']}", *(f" {line}" for line in file["after"].splitlines())]
        if self._family != "debian":  # the key is the last of the two
            lines += [
                f"@rpmkey {public_key.fingerprint.lower()}-0" for public_key in openpgp.parse_keys(files[-1]["after"])
            ]
        with open(self._listing, "a", encoding="utf-8") as stream:
            stream.write("".join(f"{line}\n" for line in lines))

    def _apt(self, without: Sequence[str]) -> dict[str, str]:
        parts, lists = self._made("sources.list.d"), self._made("lists")
        hidden = {os.path.basename(apt_settings.name_source(name)) for name in without}
        for name, room in self._rooms.items():
            os.symlink(os.path.join(room, "gpuprov.sources"), os.path.join(parts, name))
            link_missing_files(os.path.join(room, "lists"), lists)
        link_missing_files(apt_settings.SOURCES, parts, lambda path: os.path.basename(path) not in hidden)
        link_missing_files(APT_LISTS, lists)
        settings = {
            "Dir::Etc::sourceparts": parts,
            "Dir::State::lists": lists,
            "APT::Get::List-Cleanup": "0",
            "Dir::Cache::pkgcache": f"{self._folder}/pkgcache.bin",
            "Dir::Cache::srcpkgcache": f"{self._folder}/srcpkgcache.bin",
        }
        path = os.path.join(self._folder, "apt.conf")
        _write(path, "".join(f'{name} "{value}";\n' for name, value in settings.items()))
        apt_files.judge_sources({"APT_CONFIG": path})
        return {"APT_CONFIG": path}

    def _dnf(self, without: Sequence[str]) -> dict[str, str]:
        settings = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True, delimiters=("=",))
        with contextlib.suppress(FileNotFoundError), open(DNF_CONF, encoding="utf-8", errors="surrogateescape") as file:
            settings.read_file(file, DNF_CONF)
        if not settings.has_section("main"):
            settings.add_section("main")
        main, repos, cache = settings["main"], self._made("repos.d"), self._made("cache")
        for name, room in self._rooms.items():
            os.symlink(os.path.join(room, "gpuprov.repo"), os.path.join(repos, name))
            link_missing_files(os.path.join(room, "cache"), cache, _is_list_of_dnf)
        for folder in filter(None, re.split(r"[\s,]+", main.get("reposdir") or " ".join(DNF_SOURCES))):
            link_missing_files(folder, repos, lambda path: path.endswith(".repo"))
        link_missing_files(main.get("cachedir") or main.get("system_cachedir") or DNF_CACHE, cache, _is_list_of_dnf)
        main.update({"reposdir": repos, "cachedir": cache, "system_cachedir": cache})
        self._settings("dnf.conf", settings)
        return {}

    def _zypper(self, without: Sequence[str]) -> dict[str, str]:
        settings = zypper_locks.read_settings()
        if not settings.has_section("main"):
            settings.add_section("main")
        main, repos, raw, solv = settings["main"], self._made("repos.d"), self._made("raw"), self._made("solv")
        for name, room in self._rooms.items():
            os.symlink(os.path.join(room, "root/etc/zypp/repos.d/gpuprov.repo"), os.path.join(repos, name))
            link_missing_files(os.path.join(room, "root/var/cache/zypp/raw"), raw)
            link_missing_files(os.path.join(room, "root/var/cache/zypp/solv"), solv)
        caches = main.get("cachedir") or ZYPPER_CACHE
        link_missing_files(main.get("reposdir") or ZYPPER_SOURCES, repos)
        link_missing_files(main.get("metadatadir") or f"{caches}/raw", raw)
        link_missing_files(main.get("solvfilesdir") or f"{caches}/solv", solv)
        main.update({"reposdir": repos, "metadatadir": raw, "solvfilesdir": solv})
        return {"ZYPP_CONF": self._settings("zypp.conf", settings)}

    def _made(self, name: str) -> str:
        path = os.path.join(self._folder, name)
        os.mkdir(path, 0o755)
        return path

    def _settings(self, name: str, settings: configparser.ConfigParser) -> str:
        path = os.path.join(self._folder, name)
        # A proxy's password may be in it.
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            settings.write(file)
        return path


@contextlib.contextmanager
def open_sources(family: str) -> Iterator[Ahead]:
    """Yield a folder for such sources, and delete it; also delete those of killed runs. Raises Refused if there is not
    enough space."""
    place = tempfile.gettempdir()
    _remove_leftovers(place)
    free = shutil.disk_usage(place).free
    if free < ROOM:
        raise Refused(
            f"{place} has {free >> 20} MiB free, and the index of a new package source may take {ROOM >> 20}. Fix: "
            "make room there"
        )
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.chmod(folder, 0o755)  # apt reads it as a user of its own
            with set_environment({source_files.AHEAD: os.path.join(folder, "told")}):
                yield Ahead(folder, family)
        finally:
            os.close(lock)


def _remove_leftovers(place: str) -> None:
    """Remove this user's folders that no process has locked, except one that may be about to be locked."""
    for path in glob.glob(os.path.join(glob.escape(place), f"{PREFIX}*")):
        with contextlib.suppress(OSError):
            folder = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
            try:
                state = os.fstat(folder)
                if state.st_uid == os.geteuid() and time.time() - state.st_mtime > OLD:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(folder)


def _is_list_of_dnf(path: str) -> bool:
    """Return whether dnf replaces this file of its cache, and never writes into it."""
    folder, name = os.path.split(path)
    return (
        os.path.basename(folder) == "repodata"
        or name.startswith(("metalink", "mirrorlist", "pubring"))
        or ".solv" in name
    )


def link_missing_files(source: str, target: str, is_selected: Callable[[str], bool] = lambda _: True) -> None:
    """Link the files below a folder into folders with the same names; skip existing ones."""
    for folder, _, names in os.walk(source):
        destination = os.path.normpath(os.path.join(target, os.path.relpath(folder, source)))
        for name in names:
            path, place = os.path.join(folder, name), os.path.join(destination, name)
            if is_selected(path) and not os.path.lexists(place):
                os.makedirs(destination, mode=0o755, exist_ok=True)
                os.symlink(os.path.abspath(path), place)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


@contextlib.contextmanager
def limit_time_and_size(what: str) -> Iterator[None]:
    """Context in which nothing takes longer, and no program writes a larger file, than permitted for an index. Raises
    Refused with what could not be done."""

    def end(*_: object) -> None:
        raise Refused(
            f"{what} within {SECONDS:.0f} s. Fix: a mirror that the host reaches faster; apply waits for it longer"
        )

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    bounds = [limit for limit in (soft, hard, LARGEST) if limit != resource.RLIM_INFINITY]
    before = signal.signal(signal.SIGALRM, end)
    resource.setrlimit(resource.RLIMIT_FSIZE, (min(bounds), hard))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    except OSError as error:
        raise Refused(f"{what}: {error.strerror or error}. Fix: correct that; apply tries it again") from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def set_environment(more: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
