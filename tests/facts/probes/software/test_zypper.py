"""What zypper and libzypp's files say: offers, locks, sources. The XML is what zypper 1.14 prints."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.host import family
from gpuprov.facts.probes.software import packages, zypper
from gpuprov.host_code import sources
from gpuprov.host_code.packages import zypper_locks
from gpuprov.host_code.sources import Source
from tests.rows import run_each

ROW = '<solvable status="{}" name="{}" kind="{}" edition="{}" arch="{}" repository="{}"/>\n'
ROWS = [
    "installed nvidia-common-G06 package 580.95.05-1 x86_64 (System Packages)",
    "other-version nvidia-common-G06 package 580.105.08-1 x86_64 cuda-sles15",
    "not-installed nvidia-open-driver-G06 package 3:580.95.05-1 noarch cuda-sles15",
    "not-installed nvidia-common-G06 package 580.105.08-1 aarch64 cuda-sles15",
    "not-installed nvidia-common-G06 srcpackage 580.95.05-1 x86_64 cuda-sles15",
]
XML = """<?xml version='1.0'?>
<stream>
<message type="info">Loading repository data...</message>
<search-result version="0.0">
<solvable-list>
{rows}</solvable-list>
</search-result>
</stream>
""".format(rows="".join(ROW.format(*row.split(maxsplit=5)) for row in ROWS))
LOCKED = """<?xml version='1.0'?>
<stream>
<message type="error">System management is locked by the application with pid 4711 (zypper).</message>
</stream>
"""
REPO = "[cuda-sles15]\nname=x\nenabled=1\nbaseurl=https://example.com/\n\n[off]\nenabled=0\nbaseurl=https://example.com/off\n"
LOCKS = """
type: package
match_type: glob
case_sensitive: on
solvable_name: nvidia-*-G06

type: package
match_type: exact
case_sensitive: on
solvable_name: libnvidia-ml
version: > 580.95.05

type: package
match_type: glob
case_sensitive: on
repo: repo-oss
solvable_name: dkms
"""
RPMS = "".join(
    f"rpm|{name}|0|580.95.05|1|x86_64|{name}-580.95.05-1.src.rpm\n"
    for name in ("nvidia-common-G06", "libnvidia-ml", "dkms", "nvidia-persistenced")
)


def searched(tmp_path: Path, xml: str, *fetched: str) -> subprocess.CompletedProcess[str]:
    """The search on a host with these fetched repositories, whose zypper prints this and writes down what it was
    given."""
    (tmp_path / "zypp/repos.d").mkdir(parents=True, exist_ok=True)
    (tmp_path / "zypp/repos.d/x.repo").write_text(REPO, encoding="utf-8")
    (tmp_path / "answer").write_text(xml, encoding="utf-8")
    for alias in fetched:
        (tmp_path / "solv" / alias).mkdir(parents=True, exist_ok=True)
        (tmp_path / "solv" / alias / "solv").touch()
    script = zypper.search("*nvidia*").replace("/var/cache/zypp", str(tmp_path))
    script = script.replace("/etc/zypp", f"{tmp_path}/zypp").replace("$(uname -m)", "x86_64")
    stub = f'zypper() {{ echo "$@" > {tmp_path}/asked; cat {tmp_path}/answer; }}\n'
    return subprocess.run(["sh", "-c", stub + script], capture_output=True, text=True, check=True)


def test_versions_that_repositories_offer(tmp_path: Path) -> None:
    done = searched(tmp_path, XML, "cuda-sles15", "off", "@System", "gone")
    index = packages.parse_index(Output(done.stdout, done.returncode, done.stderr))
    assert index == {"nvidia-common-G06": ["580.105.08-1"], "nvidia-open-driver-G06": ["3:580.95.05-1"]}
    asked = (tmp_path / "asked").read_text(encoding="utf-8").split()
    assert asked[-3:] == ["-r", "cuda-sles15", "*nvidia*"], "neither what is off, nor what has no file any more"
    assert "--no-refresh" in asked


def test_what_was_never_fetched_is_not_fetched(tmp_path: Path) -> None:
    done = searched(tmp_path, XML)
    assert done.stdout == ""
    assert not (tmp_path / "asked").exists()
    assert "name no package" in packages.parse_index(Output("")).complaint


def test_another_zypper_at_work_is_told(tmp_path: Path) -> None:
    done = searched(tmp_path, LOCKED, "cuda-sles15")
    index = packages.parse_index(Output(done.stdout, done.returncode, done.stderr))
    assert index.busy
    assert "pid 4711" in index.complaint


def test_a_lock_of_a_name_alone_holds() -> None:
    """A lock of versions lets the others through, a lock of a repository those of the others."""
    rows = "".join(f"lock|{line}\n" for line in LOCKS.splitlines())
    found = packages.parse_packages(Output(f"{RPMS}suse|\n{rows}"))
    assert {name: one.held for name, one in found.items()} == {
        "nvidia-common-G06": True,
        "libnvidia-ml": False,
        "dkms": False,
        "nvidia-persistenced": False,
    }
    assert packages.parse_locking(Output("suse|\n")) == ""
    assert not packages.parse_packages(Output(f"{RPMS}suse|\n"))["nvidia-common-G06"].held


def test_no_locks_and_no_packages_are_an_answer() -> None:
    for probe in (packages.LOCKING, packages.PACKAGES):
        said = Output("suse|\n")
        assert probe.no_answer(said, probe.parse(said)) == ""


NAME = "nvidia-open-driver-G06"
"""Each as libzypp reads it: PoolQuery::recover, and PoolQueryMatcher::isAMatch, which takes what one of the attributes
matches."""


@pytest.mark.parametrize(
    ("lock", "holds"),
    [
        (f"type: package\nmatch_type: glob\ncase_sensitive: on\nsolvable_name: {NAME}", True),
        ("type: package\nmatch_type: exact\ncase_sensitive: on\nsolvable_name: nvidia-open*", False),
        ("type: package\nmatch_type: glob\ncase_sensitive: on\nsolvable_name: nvidia-open*", True),
        ("type: package\nmatch_type: regex\ncase_sensitive: on\nsolvable_name: ^nvidia-open.*", True),
        ("type: package\nmatch_type: regex\ncase_sensitive: on\nsolvable_name: driver-G0[56]$", True),
        ("type: package\nmatch_type: regex\nsolvable_name: ^NVIDIA-open", True),
        ("type: package\nmatch_type: regex\ncase_sensitive: on\nsolvable_name: ((", False),
        ("type: package\nmatch_type: word\ncase_sensitive: on\nsolvable_name: open", True),
        ("type: package\nmatch_type: word\ncase_sensitive: on\nsolvable_name: ope", False),
        ("type: package\nmatch_type: substring\ncase_sensitive: on\nsolvable_name: open-dri", True),
        ("type: package\nsolvable_name: OPEN-DRI", True),
        ("type: package\nmatch_type: glob\ncase_sensitive: off\nsolvable_name: NVIDIA-OPEN-DRIVER-G06", True),
        ("type: package\nmatch_type: glob\ncase_sensitive: on\nsolvable_name: NVIDIA-OPEN-DRIVER-G06", False),
        (f"type: package\nmatch_type: glob\ncase_sensitive: on\nsolvable_name: {NAME}\nsolvable_arch: x86_64", True),
        (f"type: package\nmatch_type: glob\ncase_sensitive: on\nsolvable_name: {NAME}\nquery_string: x", True),
        (f"type: package\nmatch_type: glob\ncase_sensitive: on\nsolvable_name: a\nsolvable_name: {NAME}", True),
        (f"type: package\nmatch_type: glob\ncase_sensitive: on\nquery_string: {NAME}", True),
        (f"type: package\nmatch_type: glob\ncase_sensitive: on\nsolvable_summary: x\nquery_string: {NAME}", False),
        (f"match_type: glob\nsolvable_name: {NAME}", True),
        (f"kind: package\nstring_type: exact\nsolvable_name: {NAME}", True),
        (f"type: patch\nmatch_type: glob\nsolvable_name: {NAME}", False),
        (f"type: package\nmatch_type: glob\nversion: == 1\nsolvable_name: {NAME}", False),
        (f"type: package\nmatch_type: glob\nsolvable_name: {NAME} > 1", False),
        (f"type: package\nmatch_type: glob\nrepo: nvidia\nsolvable_name: {NAME}", False),
        (f"type: package\ninstall_status: installed\nmatch_type: glob\nsolvable_name: {NAME}", False),
        (
            f"type: package\nmatch_type: glob\ncomplex: AttrMatchData solvable:name {NAME} C SolvableRange\\ \\ \\ "
            "x86_64",
            False,
        ),
        (
            f"#type: package\nmatch_type: glob\n# solvable_name: {NAME}\n#solvable_name: x\n solvable_name : {NAME} ",
            True,
        ),
        ("type: package\nmatch_type: glob\nsolvable_name:", False),
    ],
)
def test_each_way_of_a_lock_to_name_packages(
    lock: str, holds: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what verify reads of the host, and by what apply reads on it."""
    rows = "".join(f"lock|{line}\n" for line in lock.splitlines())
    found = packages.parse_packages(Output(f"rpm|{NAME}|0|580.1|1|x86_64|a-1-1.src.rpm\nsuse|\n{rows}"))
    assert found[NAME].held == holds
    (tmp_path / "locks").write_text(f"\n{lock}\n\n")
    monkeypatch.setattr(zypper_locks, "LOCKS", str(tmp_path / "locks"))
    monkeypatch.setattr(zypper_locks, "CONFIGURATIONS", ())
    assert zypper_locks.list_held(zypper_locks.read(), [NAME, "dkms"]) == [NAME] * holds


def test_a_line_without_a_colon_ends_a_lock() -> None:
    text = f"type: package\nmatch_type: glob\nnonsense\nversion: 1\n\n\nsolvable_name: {NAME}\nmatch_type: exact\n"
    assert len(zypper_locks.split_blocks(text)) == 3
    assert zypper_locks.list_held(zypper_locks.split_blocks(text), [NAME]) == [NAME]
    assert zypper_locks.split_blocks("# one comment\n\n") == []


@run_each("said", ["", "locksfile.path = ", "  locksfile.path = PLACE  \n"])
def test_the_file_of_locks_is_where_zypps_configuration_says(said: str, tmp_path: Path) -> None:
    place = tmp_path / "own"
    for path in (place, tmp_path / "etc/zypp/locks"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{path.name}: 1\n")
    (tmp_path / "etc/zypp/zypp.conf").write_text(f"[main]\n{said.replace('PLACE', str(place))}\n")
    script = zypper.LOCKS.replace("/usr/etc", f"{tmp_path}/none").replace("/etc/zypp", f"{tmp_path}/etc/zypp")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["suse|", f"lock|{'own' if 'PLACE' in said else 'locks'}: 1"]


@pytest.mark.parametrize(
    ("files", "place"),
    [
        (("usr/etc/zypp/zypp.conf.d/90-vendor.conf", "etc/zypp/zypp.conf.d/10-own.conf"), 0),
        (("etc/zypp/zypp.conf.d/90-own.conf", "usr/etc/zypp/zypp.conf.d/10-vendor.conf"), 0),
        (("etc/zypp/zypp.conf.d/50-same.conf", "usr/etc/zypp/zypp.conf.d/50-same.conf"), 0),
        (("usr/etc/zypp/zypp.conf.d/50-same.conf",), 0),
    ],
)
def test_verify_and_apply_find_the_same_file_of_locks(
    files: tuple[str, ...], place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate(files):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"[main]\nlocksfile.path = {tmp_path}/locks{number}\n")
        (tmp_path / f"locks{number}").write_text(f"{number}: 1\n")
    script = zypper.LOCKS.replace(" /etc/zypp", f" {tmp_path}/etc/zypp").replace(" /usr/etc", f" {tmp_path}/usr/etc")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["suse|", f"lock|{place}: 1"]
    own, vendor = tmp_path / "etc/zypp/zypp.conf", tmp_path / "usr/etc/zypp/zypp.conf"
    monkeypatch.setattr(zypper_locks, "CONFIGURATIONS", (str(own), str(vendor)))
    assert zypper_locks.find_path() == f"{tmp_path}/locks{place}"


def test_a_source_is_written_for_zypper() -> None:
    wanted: Source = {
        "name": "nvidia",
        "url": "https://example.com/sles15/",
        "suite": "/",
        "components": [],
        "signed": "packages",
    }
    text = sources.format_text(wanted, "suse")
    for line in ("gpgcheck=1", "repo_gpgcheck=0", "pkg_gpgcheck=1", "gpgkey=file:///etc/zypp/gpuprov-nvidia.asc"):
        assert line in text.splitlines()
    index = sources.format_text({**wanted, "signed": "index"}, "suse").splitlines()
    assert {"gpgcheck=0", "repo_gpgcheck=1", "pkg_gpgcheck=0"} <= set(index)
    place = sources.derive_path("nvidia", "suse")
    assert (place, sources.derive_own_name(place)) == ("/etc/zypp/repos.d/gpuprov-nvidia.repo", "nvidia")
    told = sources.parse(f"@file {place}\n" + "".join(f" {line}\n" for line in text.splitlines()) + "@gpgcheck 1\n")
    assert sources.find_others(told, wanted, "suse") == []
    assert [row.signed_by for row in told["sources"]] == ["file:///etc/zypp/gpuprov-nvidia.asc"]


def test_the_family_has_words_for_fixes() -> None:
    sles = family.WORDS["suse"]
    assert (sles.hold, sles.fetch) == ("zypper addlock", "zypper refresh")
