"""Packages with the real zypper, on a system in a folder of its own; and what is made of answers that it did not give
here."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gpuprov.host_code.packages import actions, zypper, zypper_answer, zypper_locks
from gpuprov.host_code.packages.commands import Ran, run
from gpuprov.host_code.packages.judge import commit_transaction, download_packages, try_transaction
from gpuprov.host_code.packages.model import Pin, Refusal, Refused, Settings, Transaction
from gpuprov.host_code.packages.zypper import Zypper
from tests.here import program
from tests.host_code import package_repository
from tests.host_code.package_repository import NEW, OLD
from tests.rows import run_each

REAL = [
    pytest.mark.install,
    pytest.mark.skipif(shutil.which("zypper") is None, reason="zypper is not installed: apt-get install zypper"),
    pytest.mark.skipif(os.getuid() != 0, reason="zypper wants to be root"),
]
BOTH = ("gp-driver", "gp-lib")
OLD_ROWS = [f"Inst gp-driver {OLD}-1", f"Inst gp-lib {OLD}-1"]
NEW_ROWS = [f"Inst gp-driver {NEW}-1", f"Inst gp-lib {NEW}-1"]


LOCKS_OF_DRIVER = [
    f"type: package\n{lock}"
    for lock in (
        "match_type: glob\ncase_sensitive: on\nsolvable_name: gp-driver",
        "match_type: glob\ncase_sensitive: on\nsolvable_name: GP-DRIVER",
        "match_type: glob\ncase_sensitive: off\nsolvable_name: GP-DRIVER",
        "match_type: glob\nsolvable_name: GP-DRIVER",
        "match_type: glob\ncase_sensitive: on\nsolvable_name: gp-driver\nsolvable_arch: noarch",
        "match_type: glob\ncase_sensitive: on\nsolvable_name: gp-driver\nsolvable_arch: x86_64",
        "match_type: glob\ncase_sensitive: on\nsolvable_name: gp-driver\nquery_string: x",
        "match_type: glob\ncase_sensitive: on\nsolvable_name: x\nquery_string: gp-driver",
        "match_type: regex\ncase_sensitive: on\nsolvable_name: ^gp-dri.*",
        "match_type: regex\ncase_sensitive: on\nsolvable_name: driver",
        "match_type: word\ncase_sensitive: on\nsolvable_name: driver",
        "match_type: exact\ncase_sensitive: on\nsolvable_name: gp-*",
        "solvable_name: DRIV",
        "match_type: glob\ncase_sensitive: on\nversion: == 1\nsolvable_name: gp-driver",
        "match_type: glob\ncase_sensitive: on\nsolvable_name: a\nsolvable_name: gp-driver",
    )
]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zypper") / "repository"
    package_repository.rpm(folder, shell="-p <lua>")
    return folder


@pytest.fixture
def manager(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Zypper:
    """zypper for the system in this folder: it and rpm are told where it is, and so is what reads their files."""
    root, tools = tmp_path / "root", tmp_path / "bin"
    (root / "etc/zypp/repos.d").mkdir(parents=True)
    (root / "tmp").symlink_to("/tmp")  # zypper looks inside the root for the file of locks that it is given
    tools.mkdir()
    program(tools, "zypper", f'exec /usr/bin/zypper --root {root} "$@"\n')
    program(tools, "rpm", f'exec /usr/bin/rpm --root {root} --dbpath /var/lib/rpm "$@"\n')
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    monkeypatch.setattr(
        zypper_locks, "CONFIGURATIONS", (str(root / "etc/zypp/zypp.conf"), str(root / "usr/etc/zypp/zypp.conf"))
    )
    monkeypatch.setattr(zypper_locks, "LOCKS", str(root / "etc/zypp/locks"))
    monkeypatch.setattr(zypper_locks, "TEMPORARY", str(tmp_path))
    monkeypatch.setattr(zypper, "RAW", str(root / "var/cache/zypp/raw"))
    (root / "etc/zypp/repos.d/gpuprov-test.repo").write_text(
        f"[gpuprov-test]\nname=test\nbaseurl=file://{repository}\nenabled=1\ngpgcheck=0\n"
    )
    ready = Zypper(Settings(20))
    assert ready.prepare(86400, check=False).warnings == []
    return ready


def done(manager: Zypper, *install: str, remove: tuple[str, ...] = (), may_remove: tuple[str, ...] = ()) -> list[str]:
    """What was changed."""
    wanted = Transaction("it", install, remove, may_remove)
    rows = try_transaction(manager, wanted).rows
    commit_transaction(manager, wanted)
    return rows


def there(manager: Zypper) -> dict[str, str]:
    return manager.read([]).installed


@pytest.mark.install
class TestReal:
    """With the program itself."""

    pytestmark = REAL

    def test_one_set_down_up_held_and_back(self, manager: Zypper) -> None:
        known = manager.read([*BOTH, "nobody-has-this"])
        assert known.index == {name: [f"{NEW}-1", f"{OLD}-1"] for name in BOTH}
        assert (known.installed, known.held, known.lock_problem, known.lock_needs) == ({}, [], "", [])
        old, new = (tuple(f"{name}={version}-1" for name in BOTH) for version in (OLD, NEW))
        assert try_transaction(manager, Transaction("it", new)).rows == NEW_ROWS
        download_packages(manager, Transaction("it", new))
        assert there(manager) == {}, "a trial and a download change nothing"
        assert done(manager, *new) == NEW_ROWS
        assert done(manager, *new) == []
        assert manager.hold(BOTH, [], check=True) == ["hold gp-driver", "hold gp-lib"]
        assert manager.read([]).held == []
        assert manager.hold(BOTH, [], check=False) == ["hold gp-driver", "hold gp-lib"]
        assert manager.hold(BOTH, [], check=False) == []
        assert done(manager, *old) == OLD_ROWS, "held, and back: what is ours may move"
        assert there(manager) == dict.fromkeys(BOTH, f"{OLD}-1")
        assert manager.read([]).held == list(BOTH), "and is held as before"
        assert "<to-upgrade>" not in manager._zypper(["update", "--dry-run"]).out, "nobody's update moves it"
        assert manager.hold([], ["gp-lib", "gp-user"], check=False) == ["release gp-lib"]
        assert manager.read([]).held == ["gp-driver"]
        assert [row[1:5] for row in manager.read([]).rows] == [[name, f"{OLD}-1", name, "noarch"] for name in BOTH]

    @pytest.mark.parametrize("lock", LOCKS_OF_DRIVER)
    def test_a_lock_holds_what_zypper_leaves_alone(self, manager: Zypper, lock: str) -> None:
        done(manager, f"gp-driver={OLD}-1", f"gp-lib={OLD}-1")
        Path(zypper_locks.LOCKS).write_text(f"\n{lock}\n\n")
        moved = manager._zypper(["update", "--dry-run"]).out.partition("<to-upgrade>")[2]
        assert ("gp-driver" in manager.read([]).held) == ('name="gp-driver"' not in moved)
        manager.hold(["gp-driver"], [], check=False)
        assert manager.hold(["gp-driver"], [], check=False) == [], "done again it changes nothing"
        assert "gp-driver" in manager.read([]).held
        manager.hold([], ["gp-driver"], check=False)
        assert manager.hold([], ["gp-driver"], check=False) == []

    def test_somebody_elses_lock_stands(self, manager: Zypper) -> None:
        manager.hold(["gp-lib"], [], check=False)
        before = Path(zypper_locks.LOCKS).read_text()
        with pytest.raises(Refused, match=r"^zypper cannot install it: .*gp-lib.*Fix: correct what it reports"):
            try_transaction(manager, Transaction("it", ("gp-user",)))
        assert Path(zypper_locks.LOCKS).read_text() == before

    def test_what_is_refused(self, manager: Zypper) -> None:
        with pytest.raises(Refused, match="gp-driver=999-1"):
            try_transaction(manager, Transaction("it", ("gp-driver=999-1",)))
        done(manager, "gp-user", "gp-spare")
        with pytest.raises(Refused, match=r"zypper cannot install it: .*conflict"):
            try_transaction(manager, Transaction("it", ("gp-clash",)))
        theirs = Refusal(("gp-(lib|driver)",), "they are mine", "ask me")
        done(manager, remove=("gp-user", "gp-driver", "gp-lib"))
        with pytest.raises(
            Refused, match=r"gp-driver, gp-lib; they are mine\. Nothing was changed or downloaded\. Fix: ask me"
        ):
            try_transaction(manager, Transaction("it", ("gp-user",), refusal=theirs))
        assert there(manager) == {"gp-spare": "1.0-1"}

    def test_one_transaction_removes_and_installs(self, manager: Zypper) -> None:
        done(manager, "gp-user")
        rows = done(manager, "gp-clash", "gp-spare", remove=("gp-driver", "gp-user", "nobody-has-this"))
        assert rows == ["Inst gp-clash 1.0-1", "Inst gp-spare 1.0-1", "Remv gp-driver", "Remv gp-user"]
        assert sorted(there(manager)) == ["gp-clash", "gp-lib", "gp-spare"]

    def test_packages_of_a_pin_come_in_no_other_version(self, manager: Zypper) -> None:
        pin = Pin(OLD, ("gp-lib", "gp-dri*"))
        assert try_transaction(manager, Transaction("it", ("gp-user",), pin=pin)).rows == [
            *OLD_ROWS,
            "Inst gp-user 1.0-1",
        ]
        with pytest.raises(Refused, match="cannot install it"):
            try_transaction(manager, Transaction("it", (f"gp-driver={NEW}-1",), pin=pin))

    def test_a_script_that_fails_is_a_warning(self, manager: Zypper) -> None:
        settled = {
            "action": "settle",
            "of": "it",
            "install": ["gp-fails"],
            "remove": [],
            "may_remove": [],
            "pin": {},
            "refuse": {},
        }
        asked = {**settled, "stream": "", "fix": "", "hold": [], "release": []}
        answer = actions.settle(manager, asked, False)
        assert answer["changes"] == ["Inst gp-fails 1.0-1"]
        assert answer["warnings"][0].startswith("it: all packages are in place, but zypper says: ")
        assert there(manager) == {"gp-fails": "1.0-1"}

    def test_files_of_packages(self, manager: Zypper) -> None:
        found = manager.files([f"gp-lib={OLD}-1", f"gp-driver={NEW}-1"])
        assert [Path(path).name for path in found] == [f"gp-lib-{OLD}.rpm", f"gp-driver-{NEW}.rpm"]
        with pytest.raises(Refused, match="gp-lib=999-1 cannot be downloaded"):
            manager.files(["gp-lib=999-1"])

    def test_lists_that_cannot_be_fetched(self, manager: Zypper, tmp_path: Path) -> None:
        source = tmp_path / "root/etc/zypp/repos.d/gpuprov-test.repo"
        source.write_text(source.read_text().replace("/repository", "/nothing"))
        assert "the older package lists are used" in manager.prepare(-1, check=False).warnings[0]
        with pytest.raises(Refused, match="nothing"):
            manager.fetch("test")

    def test_a_rollback_does_without_a_mirror_that_does_not_answer(
        self, manager: Zypper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "root/etc/zypp/repos.d"
        kept = folder / "gpuprov-kept.repo"
        text = (folder / "gpuprov-test.repo").read_text()
        (folder / "gpuprov-test.repo").write_text(text.replace("file:///", "http://127.0.0.1:9/"))
        shutil.rmtree(tmp_path / "root/var/cache/zypp")
        with pytest.raises(Refused, match=r"zypper search: .*127"):
            manager.read(["gp-lib"])
        kept.write_text(text.replace("gpuprov-test", "gpuprov-kept"))
        monkeypatch.setattr(zypper_answer, "KEPT", str(kept))
        manager.fetch("kept")
        assert "the older package lists are used" in manager.prepare(-1, check=False).warnings[0]
        assert manager.read(["gp-lib"]).index == {"gp-lib": [f"{NEW}-1", f"{OLD}-1"]}
        assert manager.read(["nobody-has-this"]).index == {}
        for lacking in (("nobody-has-this",), ("gp-spare", "nobody-has-this")):
            with pytest.raises(Refused, match=r"No provider of 'nobody-has-this' found"):
                try_transaction(manager, Transaction("it", lacking))
        assert done(manager, *(f"{name}={OLD}-1" for name in BOTH)) == OLD_ROWS
        assert manager.hold(BOTH, [], check=False) == ["hold gp-driver", "hold gp-lib"]

    def test_what_is_there_twice(
        self, manager: Zypper, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        done(manager, f"gp-lib={OLD}-1")
        ran = run(["rpm", "-i", "--justdb", "--nodeps", "--force", str(repository / f"gp-lib-{NEW}.rpm")])
        assert ran.status == 0, ran
        with pytest.raises(
            Refused, match=rf"^gp-lib stand\(s\) twice .*Fix, on the host: rpm -e --nodeps gp-lib-{OLD}-1\.noarch"
        ):
            manager.prepare(86400, check=False)
        monkeypatch.setattr(zypper, "MARKER", str(tmp_path))
        assert manager.prepare(86400, check=True).changed == ["remove the older gp-lib"]
        assert manager.prepare(86400, check=False).changed == ["remove the older gp-lib"]
        assert there(manager) == {"gp-lib": f"{NEW}-1"}

    def test_a_package_without_a_signature(self, manager: Zypper, tmp_path: Path) -> None:
        source = tmp_path / "root/etc/zypp/repos.d/gpuprov-test.repo"
        source.write_text(source.read_text().replace("gpgcheck=0", "gpgcheck=1"))
        with pytest.raises(Refused, match="could not be downloaded, nothing was changed"):
            download_packages(manager, Transaction("it", ("gp-spare",)))
        assert there(manager) == {}


def test_a_configuration_that_libzypp_merges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, vendor = tmp_path / "etc/zypp.conf", tmp_path / "usr/zypp.conf"
    for path, text in (
        (vendor, "[main]\nsolver.onlyRequires = true\n"),
        (vendor.with_name("zypp.conf.d") / "10.conf", "[main]\nlocksfile.path = /vendor\nmultiversion = a\n"),
        (own.with_name("zypp.conf.d") / "10.conf", "[main]\nlocksfile.path = /own\n"),
        (own.with_name("zypp.conf.d") / "20.conf", "[main]\nlocksfile.apply = no\n"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(zypper_locks, "CONFIGURATIONS", (str(own), str(vendor)))
    assert dict(zypper_locks.read_settings()["main"]) == {
        "solver.onlyrequires": "true", "locksfile.path": "/own", "locksfile.apply": "no"
    }  # fmt: skip
    assert zypper_locks.find_path() == "/own"
    assert "locksfile.apply" in zypper_locks.explain_unheeded()
    with pytest.raises(Refused, match=r"locksfile\.apply = yes"):
        Zypper(Settings()).hold(["a"], [], check=True)


LOCKED = """
type: package
match_type: glob
case_sensitive: on
solvable_name: nvidia-*

type: package
version: >= 3:580
match_type: glob
case_sensitive: on
solvable_name: gp-lib

type: pattern
match_type: glob
case_sensitive: on
solvable_name: gp-driver

type: package
match_type: glob
case_sensitive: on
solvable_name: gp-user
"""


def test_whose_a_lock_is() -> None:
    blocks = zypper_locks.split_blocks(LOCKED)
    assert [zypper_locks.name_of(block) for block in blocks] == ["", "gp-lib", "", "gp-user"]
    assert zypper_locks.list_held(blocks, ["nvidia-smi", "gp-lib", "gp-driver", "gp-user", "bash"]) == [
        "gp-user",
        "nvidia-smi",
    ]


@run_each(
    ("status", "out", "err", "problem"),
    [
        (0, "", "", ""),
        (102, "", "", ""),
        (107, "", "", ""),
        (
            7,
            "",
            "System management is locked by the application with pid 7 (zypper).",
            "locked by the application with pid 7",
        ),
        (
            8,
            "<?xml version='1.0'?><stream><message type='error'>Installation failed</message></stream>",
            "",
            "Installation failed",
        ),
        (
            104,
            "<?xml version='1.0'?><stream>"
            + f"<message type='error'>Failed to connect to {'mirror' * 50}</message>" * 5
            + "<message type='error'>No provider of 'nvidia-gl' found.</message></stream>",
            "",
            "No provider of 'nvidia-gl' found.",
        ),
        (127, "", "zypper: No such file or directory", "No such file"),
        (4, "<?xml version='1.0'?><stream><mess", "", "<mess"),
    ],
)
def test_how_zypper_ends(status: int, out: str, err: str, problem: str) -> None:
    said = zypper_answer.find_problem(Ran(status, out, err))
    assert bool(said) == bool(problem)
    assert problem in said
    assert not problem or said.endswith(f"(zypper ends with status {status})")


def test_scripts_that_failed() -> None:
    """As rpm 4.14 says it inside of zypper's message; libzypp finds some of them itself (status 107), and not
    others."""
    failed = "warning: %post(a-1) scriptlet failed, exit status 3"
    said = f"<?xml version='1.0'?><stream><message type='info'>Additional rpm output:\n{failed}\n</message></stream>"
    assert zypper_answer.list_failed_scripts(Ran(107, said, "")) == [failed]
    assert zypper_answer.list_failed_scripts(Ran(107, "", "")) == [
        "a script of a package failed: see /var/log/zypp/history"
    ]
    assert zypper_answer.list_failed_scripts(Ran(0, said.replace("failed", "done"), "")) == []
