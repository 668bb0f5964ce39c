"""What a bundle of packages is made of: licences, indexes, the list of its software; and what cannot be in one."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuprov.cli import cli
from gpuprov.errors import GpuprovError
from gpuprov.gather.script import with_environment
from gpuprov.offline import bundles, licences, placed, resolve, transfer, wanted
from gpuprov.offline.bom import bom
from gpuprov.onhost.packages import apt_settings
from gpuprov.probe.base import Facts, Output
from gpuprov.probe.driver_packages import ARCHIVES
from gpuprov.shared import reach
from gpuprov.spec.model import RawHost
from tests.offline.carried import REPOSITORY, fleet
from tests.pull.site import new_key


@pytest.mark.parametrize(
    ("name", "section", "key"),
    [
        ("gcc-12", "devel", "free"),
        ("dkms", "admin", "free"),
        ("glx-alternative-nvidia", "contrib/libs", "free"),
        ("libcuda1", "non-free/libs", "nvidia-driver"),
        ("nvidia-kernel-dkms", "non-free/kernel", "nvidia-driver"),
        ("firmware-nvidia-gsp", "non-free-firmware/kernel", "nvidia-driver"),
        ("nvidia-cuda-mps", "non-free/utils", "nvidia-driver"),
        ("nvidia-cuda-toolkit", "non-free/devel", "nvidia-sdk"),
        ("cuda-toolkit-12-4", "multiverse/devel", "nvidia-sdk"),
        ("libcudnn9-cuda-12", "libs", "nvidia-sdk"),
        ("libcublas-12-4", "libs", "nvidia-sdk"),
        ("rar", "non-free/utils", "unknown"),
    ],
)
def test_a_licence(name: str, section: str, key: str) -> None:
    assert licences.licence(name, section).key == key


def test_a_licence_that_forbids_copies_is_refused_until_somebody_answers_for_it() -> None:
    asked = [("gcc-12", "devel"), ("libcuda1", "non-free/libs"), ("cuda-nvcc-12-4", "devel"), ("rar", "non-free/utils")]
    with pytest.raises(GpuprovError, match="cuda-nvcc-12-4: its EULA lets you"):
        licences.judge(asked, ())
    with pytest.raises(GpuprovError, match="rar: its archive files it as not free"):
        licences.judge(asked, ("nvidia-sdk",))
    assert licences.judge(asked, ("nvidia-sdk", "unknown")) == ["nvidia-sdk", "nvidia-driver", "unknown"]


def test_the_list_of_software_is_valid() -> None:
    validation = pytest.importorskip(
        "cyclonedx.validation.json", reason="pip install cyclonedx-python-lib, which has the schema"
    )
    from cyclonedx.schema import SchemaVersion

    made = bom((REPOSITORY,), "2026-01-01T00:00:00Z")
    judge = validation.JsonStrictValidator(SchemaVersion.V1_6)
    assert judge.validate_str(json.dumps(made)) is None
    assert judge.validate_str(json.dumps({**made, "components": [{"type": "deb"}]})) is not None


def test_the_list_of_software_has_every_package() -> None:
    rows = bom((REPOSITORY,), "2026-01-01T00:00:00Z")["components"]
    assert [row["purl"] for row in rows] == [
        "pkg:deb/debian/gcc-12@12.2.0-14?arch=amd64&distro=debian-12",
        "pkg:deb/debian/libcuda1@1%3A535.1-1?arch=amd64&distro=debian-12",
    ]
    assert [row["licenses"][0]["license"]["url"] for row in rows if "licenses" in row] == [licences.DRIVER.source]


def archive(*members: tarfile.TarInfo) -> tarfile.TarFile:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as file:
        for member in members:
            file.addfile(member, io.BytesIO(b"x" * member.size))
    made.seek(0)
    return tarfile.open(fileobj=made)


def member(name: str, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size, made.type, made.linkname = (1 if kind == tarfile.REGTYPE else 0), kind, "/etc/passwd"
    return made


@pytest.mark.parametrize(
    "bad",
    [
        member("../evil.deb"),
        member("/etc/evil.deb"),
        member("a/evil.deb"),
        member("evil.sh"),
        member("evil.deb", tarfile.SYMTYPE),
        member("evil.deb", tarfile.LNKTYPE),
        member("evil.deb", tarfile.CHRTYPE),
    ],
)
def test_a_host_writes_nothing_but_packages_here(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    with pytest.raises(tarfile.TarError, match="unexpected"):
        resolve._unpacked(archive(member("good_1_amd64.deb"), bad), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["good_1_amd64.deb"]


def stanza(**other: str) -> str:
    told = {
        "Package": "a",
        "Version": "1",
        "Architecture": "all",
        "Filename": "./a.deb",
        "Size": "1",
        "SHA256": "0" * 64,
    }
    return "".join(f"{name}: {value}\n" for name, value in {**told, **other}.items()) + "\n"


@pytest.mark.parametrize(
    "index",
    [
        "",
        stanza(Filename="/etc/hostname"),
        stanza(Filename="./../b/a.deb"),
        stanza(Filename="./b.deb"),
        stanza(Size="9" * 5000),
        stanza(Size="-1"),
        stanza(SHA256=""),
        stanza(filename="./b.deb"),
        stanza() + stanza(),
        stanza() + stanza(Filename="./b.deb"),
        stanza(Description="x\r\nPackage: b"),
        stanza(Description="x\n \nPackage: b"),
        "Package: a\n\n",
        "no field",
    ],
)
def test_an_index_that_says_another_thing_than_its_packages_is_refused(index: str) -> None:
    with pytest.raises(ValueError, match="its index"):
        resolve.judged(index, {"a.deb"})


def test_an_index_and_its_packages() -> None:
    assert [*resolve.judged(stanza(Description="x\u2028y\n .\n z"), {"a.deb"})] == ["./a.deb"]


def test_an_index_is_no_larger_than_it_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "LARGEST", 0)
    with pytest.raises(tarfile.TarError, match="its index has more"):
        resolve._unpacked(archive(member("Packages")), tmp_path)


HERE = RawHost(name="gpu1", values={}, connection={"ansible_connection": "local", "ansible_become": False})


def test_a_host_floods_neither_memory_nor_disk(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with pytest.raises(GpuprovError, match="gpu1: it sent more than 1000000 bytes"):
        transfer.run(HERE, "cat /dev/zero", kept=kept, most=1_000_000)
    assert kept.stat().st_size < 2_000_000
    with pytest.raises(GpuprovError, match="it sent more than"):
        transfer.run(HERE, "yes")
    with pytest.raises(GpuprovError, match="y y the end"):
        transfer.run(HERE, "yes | head -c 9000000 >&2; echo the end >&2; exit 3")


def test_what_a_host_says_and_is_given(tmp_path: Path) -> None:
    (tmp_path / "given").write_bytes(b"x" * 1_000_000)
    assert transfer.run(HERE, "wc -c", given=tmp_path / "given").strip() == "1000000"
    assert transfer.run(HERE, "printf abc", kept=tmp_path / "kept") == ""
    assert (tmp_path / "kept").read_text() == "abc"


def test_a_host_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "LIMIT", 0.1)
    with pytest.raises(GpuprovError, match=r"gpu1 did not end within 0.1 s"):
        transfer.run(HERE, "exec sleep 60")


def test_an_index_is_read() -> None:
    text = "Package: a\nDescription: b\n c: d\nFilename: ./a.deb\n\n\nPackage: e\nFilename: ./e.deb\n\n"
    first, second = resolve.stanzas(text)
    assert (first["Package"], first["Filename"], " c" in first, second["Package"]) == ("a", "./a.deb", False, "e")
    assert first[""] == "Package: a\nDescription: b\n c: d\nFilename: ./a.deb\n"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"container_toolkit": {}, "nvidia_driver": {}}, "gpu1: a bundle cannot hold what container_toolkit needs"),
        ({"nvidia_driver": {"source": "nvidia"}}, "nvidia_driver.source is nvidia"),
    ],
)
def test_what_no_bundle_can_hold_is_named(tmp_path: Path, spec: dict[str, Any], said: str) -> None:
    with pytest.raises(GpuprovError, match=said):
        wanted.refuse_unsupported(fleet(tmp_path, spec).pairs)


def test_a_bundle_is_never_changed(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/manifest").touch()
    options = bundles.Options(out=tmp_path / "out", key=new_key(tmp_path))
    with pytest.raises(GpuprovError, match="is there and not empty"):
        bundles.make(fleet(tmp_path, {"nvidia_driver": {}}), options, 0.0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mode", "apply"], "--mode goes with --pull"),
        (["--wheels", "w"], "--wheels goes with --pull"),
        (["--pull"], "--pull needs --wheels"),
        (["--pull", "--wheels", "w", "--source", "s", "--accept-licence", "unknown"], "leave out --pull"),
        (["--pull", "--forks", "3"], "bundle --pull reaches no host"),
    ],
)
def test_the_two_kinds_of_bundle_are_told_apart(words: list[str], said: str) -> None:
    ran = CliRunner().invoke(cli, ["bundle", "none.yaml", "--key", "k", "--out", "o", *words])
    assert said in " ".join((ran.output + str(ran.exception)).split())


def test_apt_sees_the_bundle_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    script = with_environment('echo "$APT_CONFIG"', reach.of_bundle("/var/lib/gpuprov/bundle/it's"))
    ran = subprocess.run(["sh"], input=script, capture_output=True, text=True, check=True)
    assert ran.stdout == "/var/lib/gpuprov/bundle/it's/apt.conf\n"
    assert reach.of_bundle("") == {}
    # Hiding one of the host's sources would bring the others back.
    monkeypatch.setenv("APT_CONFIG", "/var/lib/gpuprov/bundle/one/apt.conf")
    monkeypatch.setattr(apt_settings, "source", lambda name: "/etc/hostname")
    with apt_settings.without(["nvidia"]) as environment:
        assert environment == {}


def test_a_host_without_debians_own_archive_is_understood() -> None:
    """A mirror of another origin: there is nothing to add components from, and nothing wrong."""
    facts = Facts({ARCHIVES.name: Output("archive|file:/srv/packages/|./|$(COMPONENT)|$(SIGNED_BY)|site\n", 0)})
    assert facts.get(ARCHIVES) == ()


def test_the_script_on_a_host_is_a_script() -> None:
    for text in (resolve.SCRIPT, placed.script("abc", carried=True), placed.script("abc", carried=False)):
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)
