"""What a bundle of packages is made of: licences, indexes, the list of its software; and what cannot be in one."""

from __future__ import annotations

import errno
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from gpuprov import inventory
from gpuprov.bundle import bundles, licences, needs, placed, repository, resolve, transfer
from gpuprov.bundle.bom import build_bom
from gpuprov.bundle.model import Named
from gpuprov.bundle.specs import identifier
from gpuprov.catalog.licences import format_source
from gpuprov.cli import cli
from gpuprov.cli.bundle import bundle
from gpuprov.core import assets
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.collect.script import with_environment
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.facts.probes.driver.driver_packages import ARCHIVES
from gpuprov.facts.probes.host.family import FAMILIES, Family
from gpuprov.host_code import fetched
from gpuprov.host_code.packages import apt_settings
from gpuprov.rules import reach
from gpuprov.spec.model import RawHost
from tests.bundle.carried import ARCHIVE, EL, REPOSITORY, Carried, asked, fleet
from tests.pull.site import new_key
from tests.rows import run_each


@run_each(
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
        ("nvidia-container-toolkit", "utils", "free"),
        ("kmod-nvidia-open-dkms", "main/NVIDIA License", "nvidia-driver"),
        ("datacenter-gpu-manager-4-core", "non-free/NVIDIA Proprietary", "nvidia-sdk"),
        ("bash", "main/GPLv3+", "free"),
        ("mlnx-ofed-kernel-dkms", "net", "nvidia-doca"),
        ("cudnn9-cuda-12", "libs", "nvidia-sdk"),
        ("tensorrt", "libs", "nvidia-sdk"),
        ("python3-libnvinfer", "python", "nvidia-sdk"),
        ("libnvfatbin-12-8", "libs", "nvidia-sdk"),
        ("libcutensor2", "libs", "unknown"),
        ("libcudss0-cuda-12", "libs", "unknown"),
        ("libnvshmem3-cuda-12", "libs", "unknown"),
        ("libnvsdm-580", "libs", "unknown"),
        ("mft", "main/Proprietary", "nvidia-doca"),
        ("hcoll", "net", "nvidia-doca"),
        ("rshim", "net", "free"),
        ("nvme-cli", "admin", "free"),
    ],
)
def test_a_licence(name: str, section: str, key: str) -> None:
    assert licences.classify(name, section).key == key


def test_each_class_that_wants_a_word_can_be_given_it() -> None:
    (option,) = [one for one in bundle.params if one.name == "accepted"]
    assert isinstance(option.type, click.Choice)
    assert list(option.type.choices) == [one.key for one in licences.classes().values() if one.accept]


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

    made = build_bom((REPOSITORY, EL), (ARCHIVE,), "2026-01-01T00:00:00Z")
    judge = validation.JsonStrictValidator(SchemaVersion.V1_6)
    assert judge.validate_str(json.dumps(made)) is None
    assert judge.validate_str(json.dumps({**made, "components": [{"type": "deb"}]})) is not None


def test_the_list_of_software_has_every_package() -> None:
    rows: Any = build_bom((REPOSITORY, EL), (ARCHIVE,), "2026-01-01T00:00:00Z")["components"]
    assert [row["purl"] for row in rows] == [
        f"pkg:generic/nccl.tar.gz?checksum=sha256:{ARCHIVE.sha256}&"
        "download_url=https%3A%2F%2Fexample.org%2Fnccl.tar.gz",
        "pkg:deb/debian/gcc-12@12.2.0-14?arch=amd64&distro=debian-12",
        "pkg:deb/debian/libcuda1@1%3A535.1-1?arch=amd64&distro=debian-12",
        "pkg:rpm/rocky/nvidia-driver@580.1-1.el9?arch=x86_64&distro=rocky-9.6&epoch=3",
    ]
    assert [row["licenses"][0]["license"]["url"] for row in rows if "licenses" in row] == [
        format_source(licences.classes()["nvidia-driver"])
    ] * 2


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


@run_each(
    "bad",
    [
        member("../evil.deb"),
        member("/etc/evil.deb"),
        member("a/evil.deb"),
        member("evil.sh"),
        member("repodata.rpm/evil.rpm"),
        member(".evil.rpm"),
        member("InRelease"),
        member("evil.deb", tarfile.SYMTYPE),
        member("evil.deb", tarfile.LNKTYPE),
        member("evil.deb", tarfile.CHRTYPE),
    ],
)
def test_a_host_writes_nothing_but_packages_here(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    with pytest.raises(tarfile.TarError, match="unexpected"):
        resolve._unpack_archive(archive(member("good_1_amd64.deb"), bad), tmp_path, "gpu1")
    assert [path.name for path in tmp_path.iterdir()] == ["good_1_amd64.deb"]


@run_each("size", [-(1 << 40), 1 << 20, 0])
def test_a_file_of_another_size_than_it_takes_in_the_archive(tmp_path: Path, size: int) -> None:
    """GNU tar's sparse files: a few bytes that stand for as many as the header says, also for less than none."""
    sparse = tarfile.TarInfo("a_1_amd64.deb")
    told = {"major": "1", "minor": "0", "name": sparse.name, "realsize": str(size)}
    sparse.pax_headers = {f"GNU.sparse.{name}": value for name, value in told.items()}
    sparse.size = 512
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as file:
        file.addfile(sparse, io.BytesIO(b"0\n".ljust(512, b"\0")))
    made.seek(0)
    with tarfile.open(fileobj=made) as read, pytest.raises(tarfile.TarError, match=r"unexpected 'a_1_amd64\.deb'"):
        resolve._unpack_archive(read, tmp_path, "gpu1")
    assert list(tmp_path.iterdir()) == []


def test_an_archive_has_no_more_files_than_it_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "MEMBERS", 2)
    with pytest.raises(tarfile.TarError, match="more than 2 files"):
        resolve._unpack_archive(archive(*(member(f"a{n}.deb") for n in range(3))), tmp_path, "gpu1")
    read = archive(*(member(f"b{n}.deb") for n in range(2)))
    assert resolve._unpack_archive(read, tmp_path, "gpu1")[1] == {"b0.deb", "b1.deb"}
    assert vars(read)["members"] == []


def test_an_index_is_no_larger_than_it_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "LARGEST", 0)
    with pytest.raises(tarfile.TarError, match="its index has more"):
        resolve._unpack_archive(archive(member("Packages")), tmp_path, "gpu1")


HERE = RawHost(name="gpu1", values={}, connection={"ansible_connection": "local", "ansible_become": False})


@pytest.mark.install  # it takes seconds
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


@run_each(
    ("spec", "said"),
    [
        ({"cgpu": {}}, "gpu1: a bundle cannot hold what cgpu needs"),
        ({"rdma": {"fabric": "efa"}}, "gpu1: a bundle cannot hold what rdma.fabric efa, whose installer"),
        (
            {"nvidia_driver": {"build_host": "gpu1"}},
            "gpu1: a bundle cannot hold what nvidia_driver.build_host needs",
        ),
    ],
)
def test_what_no_bundle_can_hold_is_named(tmp_path: Path, spec: dict[str, Any], said: str) -> None:
    with pytest.raises(GpuprovError, match=said):
        needs.refuse_unsupported(fleet(tmp_path, spec).pairs)


@pytest.mark.parametrize(
    ("version", "machine"),
    [
        ("9.6-x86_64/../../../victim/www", "x86_64"),
        ("9.6", "../x86_64"),
        ("9.6", "x86_64/../debian12-amd64"),
        ("9.6 ", "x86_64"),
        ("9.6", "X"),
        ("9.6\x1b[1m", "x86_64"),
    ],
)
def test_a_host_names_no_folder_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, machine: str
) -> None:
    monkeypatch.setattr(needs, "judge", lambda *_, **__: SimpleNamespace(refusals=(), desired={}))
    ((_, spec),) = fleet(tmp_path, {"persistence": {}}).pairs

    def said(version: str, machine: str) -> Facts:
        release = Output(f'ID=rocky\nVERSION_ID="{version}"\n')
        return Facts({"os_release": release, "platform": Output(f"Linux 5.14.0 {machine}\n")})

    assert needs.determine_need("gpu1", spec, said("9.6", "x86_64")).folder == "rocky9.6-x86_64"
    with pytest.raises(GpuprovError, match="can be no folder of a bundle"):
        needs.determine_need("gpu1", spec, said(version, machine))


def test_another_folder_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/manifest").touch()
    options = bundles.Options(out=tmp_path / "out", key=new_key(tmp_path))
    with pytest.raises(GpuprovError, match="out is there, and no whole bundle of this key"):
        bundles.make(fleet(tmp_path, {"nvidia_driver": {}}), options, 0.0)


@run_each(
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
    script = with_environment('echo "$APT_CONFIG $ZYPP_CONF ${PATH%%:*}"', reach.of_bundle("/var/b/it's"))
    ran = subprocess.run(["sh"], input=script, capture_output=True, text=True, check=True)
    assert ran.stdout == "/var/b/it's/apt.conf /var/b/it's/zypp.conf /var/b/it's/bin\n"
    assert reach.path_of_bundle("/b", "/bin") == "/b/bin:/bin"
    assert reach.path_of_bundle("", "/bin") == "/bin"
    assert reach.of_bundle("") == {}
    # Hiding one of the host's sources would bring the others back.
    monkeypatch.setenv("APT_CONFIG", "/var/lib/gpuprov/bundle/one/apt.conf")
    monkeypatch.setattr(apt_settings, "name_source", lambda name: "/etc/hostname")
    with apt_settings.leave_out_sources(["nvidia"]) as environment:
        assert environment == {}


def test_a_host_without_debians_own_archive_is_understood() -> None:
    """A mirror of another origin: there is nothing to add components from, and nothing wrong."""
    facts = Facts({ARCHIVES.name: Output("archive|file:/srv/packages/|./|$(COMPONENT)|site\n", 0)})
    assert facts.get(ARCHIVES) == ()


def test_the_script_on_a_host_is_a_script() -> None:
    texts = [resolve.make_script(asked(family)) for family in FAMILIES]
    texts += [placed.make_script("abc", "a-b", family) for family in FAMILIES] + [placed.make_script("abc", "a-b")]
    for text in texts:
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)


@run_each("family", ["debian", "suse"])
def test_a_name_is_one_word_of_the_script(family: Family) -> None:
    assert "$(touch /x)'" in resolve.make_script(asked(family, "gcc=1$(touch /x)"))


def test_files_and_keys_that_a_spec_names_by_address(tmp_path: Path) -> None:
    """In any block, however deep, of any capability: whatever hosts would fetch is in the bundle."""
    source = {"url": "https://example.org/nccl.tar.gz", "sha256": "a" * 64}
    mirror = {"url": "https://m.example/cuda/", "key_url": "https://m.example/key.asc", "fingerprint": "B" * 40}
    spec = {
        "nvidia_driver": {"source": "mirror", "repository": mirror},
        "acceptance": {"nccl": {"source": source}},
        "cuda_toolkit": {},
    }
    ((_, typed),) = fleet(tmp_path, spec).pairs
    assert list(needs.downloads(typed)) == [Named(of="acceptance.nccl.source", url=source["url"], sha256="a" * 64)]
    assert list(needs._list_keys(typed)) == [needs.Key(mirror["key_url"], "B" * 40, mirror["url"])]


def test_all_that_roles_install_is_asked_for() -> None:
    """Each transaction of a role is one of what is desired that the bundle reads."""
    told: set[str] = set()
    for file in (assets.root() / "roles").rglob("tasks/**/*.yml"):
        for line in file.read_text(encoding="utf-8").splitlines():
            if "gpuprov_packages: {" in line and "capability: " in line and "action: hold" not in line:
                capability, task = re.findall(r"capability: ([\w.]+)(?:, task: (\w+))?", line)[0]
                told.add(f"{capability}.tasks.{task}" if task else f"{capability}.install")
    # With a build host, whose modules come from another host of the run, no bundle is made.
    fields = {one.partition(".")[2] or one for one in told if one}
    assert fields == {"install", "tasks.tools", "tasks.download", "gdrcopy.install"}
    made: dict[str, Any] = {
        "nvidia_driver": {"tasks": {"try": {"install": ["a=1"]}, "key": []}, "packages": {"a": "1"}},
        "dcgm": {"install": ["b"]},
        "persistence": {"install": ["c"], "tasks": {"download": {"install": ["c=1"]}}},
        "gpudirect_rdma": {"gdrcopy": {"install": ["d"]}},
    }
    assert sorted(needs._list_packages(made)) == ["a=1", "b", "c", "c=1", "d"]


def test_a_host_that_has_it_already_is_no_fresh_one() -> None:
    made = {"nvidia_driver": {"packages": {"libcuda1": "1"}, "install": []}}
    with pytest.raises(GpuprovError, match="gpu1 has libcuda1 already"):
        needs._refuse_installed("gpu1", made)
    toolkit = {"container_toolkit": {"install": [], "hold": ["nvidia-container-toolkit"], "release": []}}
    with pytest.raises(GpuprovError, match="gpu1 has nvidia-container-toolkit already"):
        needs._refuse_installed("gpu1", toolkit)
    toolkit["container_toolkit"]["install"] = ["nvidia-container-toolkit=1.18.0-1"]
    needs._refuse_installed("gpu1", toolkit)


def test_the_same_spec_from_another_folder(tmp_path: Path) -> None:
    """A key beside the inventory counts by what is in it: the inventory is carried to the site with it."""
    spec = {"nvidia_driver": {"source": "mirror", "repository": {"url": "https://m.example/", "key_file": "key.asc"}}}
    told = []
    for name, key in (("a", "one"), ("b", "one"), ("c", "two")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "key.asc").write_text(key)
        host = {"ansible_connection": "local"}
        (tmp_path / name / "i.json").write_text(json.dumps({"all": {"vars": {"gpuprov": spec}, "hosts": {"g": host}}}))
        (raw,) = inventory.load([str(tmp_path / name / "i.json")], cache=False).hosts
        told.append(identifier(raw))
    assert told[0] == told[1] != told[2]


MODULES = """---
document: modulemd
data: {name: perl, stream: "5.32"}
...
---
document: modulemd
data: {name: nvidia-driver, stream: 580-open}
...
---
document: modulemd-defaults
data: {module: nvidia-driver, stream: latest}
...
"""


def test_of_module_streams_the_drivers_own_are_kept() -> None:
    made = list(yaml.safe_load_all(repository._select_stream(MODULES, "nvidia-driver:580-open")))
    assert [one["document"] for one in made] == ["modulemd", "modulemd-defaults"]
    assert repository._select_stream(MODULES, "other:1") == ""


OWN = "[main]\nproxy=http://p\ncachedir = /elsewhere\nreposdir=/etc/yum.repos.d\n[site]\nbaseurl=http://mirror/\n"


def test_dnf_sees_the_bundle_alone_with_the_hosts_own_settings(tmp_path: Path) -> None:
    """A repository may stand in dnf.conf itself; a proxy, an exclude stay."""
    (tmp_path / "conf").write_text(OWN)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/dnf").write_text("#!/bin/sh\n")
    text = placed.PREPARE["redhat"].replace("/etc/dnf/dnf.conf", str(tmp_path / "conf"))
    subprocess.run(["sh", "-e"], input=f"d={tmp_path}\n{text}\n", text=True, check=True)
    wanted_lines = ["[main]", "proxy=http://p", f"reposdir={tmp_path}/repos.d", f"cachedir={tmp_path}/cache"]
    assert (tmp_path / "dnf.conf").read_text().splitlines()[:4] == wanted_lines


class Handing:
    """A host that hands these files over, in the place of `transfer.run`."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files, self.given = files, ""

    def __call__(self, raw: RawHost, script: str, *, given: Path, kept: Path, most: int) -> str:
        self.given = given.read_text()
        with tarfile.open(kept, "w") as file:
            for name, data in self.files.items():
                one = tarfile.TarInfo(name)
                one.size = len(data)
                file.addfile(one, io.BytesIO(data))
        return ""


def test_what_is_there_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    (old / "gcc.rpm").write_bytes(b"gcc")
    known = {"gcc.rpm": "c" * 64}
    host = Handing({"kept": b"gcc.rpm\n", "make.rpm": b"make"})
    monkeypatch.setattr(transfer, "run", host)
    resolve.fetch_packages(RawHost(name="gpu1"), asked("suse"), new, old, known)
    assert host.given == f"{'c' * 64}  gcc.rpm\n"
    assert {path.name for path in new.iterdir()} == {"gcc.rpm", "make.rpm"}
    assert (new / "gcc.rpm").stat().st_ino == (old / "gcc.rpm").stat().st_ino
    request = json.loads(resolve.make_input(asked("redhat"), known))["request"]
    assert request["known"] == known
    assert request["action"] == "collect"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"kept": b"../../etc/passwd\n"}, "it left out '../../etc/passwd', which is missing here"),
        ({"kept": b"", "gcc.rpm": b"other"}, "gcc.rpm is another file than on a host before it"),
        ({"kept": b"", "gcc.deb": b"other"}, "not an archive of packages: unexpected 'gcc.deb'"),
    ],
)
def test_a_host_that_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes], said: str) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new/gcc.rpm").write_bytes(b"gcc")
    monkeypatch.setattr(transfer, "run", Handing(files))
    with pytest.raises(GpuprovError, match=said):
        resolve.fetch_packages(RawHost(name="gpu1"), asked("suse"), tmp_path / "new", tmp_path, {"gcc.rpm": "c" * 64})
    assert (tmp_path / "new/gcc.rpm").read_bytes() == b"gcc"


@pytest.mark.install
@pytest.mark.parametrize(
    ("error", "raised", "said"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            GpuprovError,
            "No space left on device; nothing of it is left",
        ),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
        (GpuprovError("gpu1 did not end"), GpuprovError, "gpu1 did not end"),
    ],
)
def test_no_half_bundle_is_left_and_the_old_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, raised: type[BaseException], said: str | None
) -> None:
    made = Carried(tmp_path)
    before = {name: path.read_bytes() for name, path in contents(tmp_path)}
    monkeypatch.setattr(bundles, "read_needs", lambda *_: {"gpu1": asked("debian", "gcc")})

    def breaks(_: object, __: object, folder: Path, *___: object) -> None:
        (folder / "half.deb").write_bytes(b"half")
        raise error

    monkeypatch.setattr(resolve, "fetch_packages", breaks)
    with pytest.raises(raised, match=said):
        bundles.make(made.fleet, bundles.Options(out=made.place, key=made.key), 0.0)
    assert {name: path.read_bytes() for name, path in contents(tmp_path)} == before


def contents(folder: Path) -> list[tuple[str, Path]]:
    return [(str(path.relative_to(folder)), path) for path in sorted(folder.rglob("*")) if path.is_file()]


def test_files_of_a_bundle_take_the_place_of_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fetched.find_in_bundle("ab") == ""
    monkeypatch.setenv("GPUPROV_BUNDLE", "/var/lib/gpuprov/bundle/one")
    assert fetched.find_in_bundle("ab") == "/var/lib/gpuprov/bundle/one/files/ab"


CONTROL = """Name: gp-odd
Version: 1
Release: 1
Summary: odd
License: none
BuildArch: noarch
Vendor: @LONG@
%description
@SAID@
%files
"""


@run_each("said", ["plain", "no & \x1b[1mbold"])
def test_a_package_that_createrepo_leaves_out_is_named(tmp_path: Path, said: str) -> None:
    spec = tmp_path / "odd.spec"
    spec.write_text(CONTROL.replace("@SAID@", said).replace("@LONG@", "x" * 256))  # rpmbuild wants text there
    macros = {"_topdir": tmp_path / "build", "_rpmdir": tmp_path / "folder", "_rpmfilename": "gp-odd.rpm"}
    defines = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
    subprocess.run(["rpmbuild", "-bb", "--quiet", *defines, spec], check=True, capture_output=True)
    folder = tmp_path / "folder"
    subprocess.run(["createrepo_c", "--quiet", "--no-database", "--simple-md-filenames", folder], check=True)
    if said == "plain":
        assert [one.name for one in repository.list_packages(folder, "redhat")] == ["gp-odd"]
    else:
        with pytest.raises(GpuprovError, match=r"createrepo_c leaves gp-odd\.rpm out of its index"):
            repository.list_packages(folder, "redhat")
