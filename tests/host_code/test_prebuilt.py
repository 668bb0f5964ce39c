"""Modules that one host builds for others: the package, and whether it is for a host."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.software.prebuilt import PREBUILT
from gpuprov.host_code.driver import prebuilt
from gpuprov.host_code.files import compute_digest
from tests.here import program
from tests.host_code.modules import on_host, step
from tests.rows import run_each

DRIVER: prebuilt.Driver = {
    "module": "nvidia-kernel-dkms",
    "module_file": "nvidia-current",
    "packages": {"nvidia-kernel-dkms": "535.261.03-1"},
    "flavour": "proprietary",
    "kernels": ["6.1.0-47"],
    "installed": "535.261.03-1",
    "prebuilt": ["nvidia-kernel-dkms-prebuilt"],
    "prebuilt_sums": "ab",
    "source_packages": ["nvidia-kernel-dkms", "nvidia-kernel-source"],
    "stand_in": ["nvidia-kernel-dkms=535.261.03-1"],
    "before": ["dkms"],
    "install": ["nvidia-smi=535.261.03-1"],
    "remove": ["nvidia-kernel-dkms", "old"],
}
PACKED: prebuilt.Description = {
    "version": "535.261.03-1",
    "flavour": "proprietary",
    "sums": "ab",
    "sha256": "cd",
    "kernels": ["6.1.0-47"],
}


@run_each(
    ("theirs", "said"),
    [
        (PACKED, ""),
        (PACKED | {"kernels": ["6.1.0-48", "6.1.0-47"]}, ""),
        (
            {},
            "b: it has packed no modules of nvidia-kernel-dkms 535.261.03-1 for this machine to give out, and is "
            "not in this run",
        ),
        (
            PACKED | {"flavour": "open"},
            "b: it has 535.261.03-1 (open), and h would get 535.261.03-1 (proprietary). Fix: name an exact",
        ),
        (PACKED | {"version": "535.247.01-1"}, "b: it has 535.247.01-1 (proprietary), and h would get"),
        (
            PACKED | {"kernels": ["6.1.0-46"]},
            "b: it builds for 6.1.0-46, and h can boot 6.1.0-47. Fix: install that kernel on b and",
        ),
    ],
)
def test_what_the_build_host_has_is_for_a_host_or_is_refused(theirs: prebuilt.Description, said: str) -> None:
    found = prebuilt.find_problem("b", "h", DRIVER, theirs)
    assert found.startswith(f"nvidia_driver.build_host {said}") if said else not found


def test_it_is_installed_where_anything_of_it_is_another() -> None:
    assert not prebuilt.is_lacking(DRIVER, PACKED)
    others: list[prebuilt.Driver] = [
        {"prebuilt_sums": ""},
        {"prebuilt_sums": "xy"},
        {"prebuilt": []},
        {"installed": "535.247.01-1"},
    ]
    for other in others:
        assert prebuilt.is_lacking({**DRIVER, **other}, PACKED)
    assert prebuilt.is_lacking({**DRIVER, "prebuilt_sums": ""}, {**PACKED, "sums": ""}), "no sums are not the same sums"


def test_a_trial_before_the_package_is_there_keeps_what_stands_for_it() -> None:
    assert prebuilt.plan_trial(DRIVER, [], untried=True) == {
        "try_install": ["dkms", "nvidia-smi=535.261.03-1", "nvidia-kernel-dkms=535.261.03-1"],
        "try_remove": ["old"],
    }
    assert prebuilt.plan_trial(DRIVER, ["--reinstall", "/x.deb"], untried=False) == {
        "try_install": ["dkms", "nvidia-smi=535.261.03-1", "--reinstall", "/x.deb"],
        "try_remove": ["nvidia-kernel-dkms", "old"],
    }


def test_the_cache_is_one_file_of_its_folder_whatever_hosts_say() -> None:
    assert prebuilt.make_cache_path({"HOME": "/h"}, "debian12", "x86_64", "../../etc/b", "m", "1~2") == (
        "/h/.cache/gpuprov/modules/debian12-x86_64-.._.._etc_b-m-1~2"
    )
    assert prebuilt.make_cache_path({"HOME": "/h", "XDG_CACHE_HOME": "/c"}, "a").startswith("/c/gpuprov/")
    for relative in ("", "cache", "./cache", "~/cache"):
        assert prebuilt.make_cache_path({"HOME": "/h", "XDG_CACHE_HOME": relative}, "a").startswith(
            "/h/.cache/gpuprov/"
        )


def test_a_package_that_is_not_as_it_was_made_is_made_again(tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    assert (prebuilt.read_description(cache), prebuilt.check_sums(cache)) == ({}, "")
    Path(f"{cache}.deb").write_text("package")
    Path(f"{cache}.json").write_text(json.dumps(PACKED))
    assert (prebuilt.read_description(cache)["sums"], prebuilt.check_sums(cache)) == ("ab", "")
    Path(f"{cache}.json").write_text(json.dumps(PACKED | {"sha256": compute_digest(f"{cache}.deb")}))
    assert prebuilt.check_sums(cache) == "ab"
    Path(f"{cache}.json").write_text("[1")
    assert prebuilt.read_description(cache) == {}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with the modules of one kernel, as DKMS installs them."""
    updates = tmp_path / "lib/modules/6.1.0-47/updates/dkms"
    updates.mkdir(parents=True)
    for name in ("nvidia-current", "nvidia-current-uvm"):
        (updates / f"{name}.ko").write_text(name)
    (updates / "other.ko").write_text("of somebody else")
    program(tmp_path, "modinfo", f'[ "$2" = 6.1.0-47 ] && echo {updates}/$4.ko')
    program(tmp_path, "dpkg-query", "echo nvidia-graphics-drivers")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin")
    for name in ("prebuilt", "packing"):
        monkeypatch.setattr(on_host(f"driver.{name}"), "FOLDER", str(tmp_path / "made"))
    return tmp_path


def pack(capsys: pytest.CaptureFixture[str], **changed: Any) -> dict[str, Any]:
    driver = {**DRIVER, **changed.pop("driver", {})}
    given: dict[str, Any] = {"state": "packed", "driver": driver, "builder": "b", "platform": "debian12"}
    return step(capsys, "prebuilt", **given, **changed)


def test_the_package_has_the_modules_and_says_what_it_stands_for(
    host: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pack(capsys, check=True)["changed"] is False
    assert not (host / "made").exists()
    assert pack(capsys)["changed"] is True
    made = host / "made/nvidia-kernel-dkms-prebuilt"
    about = json.loads(Path(f"{made}.json").read_text())
    assert {key: about[key] for key in ("version", "flavour", "kernels")} == {
        key: PACKED[key] for key in ("version", "flavour", "kernels")
    }
    assert about["sha256"] == compute_digest(f"{made}.deb")
    assert pack(capsys, sums=about["sums"])["changed"] is False, "the same modules are not packed again"
    fields = subprocess.run(["dpkg-deb", "-f", f"{made}.deb"], capture_output=True, text=True, check=True).stdout
    assert {
        "Source: nvidia-graphics-drivers",
        "Version: 535.261.03-1",
        "Provides: nvidia-kernel-dkms (= 535.261.03-1)",
        "Conflicts: nvidia-kernel-dkms",
        "Replaces: nvidia-kernel-dkms",
    } <= set(fields.splitlines())
    root = host / "root"
    subprocess.run(["dpkg-deb", "-x", f"{made}.deb", root], check=True)
    subprocess.run(["dpkg-deb", "-e", f"{made}.deb", host / "control"], check=True)
    files = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    there = "lib/modules/6.1.0-47/updates/dkms"
    assert files == [
        f"{there}/nvidia-current-uvm.ko",
        f"{there}/nvidia-current.ko",
        "usr/share/nvidia-kernel-dkms-prebuilt/SHA256SUMS",
    ]
    for name in ("postinst", "postrm"):
        assert subprocess.run(["sh", "-n", host / "control" / name], check=False).returncode == 0
        assert "for kernel in 6.1.0-47; do" in (host / "control" / name).read_text()
    assert '[ "$1" = remove ] || exit 0' in (host / "control/postrm").read_text()
    subprocess.run(["md5sum", "--status", "-c", host / "control/md5sums"], cwd=root, check=True)
    # What verify asks of a host that has it.
    script = PREBUILT.script.replace("cd /", f"cd {root}").replace("/var/lib/gpuprov/prebuilt", str(host / "made"))
    text = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    (found,) = PREBUILT.parse(Output(text))
    assert (found.sums, found.recorded, set(found.files.values())) == (about["sums"], about["sums"], {True})
    assert found.kernels() == {"6.1.0-47"}


def test_a_kernel_without_modules_is_refused(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = pack(capsys, driver={"kernels": ["6.1.0-47", "6.1.0-48"]})
    assert "kernel 6.1.0-48 has no module nvidia-current. Fix: " in refused["msg"]
    assert not (host / "made").exists()
