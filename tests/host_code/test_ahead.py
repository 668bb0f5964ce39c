"""Package sources that are still to be added, seen beside the host's own by the real apt, dnf and zypper. Nothing of it
changes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.software import rpm, zypper
from gpuprov.facts.probes.software.packages import parse_index
from gpuprov.host_code import ahead, bundle, source_files, sources, streams
from gpuprov.host_code.packages import apt_settings, zypper_locks
from gpuprov.host_code.packages.choice import MANAGERS
from gpuprov.host_code.packages.judge import try_transaction
from gpuprov.host_code.packages.model import Manager, Refused, Settings, Transaction
from gpuprov.host_code.sources import Source
from gpuprov.simulate.repository import index
from gpuprov.simulate.repository.signing import Signer
from tests import public_keys
from tests.e2e import package_repository as signed
from tests.e2e.package_repository import Key
from tests.here import program
from tests.host_code import package_repository
from tests.host_code.package_repository import NEW, OLD

ROWS = ["Inst gp-driver 580.20-1", "Inst gp-lib 580.20-1", "Inst gp-user 1.0-1"]
TOP = tempfile.gettempdir()
HAS_DNF = not subprocess.run(["/usr/bin/python3", "-c", "import dnf"], capture_output=True, check=False).returncode
REAL = {
    "debian": pytest.mark.skipif(not shutil.which("apt-ftparchive"), reason="apt-ftparchive is asked"),
    "redhat": pytest.mark.skipif(not (HAS_DNF and shutil.which("dnf")), reason="dnf 4 is not installed"),
    "suse": pytest.mark.skipif(not shutil.which("zypper") or os.getuid() != 0, reason="zypper, as root, is asked"),
}


@dataclass
class Host:
    """A host of this family with a source of its own, in a folder; and a repository that it does not have."""

    family: str
    folder: Path
    url: str
    keys: tuple[Key, Key]
    manager: Manager = field(init=False)

    def __post_init__(self) -> None:
        self.manager = MANAGERS[self.family](Settings(20))

    def block(self, key: Key, **changed: Any) -> Any:
        return {
            "name": "test", "of": "the site", "url": self.url, "suite": "/", "components": [], "signed": "index",
            "fingerprint": key.fingerprint, "key": key.file.read_text(), **changed,
        }  # fmt: skip

    def rows(self, *install: str) -> list[str]:
        return sorted(try_transaction(self.manager, Transaction("it", install)).rows)

    def offered(self, *names: str) -> dict[str, list[str]]:
        """What a probe finds."""
        asked = {
            "debian": f"apt-cache madison {' '.join(names)}", "redhat": rpm.search(*names),
            "suse": zypper.search(*names),
        }  # fmt: skip
        text = streams.unpack_streams(streams.pack_streams(asked[self.family])).decode()
        return dict(parse_index(Output(text)))

    def known(self) -> sources.Host:
        """What is told of its sources."""
        text = streams.unpack_streams(
            streams.pack_streams(source_files.SCRIPTS[self.family] + source_files.END)
        ).decode()
        assert source_files.find_missing_part(text) == ""
        return sources.parse(text)

    def state(self) -> list[str]:
        """All files of the host that a package manager keeps of its sources."""
        own = [self.folder / "host", Path("/etc/apt"), Path("/var/lib/apt"), Path("/var/cache/apt")]
        found = [path for place in own for path in (place, *place.rglob("*"))]
        found = [path for path in found if path.exists() and not re.search(r"rpmdb|zypp\.pid", str(path))]  # locks
        return [f"{path} {path.lstat().st_mtime_ns} {path.lstat().st_size}" for path in sorted(found)]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Key, Key]:
    """The key of the repository, and another."""
    good = signed.make_key(tmp_path_factory.mktemp("keys") / "good")
    signed.end(good)
    bad = Key(tmp_path_factory.mktemp("bad"), public_keys.OTHER_FINGERPRINT)
    bad.file.write_text(public_keys.OTHER)
    return good, bad


@pytest.fixture(scope="module")
def debs(keys: tuple[Key, Key]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gpuprov-test-", dir=TOP) as folder:  # apt reads it as a user of its own
        Path(folder).chmod(0o755)
        package_repository.apt(Path(folder))
        index.apt(Path(folder), index.Release("nobody", "nothing", ""), Signer(keys[0].home))
        yield Path(folder)


@pytest.fixture(scope="module")
def rpms(keys: tuple[Key, Key], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rpms") / "repository"
    package_repository.rpm(folder, shell="-p <lua>")
    Signer(keys[0].home).detached(folder / "repodata/repomd.xml", folder / "repodata/repomd.xml.asc")
    return folder


@pytest.fixture(scope="module")
def updated(keys: tuple[Key, Key], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a source of trusted files, and apt's lists of it."""
    folder = tmp_path_factory.mktemp("updated")
    own, parts, lists = folder / "own", folder / "host/sources.list.d", folder / "host/lists"
    signed.apt(own, keys[0], "stable")
    for made in (parts, lists / "partial"):
        made.mkdir(parents=True)
    (parts / "own.sources").write_text(
        f"Types: deb\nURIs: file:{own}\nSuites: stable\nComponents: main\nTrusted: yes\n"
    )
    settings = (f"Dir::Etc::sourceparts={parts}", f"Dir::State::lists={lists}", "Dir::Cache::pkgcache=")
    words = [word for one in (*settings, "Dir::Cache::srcpkgcache=", "APT::Sandbox::User=root") for word in ("-o", one)]
    subprocess.run(["apt-get", "-qq", *words, "-o", "Dir::Etc::sourcelist=/dev/null", "update"], check=True)
    return folder / "host"


@pytest.fixture
def debian(debs: Path, updated: Path, keys: tuple[Key, Key], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    parts, lists = tmp_path / "host/sources.list.d", tmp_path / "host/lists"
    shutil.copytree(updated, tmp_path / "host")
    monkeypatch.setattr(apt_settings, "SOURCES", str(parts))
    monkeypatch.setattr(ahead, "APT_LISTS", str(lists))
    return Host("debian", tmp_path, f"file:{debs}", keys)


@pytest.fixture
def redhat(rpms: Path, keys: tuple[Key, Key], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    own, host, conf = tmp_path / "own", tmp_path / "host", tmp_path / "dnf.conf"
    signed.rpm(own, keys[0], packages=False, index=False)
    for name in ("repos", "vars"):
        (host / name).mkdir(parents=True)
    (host / "vars/releasever").write_text("9\n")
    (host / "repos/own.repo").write_text(f"[own]\nname=own\nbaseurl=file://{own}\ngpgcheck=0\n")
    folders = {
        "reposdir": host / "repos",
        "varsdir": host / "vars",
        "cachedir": host / "cache",
        "system_cachedir": host / "cache",
    }
    folders |= {name: tmp_path / name for name in ("logdir", "persistdir", "pluginconfpath", "pluginpath")}
    conf.write_text("[main]\n" + "".join(f"{name}={path}\n" for name, path in folders.items()))
    program(tmp_path, "dnf", f'exec {shutil.which("dnf")} --config={conf} --releasever=9 "$@"\n')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(ahead, "DNF_CONF", str(conf))
    subprocess.run(["dnf", "-q", "makecache"], check=True, capture_output=True)
    return Host("redhat", tmp_path, f"file://{rpms}", keys)


@pytest.fixture
def suse(rpms: Path, keys: tuple[Key, Key], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    own, root = tmp_path / "own", tmp_path / "host"
    signed.rpm(own, keys[0], packages=False, index=False)
    (root / "etc/zypp/repos.d").mkdir(parents=True)
    (root / "tmp").symlink_to("/tmp")
    (root / "etc/zypp/repos.d/own.repo").write_text(f"[own]\nname=own\nbaseurl=file://{own}\nenabled=1\ngpgcheck=0\n")
    for name, options in (("zypper", ""), ("rpm", " --dbpath /var/lib/rpm")):
        own_root = f'case "$*" in *--root*) exec /usr/bin/{name} "$@" ;; esac\n'
        program(tmp_path, name, f'{own_root}exec /usr/bin/{name} --root {root}{options} "$@"\n')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(zypper_locks, "CONFIGURATIONS", (str(root / "etc/zypp/zypp.conf"),))
    monkeypatch.setattr(zypper_locks, "LOCKS", str(root / "etc/zypp/locks"))
    monkeypatch.setattr(zypper_locks, "TEMPORARY", "/tmp")
    monkeypatch.setattr(ahead, "ZYPPER_SOURCES", str(root / "etc/zypp/repos.d"))
    monkeypatch.setattr(ahead, "ZYPPER_CACHE", str(root / "var/cache/zypp"))
    subprocess.run(["zypper", "--non-interactive", "refresh"], check=True, capture_output=True)
    return Host("suse", tmp_path, f"file://{rpms}", keys)


PARAMETERS = [
    pytest.param("debian", marks=[REAL["debian"]]),
    *(pytest.param(name, marks=[REAL[name], pytest.mark.install]) for name in ("redhat", "suse")),
]


@pytest.fixture(params=PARAMETERS)
def host(request: pytest.FixtureRequest) -> Host:
    found: Host = request.getfixturevalue(request.param)
    return found


@pytest.fixture(autouse=True)
def room(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files, in which nothing is left; apt reads in it as a user of its own."""
    tmp_path_factory.getbasetemp()
    with tempfile.TemporaryDirectory(prefix="gpuprov-test-", dir=TOP) as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)
        assert [path.name for path in Path(folder).iterdir() if not path.is_symlink()] == []


@pytest.mark.install
def test_a_new_source_is_seen_beside_the_hosts_own_and_nothing_changes(host: Host) -> None:
    before = host.state()
    with ahead.open_sources(host.family) as found:
        answer = found.try_source(host.manager, host.block(host.keys[0]))
        assert answer["comes"]
        with found.seen([]):
            own = f"Inst {signed.NAME} {signed.VERSION}{'' if host.family == 'debian' else '-1'}"
            assert host.rows("gp-user", signed.NAME) == [*ROWS, own]
            old = (f"gp-driver={OLD}-1", f"gp-lib={OLD}-1")
            assert host.rows(*old) == [f"Inst {one.replace('=', ' ')}" for one in old]
            assert host.offered("gp-driver")["gp-driver"] == [f"{NEW}-1", f"{OLD}-1"]
            known = host.known()
        place = sources.derive_path("test", host.family)
        assert known["files"][place] == sources.format_text(host.block(host.keys[0]), host.family)
        assert sources.get_key_path("test", host.family) in known["files"]
        assert host.family == "debian" or sources.has_key(known, host.keys[0].fingerprint)
    assert host.state() == before
    assert not {bundle.AHEAD, source_files.AHEAD, "APT_CONFIG", "ZYPP_CONF"} & set(os.environ)


@pytest.mark.install
def test_a_source_of_another_key_is_refused_and_the_rest_is_seen(host: Host) -> None:
    before = host.state()
    with ahead.open_sources(host.family) as found:
        with pytest.raises(
            Refused, match=r"^the site: this host cannot use .*nothing was written.*Fix: the key that its owner"
        ):
            found.try_source(host.manager, host.block(host.keys[1]))
        assert host.state() == before
        with found.seen([]):
            assert "gp-driver" not in host.offered("gp-driver")
            assert sources.derive_path("test", host.family) not in host.known()["files"]


@pytest.mark.install
@pytest.mark.parametrize("family", ["debian"])
def test_two_capabilities_with_one_repository_share_its_source(family: str, debian: Host) -> None:
    """As when the first of them has added it: apt would refuse two keys for one repository."""
    with ahead.open_sources(family) as found:
        assert found.try_source(debian.manager, debian.block(debian.keys[0]))["changed"]
        assert not found.try_source(debian.manager, debian.block(debian.keys[0], name="other"))["changed"]
        with found.seen([]):
            assert debian.rows("gp-user") == ROWS


@pytest.mark.install
def test_a_source_that_is_to_leave_is_not_seen(debian: Host) -> None:
    (Path(apt_settings.SOURCES) / "own.sources").rename(Path(apt_settings.SOURCES) / "gpuprov-nvidia.sources")
    with ahead.open_sources("debian") as found:
        found.try_source(debian.manager, debian.block(debian.keys[0]))
        with found.seen(["nvidia"]):
            assert signed.NAME not in debian.offered(signed.NAME, "gp-user")


def test_dnf_is_told_of_both_by_settings_of_the_hosts_own(
    keys: tuple[Key, Key], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What dnf would write into is not a link to the host's: it writes through one. Here with a stand-in for it."""
    conf, repos, cache = tmp_path / "dnf.conf", tmp_path / "yum.repos.d", tmp_path / "cache"
    conf.write_text("[main]\nproxy=http://proxy\nproxy_password = 50%\ncachedir=/nowhere\n[inline]\nbaseurl=http://x\n")
    conf.write_text(conf.read_text().replace("/nowhere", str(cache)))
    for place in (
        "os-0/repodata/primary.xml.gz",
        "os-0/packages/a.rpm",
        "os-0/metalink.xml",
        "os.solv",
        "expired_repos.json",
    ):
        (cache / place).parent.mkdir(parents=True, exist_ok=True)
        (cache / place).write_text("x")
    repos.mkdir()
    for name in ("os.repo", "gpuprov-test.repo", "os.repo.rpmsave"):
        (repos / name).write_text("[os]\n")
    monkeypatch.setattr(ahead, "DNF_CONF", str(conf))
    monkeypatch.setattr(ahead, "DNF_SOURCES", (str(repos), str(tmp_path / "none")))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    program(tmp_path, "dnf", 'case "$*" in *makecache*) ;; *) printf "%s\\n" "$@" ;; esac\n')
    host = Host("redhat", tmp_path, "https://mirror.example/x", keys)
    with ahead.open_sources("redhat") as found:
        found.try_source(host.manager, host.block(keys[0]))
        with found.seen([]):
            folder = Path(os.environ[bundle.AHEAD])
            asked = streams.unpack_streams(streams.pack_streams(rpm.search("a*"))).decode().splitlines()
            linked = sorted(
                str(path.relative_to(folder)) for name in ("cache", "repos.d") for path in (folder / name).rglob("*")
            )
            settings = (folder / "dnf.conf").read_text()
            mode = (folder / "dnf.conf").stat().st_mode & 0o777
            new = (folder / "repos.d/gpuprov-test.repo").read_text()
    assert asked[0] == f"--config={folder}/dnf.conf"
    lists = [f"cache/os-0{place}" for place in ("", "/metalink.xml", "/repodata", "/repodata/primary.xml.gz")]
    assert linked == [*lists, "cache/os.solv", "repos.d/gpuprov-test.repo", "repos.d/os.repo"]
    assert "baseurl=https://mirror.example/x" in new
    assert mode == 0o600, "a proxy's password may be in it"
    assert f"reposdir = {folder}/repos.d\n" in settings
    assert f"cachedir = {folder}/cache\n" in settings
    assert "proxy_password = 50%\n" in settings
    assert settings.index("reposdir") < settings.index("[inline]")
    asked = streams.unpack_streams(streams.pack_streams(rpm.search("a*"))).decode().splitlines()
    assert asked[0] == "-q", "no other settings than the host's own where nothing is to be added"


def components(url: str, *, key: Path | None = None) -> Source:
    """A source whose key the host has already, as nvidia_driver asks for Debian's components."""
    signed_by = f"Signed-By: {key}\n" if key else ""
    text = f"# Managed by gpuprov\n\nTypes: deb\nURIs: {url}\nSuites: /\n{signed_by}"
    return {"of": "nvidia_driver", "files": {"/etc/apt/sources.list.d/gpuprov-non-free.sources": text}}


@pytest.mark.install
def test_components_of_an_archive_that_the_host_trusts_are_seen(debian: Host, tmp_path: Path) -> None:
    key = Path(tempfile.gettempdir()) / "key.asc"
    key.write_text(debian.keys[0].file.read_text())
    with ahead.open_sources("debian") as found:
        found.try_source(debian.manager, components(debian.url, key=key))
        with found.seen([]):
            assert debian.rows("gp-user") == ROWS
            assert "/etc/apt/sources.list.d/gpuprov-non-free.sources" in debian.known()["files"]
    key.unlink()


@pytest.mark.install
def test_components_that_the_host_does_not_trust_are_refused(debian: Host) -> None:
    told = r"^nvidia_driver: this host could not fetch the index of /etc/apt/\S+: .*NO_PUBKEY.*Fix"
    with ahead.open_sources("debian") as found, pytest.raises(Refused, match=told):
        found.try_source(debian.manager, components(debian.url))


def test_a_source_that_contradicts_the_hosts_own_is_refused_as_by_apply(debian: Host) -> None:
    """apt would see no source at all, and what is tried of others would fail with it."""
    own = Path(apt_settings.SOURCES) / "own.sources"
    own.write_text(f"{own.read_text()}\nTypes: deb\nURIs: {debian.url}\nSuites: /\nSigned-By: /etc/other.gpg\n")
    key = Path(tempfile.gettempdir()) / "key.asc"
    key.write_text(debian.keys[0].file.read_text())
    with ahead.open_sources("debian") as found:
        found.try_source(debian.manager, components(debian.url, key=key))
        with pytest.raises(Refused, match=r"Conflicting values set for option Signed-By.*Fix"), found.seen([]):
            raise AssertionError
    key.unlink()


@pytest.mark.install
def test_a_server_that_says_nothing_is_given_up(debian: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """apt itself would go on waiting for as long as a byte comes now and then."""
    monkeypatch.setattr(ahead, "SECONDS", 1.0)
    started = time.monotonic()
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server, ahead.open_sources("debian") as found:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        with pytest.raises(Refused, match=rf"^the site: this host could not fetch the index of {url} within 1 s\. Fix"):
            found.try_source(debian.manager, debian.block(debian.keys[0], url=url))
    assert time.monotonic() - started < 10


class Endless(BaseHTTPRequestHandler):
    """Answers everything with a megabyte."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(b"x" * (1 << 20))


def test_an_index_that_is_too_large_is_refused(debian: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """apt itself takes what comes, until the disk is full."""
    monkeypatch.setattr(ahead, "LARGEST", 100_000)
    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server, ahead.open_sources("debian") as found:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(Refused, match=rf"^the site: this host cannot use {url} .*Fix: "):
            found.try_source(debian.manager, debian.block(debian.keys[0], url=url))
        server.shutdown()
        sizes = [path.stat().st_size for path in Path(tempfile.gettempdir()).rglob("*") if path.is_file()]
        assert max(sizes) <= ahead.LARGEST


def test_what_cannot_be_written_for_a_source_is_refused_too(debian: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "LARGEST", 100)
    with (
        ahead.open_sources("debian") as found,
        pytest.raises(Refused, match=r"^the site: .* could not .*File too large\. Fix"),
    ):
        found.try_source(debian.manager, debian.block(debian.keys[0]))


def test_with_a_bundle_a_source_is_told_of_and_not_asked(debian: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its packages are in the bundle, which is all that the package manager sees."""
    monkeypatch.setenv(bundle.VARIABLE, "/var/lib/gpuprov/bundle/one")
    with ahead.open_sources("debian") as found:
        found.try_source(debian.manager, debian.block(debian.keys[0], url="https://mirror.example/x"))
        with found.seen([]):
            assert bundle.AHEAD not in os.environ
            assert sources.derive_path("test", "debian") in debian.known()["files"]


def test_without_room_no_source_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "ROOM", 1 << 60)
    with pytest.raises(Refused, match=r"has \d+ MiB free, and .*Fix: make room there"), ahead.open_sources("debian"):
        raise AssertionError


def test_what_a_killed_run_has_left_goes_and_no_other_folder(room: Path) -> None:
    for name in ("dead", "young"):
        (room / f"{ahead.PREFIX}{name}" / "source-0").mkdir(parents=True)
    (room / "others/source-0").mkdir(parents=True)
    (room / f"{ahead.PREFIX}link").symlink_to(room / "others")
    os.utime(room / f"{ahead.PREFIX}dead", (0, 0))
    with ahead.open_sources("debian"):
        for alive in room.glob(f"{ahead.PREFIX}*"):
            os.utime(alive, (0, 0)) if alive.name[len(ahead.PREFIX) :] not in ("young", "link") else None
        with ahead.open_sources("debian"):
            assert len([*room.iterdir()]) == 5
    assert sorted(path.name for path in room.iterdir()) == [f"{ahead.PREFIX}link", f"{ahead.PREFIX}young", "others"]
    assert (room / "others/source-0").is_dir()
    for name in ("others", f"{ahead.PREFIX}young"):
        shutil.rmtree(room / name)


@pytest.mark.install
def test_what_cannot_be_laid_beside_is_refused(debian: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with ahead.open_sources("debian") as found:
        found.try_source(debian.manager, debian.block(debian.keys[0]))
        monkeypatch.setattr(ahead, "link_missing_files", full)
        with pytest.raises(Refused, match=r"No space left on device\. Fix"), found.seen([]):
            raise AssertionError
