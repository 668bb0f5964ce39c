"""The index of kept rpm files, against createrepo_c's of the same files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpuprov.host_code import kept_rpms, repodata
from gpuprov.host_code.files import compute_digest

SPEC = """Name: gpuprov-nothing
Epoch: 3
Version: 1.2
Release: 1
Summary: no & <thing>
License: none
Vendor: nobody "at all"
BuildArch: noarch
Provides: thing(x) = 3:1.0
Provides: other-thing
Requires: (bash if dash)
Requires: sed >= 4
Requires(post): /bin/sh
Obsoletes: other < 2-7
Conflicts: foo = 1
%description
no & thing
%install
mkdir -p %{buildroot}/etc/x %{buildroot}/usr/bin; echo hi > %{buildroot}/etc/x/y; echo hi > %{buildroot}/usr/bin/z
%post
true
%files
/etc/x
/usr/bin/z
"""
FILE = "gpuprov-nothing_3%3a1.2-1_noarch.rpm"
PLAIN = FILE.replace("%", "-")


@pytest.fixture
def made(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with one package that real rpmbuild made."""
    spec = tmp_path / "nothing.spec"
    spec.write_text(getattr(request, "param", SPEC))
    macros = {"_topdir": tmp_path / "build", "_rpmdir": tmp_path / "made", "_rpmfilename": "made.rpm"}
    defines = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
    subprocess.run(["rpmbuild", "-bb", "--quiet", *defines, spec], check=True, capture_output=True)
    (found,) = (tmp_path / "made").glob("*.rpm")
    found.rename(tmp_path / "made" / FILE)
    return tmp_path / "made"


def _said(folder: Path) -> Iterator[tuple[str, ...]]:
    """All that is said of the package, as tuples: what order it is in says nothing."""
    (primary,) = (folder / "repodata").glob("*primary.xml")
    for one in ElementTree.fromstring(primary.read_text()).iter():
        tag = one.tag.rpartition("}")[2]
        if tag in ("packager", "url", "header-range", "group"):
            continue  # nobody decides by it
        told = sorted((name, value) for name, value in one.attrib.items() if name not in ("pre", "file"))
        yield tag, (one.text or "").strip(), *(f"{name}={value}" for name, value in told)


def test_it_says_what_createrepo_says(made: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (made / FILE).rename(made / PLAIN)
    (other / PLAIN).write_bytes((made / PLAIN).read_bytes())
    options = ["--quiet", "--no-database", "--simple-md-filenames", "--general-compress-type=gz"]
    subprocess.run(["createrepo_c", *options, other], check=True, capture_output=True)
    subprocess.run(["gunzip", other / "repodata/primary.xml.gz"], check=True)
    repodata.write_index(str(made), {PLAIN: compute_digest(str(made / PLAIN))})
    mine, theirs = set(_said(made)), set(_said(other))
    assert theirs - mine == set()
    assert {row for row in mine - theirs if row[0] != "file"} == set(), "of files createrepo names a few"


@pytest.mark.parametrize("made", [SPEC.replace("no & ", "no & \x1b[1m\x08")], indirect=True)
def test_a_control_character_is_left_out(made: Path) -> None:
    """rpm prints it as it is, and XML may not have it; createrepo_c has no such package in its index."""
    repodata.write_index(str(made), {FILE: compute_digest(str(made / FILE))})
    assert {row for row in _said(made) if row[0] in ("summary", "description")} == {
        ("summary", "no & [1m<thing>"),
        ("description", "no & [1mthing"),
    }


def test_what_rpm_cannot_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.rpm").write_text("no package\n")
    with pytest.raises(ValueError, match="rpm cannot read"):
        repodata.write_index(str(tmp_path), {"x.rpm": "0" * 64})


def test_only_what_is_installed_is_taken(made: Path, tmp_path: Path) -> None:
    """By the header's digest: another package of the same name and version is not."""
    path = str(made / FILE)
    (row,) = kept_rpms.read_headers(path)
    file = kept_rpms.find_file(row)
    assert file == FILE
    assert 0 < os.path.getsize(path) - kept_rpms.compute_size(row) < 16_384, "all but what is before header and payload"
    pool = tmp_path / "pool"
    pool.mkdir()
    for wrong in ([*row[:5], "0" * 64, row[6]], [*row[:5], "(none)", "(none)"]):
        kept_rpms._take({file: wrong}, [path], str(pool), 0)
        assert list(pool.iterdir()) == []
    broken = made / "broken.rpm"
    data = bytearray((made / FILE).read_bytes())
    data[-3] ^= 1
    broken.write_bytes(data)
    kept_rpms._take({file: row}, [str(broken)], str(pool), 0)
    assert list(pool.iterdir()) == [], "what follows the header is not what it says"
    kept_rpms._take({file: row}, [path], str(pool), 1 << 60)
    assert list(pool.iterdir()) == [], "the disk is too full"
    kept_rpms._take({file: row}, [path], str(pool), 0)
    assert (pool / FILE).read_bytes() == Path(path).read_bytes()
