"""nvidia_driver: what the role brings about; which source comes first; what waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.nvidia_driver.desired import DESIRED, make
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver, Runfile
from gpuprov.probe.base import ProbeFailed
from gpuprov.probe.signing import CERTIFICATE_FILE, KEY_FILE
from gpuprov.spec.model import HostSpec
from gpuprov.spec.repository import Repository
from gpuprov.spec.signing import Signing
from tests.capabilities.asking import NEWER, VERSION, facts, good, packages
from tests.probe import captured

FRESH: dict[str, Any] = {"packages": "", "loaded_driver": "", "driver_building": ""}
INDEX = (
    str(captured("package_index", "bookworm").text) + "dkms | 3.0.10-8 | http://deb.debian.org/debian bookworm/main\n"
)
NEWEST = NvidiaDriver(version="535.309.01")
MIRROR = NvidiaDriver(
    version="580",
    source="mirror",
    repository=Repository(url="https://mirror.example/cuda", key_url="https://mirror.example/k", fingerprint="A" * 40),
)
ROW = "row|{}|{}|{}|{}|Debian NVIDIA Maintainers\n"
OURS = "nvidia-graphics-drivers"


def context(
    driver: NvidiaDriver | None = None, site: dict[str, object] | None = None, **changed: Any
) -> Context[NvidiaDriver]:
    texts = {**good(), "package_index": INDEX, **changed}
    told = facts(**{probe.name: texts[probe.name] for probe in DESIRED.probes})
    block = driver or NvidiaDriver()
    return Context(HostSpec(name="gpu1", capabilities={"nvidia_driver": block}, site=site or {}), block, told)


def test_a_fresh_host_gets_the_whole_set_in_one_transaction_and_what_builds_it_before() -> None:
    made = make(context(**FRESH))
    assert (made["version"], made["flavour"], made["module"]) == ("535.309.01", "proprietary", "nvidia-kernel-dkms")
    assert f"nvidia-kernel-dkms={NEWER}" in made["install"]
    assert f"libcuda1={NEWER}" in made["install"]
    assert made["before"] == ["dkms"], "the running kernel has its headers"
    assert (made["remove"], made["builds"], made["reload"], made["later"]) == ([], True, False, {})
    assert (made["repository"], made["components"], made["leaving"]) == ({}, {}, [])


def test_headers_of_a_kernel_that_lacks_them_come_before_and_an_old_one_without_any_is_left_out() -> None:
    kernels = "6.1.0-40-amd64|1|0||1\n6.1.0-47-amd64|1|1||1||1\n6.1.0-48-amd64|1|0||1\n"
    offered = "linux-headers-6.1.0-48-amd64 | 6.1.150-1 | http://deb.debian.org/debian bookworm/main\n"
    made = make(context(**{**FRESH, "kernels": kernels, "driver_building": offered}))
    assert made["before"] == ["dkms", "linux-headers-6.1.0-48-amd64"]
    assert (made["kernels"], made["spare"]) == (["6.1.0-47-amd64", "6.1.0-48-amd64"], ["6.1.0-40-amd64"])


def test_a_host_that_is_right_stays_as_it_is() -> None:
    made = make(context())
    assert [name for name in made["install"] if not name.startswith("nvidia-modprobe")] == []
    assert (made["remove"], made["before"], made["builds"], made["reload"], made["reason"]) == (
        [],
        [],
        False,
        False,
        "",
    )
    assert {"nvidia-kernel-dkms", "libcuda1"} <= set(made["whole"])


def test_what_came_from_the_same_source_moves_along_in_every_architecture() -> None:
    rows = ROW.format("nvidia-driver", VERSION, OURS, "amd64") + ROW.format("libcuda1", VERSION, OURS, "i386")
    there = packages(nvidia_driver=("ii ", VERSION))
    made = make(context(NEWEST, packages=there, driver_makers=f"own|amd64\n{rows}"))
    assert f"nvidia-driver={NEWER}" in made["install"]
    assert f"libcuda1:i386={NEWER}" in made["install"]
    assert made["reload"]
    assert made["reason"].startswith("the loaded driver is 535.261.03 (proprietary) and in use")


@pytest.mark.parametrize(("container", "reload"), [("none\n", True), ("podman\n", False)])
def test_the_machines_driver_is_not_a_containers_to_reload(container: str, *, reload: bool) -> None:
    made = make(context(NEWEST, container=container))
    assert (made["reload"], bool(made["reason"]), made["loads"]) == (reload, reload, reload)


def test_a_mirror_comes_first_and_the_driver_waits_for_it() -> None:
    made = make(context(MIRROR, **FRESH))
    assert made["repository"]["url"] == "https://mirror.example/cuda"
    assert made["later"]["told"] == "driver 580 is resolved when apply has added https://mirror.example/cuda"
    assert (made["version"], made["install"]) == ("", [])


def test_debians_components_come_first_unless_the_site_adds_them_itself() -> None:
    bare = {**FRESH, "package_index": "dkms | 3.0.10-8 | http://deb.debian.org/debian bookworm/main\n"}
    archive = "archive|http://deb.debian.org/debian|bookworm|main|/usr/share/keyrings/debian.gpg|Debian\n"
    made = make(context(debian_archives=archive, **bare))
    (text,) = made["components"].values()
    stanza = "URIs: http://deb.debian.org/debian\nSuites: bookworm\nComponents: contrib non-free non-free-firmware\n"
    assert f"Types: deb\n{stanza}Signed-By: /usr/share/keyrings/debian.gpg\n" in text
    assert made["later"]["told"].endswith("added contrib, non-free and non-free-firmware")
    with pytest.raises(ProbeFailed, match="none of"):
        make(context(site={"nvidia_driver_manage_repository": False}, **bare))


def test_a_source_that_leaves_is_not_seen() -> None:
    """NVIDIA's repository has versions under Debian's names; the distribution's driver is resolved without them."""
    url = "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/"
    file = f"@file /etc/apt/sources.list.d/gpuprov-nvidia.sources\n Types: deb\n URIs: {url}\n Suites: /\n"
    theirs = "".join(
        f"{name.split('=')[0]} | 535.999.01-1 | {url}  Packages\n" for name in make(context(**FRESH))["install"]
    )
    source = NvidiaDriver(source="distribution")
    seen = make(
        context(source, **{**FRESH, "package_index": theirs + INDEX, "repositories": f"@arch amd64\n{file}@end\n"})
    )
    assert (seen["version"], seen["leaving"]) == ("535.309.01", ["nvidia"])
    assert make(context(source, **{**FRESH, "package_index": theirs + INDEX}))["version"] == "535.999.01"


def test_modules_of_a_build_host_stand_in_the_place_of_dkms() -> None:
    served = NvidiaDriver(version="535.309.01", build_host="builder")
    made = make(context(served, **FRESH))
    assert made["served"]
    assert not [name for name in made["install"] if name.startswith("nvidia-kernel-dkms=")]
    assert (made["before"], made["builds"]) == ([], False)
    there = packages() + f"hi |nvidia-kernel-dkms-prebuilt|{VERSION}|{OURS}\n"
    assert make(context(packages=there))["remove"] == ["nvidia-kernel-dkms-prebuilt"], "no build host is named any more"


@pytest.mark.parametrize(("sha256", "wanted"), [("ab", False), ("cd", True)], ids=["again", "another file"])
def test_no_installer_runs_under_a_loaded_driver(sha256: str, *, wanted: bool) -> None:
    driver = NvidiaDriver(version="535.261.03", source="runfile", runfile=Runfile(sha256="AB"))
    record = f'record|1.0-5 (535.261.03)\nours|{{"sha256": "{sha256}"}}\nmodule|6.1.0-47-amd64|NVIDIA\n'
    made = make(context(driver, runfile=record))
    assert (made["runfile"]["wanted"], made["reload"]) == (wanted, wanted)
    assert made["pin"] == {}


def test_the_installers_options() -> None:
    def options(version: str, flavour: str, *, secure: bool = False) -> str:
        signing = Signing(key_file="/site.key") if secure else Signing()
        driver = NvidiaDriver(version=version, kernel_modules=flavour, source="runfile", signing=signing)  # type: ignore[arg-type]
        on = captured("secure_boot", "on") if secure else ""
        return " ".join(make(context(driver, secure_boot=on))["runfile"]["options"])

    first = "--silent --dkms --no-x-check --no-nouveau-check --kernel-name=6.1.0-47-amd64"
    signs = f"--module-signing-secret-key={KEY_FILE} --module-signing-public-key={CERTIFICATE_FILE}"
    running = "--allow-installation-with-running-driver --skip-module-load"
    assert options("535.261.03", "open") == f"{first} --kernel-module-build-directory=kernel-open"
    assert options("535.261.03", "proprietary", secure=True) == f"{first} {signs}"
    assert options("580.95.05", "open", secure=True) == f"{first} --kernel-module-type=open {running}"


def test_kernels_that_the_administrator_held_are_told_apart() -> None:
    there = packages() + "hi |linux-image-amd64|6.1.1|linux\nii |linux-image-6.1.0-48-amd64|6.1.1|linux\n"
    made = make(context(packages=there, kernels_held="linux-image-6.1.0-48-amd64\n"))
    assert made["images_held"] == ["linux-image-amd64"]
    assert made["images"] == ["linux-image-6.1.0-48-amd64", "linux-image-amd64"]
    assert made["images_ours"] == ["linux-image-6.1.0-48-amd64"]
