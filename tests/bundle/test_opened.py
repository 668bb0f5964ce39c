"""A bundle of packages is believed only as it was signed, whole, in its time, and for the host at hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from gpuprov.bundle import opened, placed, transfer
from gpuprov.bundle.model import BOM, MANIFEST
from gpuprov.cli import cli
from gpuprov.core.errors import GpuprovError, UnreachableError
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.spec.model import RawHost
from tests.bundle.carried import DEB, NOW, REPOSITORY, SPEC, Carried, fleet
from tests.pull.site import new_key
from tests.rows import run_each

FILE = f"{REPOSITORY.folder}/{DEB.file}"
KERNEL = frozenset(REPOSITORY.kernels)
HERE = ("debian", "12", "amd64")


def test_as_it_was_made(tmp_path: Path) -> None:
    made = Carried(tmp_path)
    manifest = opened.opened(made.place, made.signers, NOW)
    assert manifest.files.keys() == {FILE, BOM, "key.asc"}
    assert opened.of(manifest, "gpu1", HERE, KERNEL) == REPOSITORY
    assert placed.identifier(manifest) == "a" * 16


def _link(made: Carried) -> None:
    (made.place / FILE).unlink()
    (made.place / FILE).symlink_to("/etc/hostname")


def _other_key(made: Carried) -> None:
    data = (made.place / MANIFEST).read_bytes()
    made.sign(data[data.index(b"{") :], new_key(made.place.parent, "other"))


def _edited(made: Carried) -> None:
    file = made.place / MANIFEST
    file.write_bytes(file.read_bytes().replace(b"2199", b"2299"))


@run_each(
    ("harm", "said"),
    [
        (lambda made: (made.place / FILE).write_bytes(b"a virus!!"), "is not what was signed"),
        (lambda made: (made.place / BOM).unlink(), "bom.json is missing"),
        (lambda made: (made.place / "debian12-amd64/more.deb").touch(), "more.deb is not of the bundle"),
        (lambda made: (made.place / MANIFEST).unlink(), "is not a bundle"),
        (lambda made: (made.place / MANIFEST).write_bytes(b"{}"), "does not begin with a signature"),
        (lambda made: made.sign(b'{"kind": "pull"}'), "no bundle of packages"),
        (lambda made: made.signers.chmod(0o666), "others may write it"),
        (_link, "is not a plain file"),
        (_other_key, "signature of the bundle is invalid"),
        (_edited, "signature of the bundle is invalid"),
    ],
)
def test_what_is_refused(tmp_path: Path, harm: Callable[[Carried], object], said: str) -> None:
    made = Carried(tmp_path)
    harm(made)
    with pytest.raises(GpuprovError, match=said):
        opened.opened(made.place, made.signers, NOW)


def test_signers_of_the_bundles_own(tmp_path: Path) -> None:
    made = Carried(tmp_path)
    mine = made.signers.rename(made.place / "allowed_signers")
    with pytest.raises(GpuprovError, match="lies in the bundle, and proves nothing about it"):
        opened.opened(made.place, mine, NOW)


def test_after_its_time(tmp_path: Path) -> None:
    made = Carried(tmp_path, expires_at="2026-02-01T00:00:00Z")
    with pytest.raises(GpuprovError, match="expired at 2026-02-01"):
        opened.opened(made.place, made.signers, NOW)


def test_of_another_format(tmp_path: Path) -> None:
    made = Carried(tmp_path, gpuprov_bundle=2)
    with pytest.raises(GpuprovError, match="format 2, this gpuprov reads 1"):
        opened.opened(made.place, made.signers, NOW)


@run_each(
    ("there", "kernels", "said"),
    [
        (("debian", "13", "amd64"), KERNEL, "gpu1 is debian 13 amd64; the bundle is for debian 12 amd64"),
        (("ubuntu", "12", "amd64"), KERNEL, "gpu1 is ubuntu 12"),
        (("debian", "12", "arm64"), KERNEL, "gpu1 is debian 12 arm64"),
        (HERE, frozenset({"6.1.0-2-amd64"}), "has kernel 6.1.0-2-amd64; the bundle has headers for 6.1.0-1-amd64"),
    ],
)
def test_for_another_host(tmp_path: Path, there: tuple[str, str, str], kernels: frozenset[str], said: str) -> None:
    made = Carried(tmp_path)
    with pytest.raises(GpuprovError, match=said):
        opened.of(opened.opened(made.place, made.signers, NOW), "gpu1", there, kernels)


def test_check_judges_the_folder_without_a_host(tmp_path: Path) -> None:
    made = Carried(tmp_path)
    words = [
        "check",
        str(tmp_path / "inventory.json"),
        "--no-cache",
        "--bundle",
        str(made.place),
        "--signers",
        str(made.signers),
    ]
    ran = CliRunner().invoke(cli, words)
    assert (ran.exit_code, ran.exception) == (0, None), ran.output
    fleet(tmp_path, {"nvidia_driver": {"version": "550"}})
    ran = CliRunner().invoke(cli, words)
    assert "the bundle was made for other specs" in str(ran.exception)


def test_for_another_inventory(tmp_path: Path) -> None:
    made = Carried(tmp_path)
    manifest = opened.opened(made.place, made.signers, NOW)
    other = fleet(tmp_path, {"nvidia_driver": {"version": "550"}})
    with pytest.raises(GpuprovError, match="gpu1: the bundle was made for other specs"):
        opened.matching(manifest, other.pairs)
    same = fleet(tmp_path, {**SPEC, "reboot": "if-needed"})
    foreign = msgspec.structs.replace(manifest, repositories=(msgspec.structs.replace(REPOSITORY, release="99"),))
    answers, refused = opened.matching(foreign, same.pairs)  # the spec is the same, this machine is not
    assert answers == {}
    assert "the bundle is for debian 99 amd64" in refused["gpu1"].message


def test_a_host_that_cannot_have_it_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Carried(tmp_path)
    manifest = opened.opened(made.place, made.signers, NOW)
    [(raw, spec)] = made.fleet.pairs
    good, lies, floods, away = pairs = [(msgspec.structs.replace(raw, name=f"gpu{n}"), spec) for n in range(4)]
    right = {"os_release": "ID=debian\nVERSION_ID=12\n", "platform": "Linux 6.1.0-1-amd64 x86_64\n"}
    said = {one[0].name: Facts({name: Output(text) for name, text in right.items()}) for one in (good, floods)}
    said["gpu1"] = Facts({"os_release": Output("ID=debian\nVERSION_ID=99\n"), "platform": Output("")})
    monkeypatch.setattr(opened, "gather", lambda *_, **__: {**said, "gpu3": UnreachableError("gpu3 is away", "")})
    monkeypatch.setattr(opened, "_find_kernels", lambda *_: KERNEL)
    repositories, refused = opened.matching(manifest, pairs)
    assert (set(repositories), set(refused)) == ({"gpu0", "gpu2"}, {"gpu1", "gpu3"})

    def run(raw: RawHost, script: str, **_: object) -> str:
        if raw.name == "gpu2":
            raise GpuprovError("gpu2: it sent more than 65536 bytes")
        return "there\n"

    monkeypatch.setattr(transfer, "run", run)
    # One that was away for a moment, and is back, has no packages: it is not among those that the run is of.
    kept, without = placed.place(made.place, manifest, [good, floods, away], repositories)
    assert [raw.name for raw, _ in kept] == ["gpu0"]
    assert refused["gpu3"].message == "gpu3 is away"
    assert set(without) == {"gpu2"}
    assert kept[0][0].connection["host_package_bundle"] == f"{placed.PLACE}/{'a' * 16}"
    assert lies not in kept
