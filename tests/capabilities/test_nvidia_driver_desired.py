"""nvidia_driver: what the role brings about; which source comes first; what waits for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.nvidia_driver.desired import DESIRED
from gpuprov.capabilities.nvidia_driver.desired import make as make_values
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver, Runfile
from gpuprov.capabilities.nvidia_driver.tasks import TASKS
from gpuprov.capabilities.tasks import each_task
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.facts.probes.driver.driver_packages import HELD_KERNELS
from gpuprov.facts.probes.kernel.signing import CERTIFICATE_FILE, KEY_FILE
from gpuprov.spec.repository import Repository
from gpuprov.spec.signing import Signing
from tests.capabilities import contexts
from tests.capabilities.asking import NEWER, VERSION, packages
from tests.facts.probes import captured
from tests.rows import run_each

make: Callable[..., Any] = make_values


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
    host = contexts.spec(site=site, nvidia_driver=driver or NvidiaDriver())
    return contexts.context("nvidia_driver", host, {"package_index": INDEX, **changed})


STEPS = ("folder", "old_key", "tools", "aside", "stop", "packages", "unload_first", "installer", "modules", "pack")
"""Tasks of act 2 in their order, with those of STEPS_AFTER."""
STEPS_AFTER = ("brought", "unload")
BUILT_ASIDE = ["tools", "aside", "stop", "packages", "modules", "unload"]


def take_steps(made: dict[str, Any]) -> list[str]:
    """Return the tasks of act 2 that a host needs."""
    return [name for name in (*STEPS, *STEPS_AFTER) if name in made["tasks"]]


def test_a_fresh_host_gets_the_whole_set_in_one_transaction_and_what_builds_it_before() -> None:
    made = make(context(**FRESH))
    assert (made["version"], made["flavour"], made["module"]) == ("535.309.01", "proprietary", "nvidia-kernel-dkms")
    assert f"nvidia-kernel-dkms={NEWER}" in made["install"]
    assert f"libcuda1={NEWER}" in made["install"]
    assert made["tasks"]["tools"]["install"] == ["dkms"], "the running kernel has its headers"
    assert (made["remove"], made["builds"], made["later"]) == ([], True, {})
    assert (made["repository"], made["components"], made["leaving"]) == ({}, {}, [])
    assert take_steps(made) == ["tools", "aside", "packages", "modules"]
    assert made["tasks"]["try"]["install"] == ["dkms", *made["install"]]
    assert made["tasks"]["modules"]["state"] == "dkms"
    assert ("before" in made["tasks"], "after" in made["tasks"]) == (True, False)
    assert set(made["hold"]) >= {"nvidia-kernel-dkms", "libcuda1"}


def test_headers_of_a_kernel_that_lacks_them_come_before_and_an_old_one_without_any_is_left_out() -> None:
    kernels = "6.1.0-40-amd64|1|0||1\n6.1.0-47-amd64|1|1||1||1\n6.1.0-48-amd64|1|0||1\n"
    offered = "linux-headers-6.1.0-48-amd64 | 6.1.150-1 | http://deb.debian.org/debian bookworm/main\n"
    made = make(context(**{**FRESH, "kernels": kernels, "driver_building": offered}))
    assert made["tasks"]["tools"]["install"] == ["dkms", "linux-headers-6.1.0-48-amd64"]
    assert made["kernels"] == ["6.1.0-47-amd64", "6.1.0-48-amd64"]
    assert made["tasks"]["spare"]["msg"].startswith("no headers are offered for 6.1.0-40-amd64, which neither runs")


def test_a_host_that_is_right_stays_as_it_is() -> None:
    made = make(context())
    assert [name for name in made["install"] if not name.startswith("nvidia-modprobe")] == []
    assert (made["remove"], made["builds"], made["tasks"]["reason"]["reason"]) == ([], False, "")
    assert {"nvidia-kernel-dkms", "libcuda1"} <= set(made["hold"])
    extra = "".join(f"ii |{name}|1|x\n" for name in ("nvidia-modprobe", "nvidia-persistenced"))
    whole = make(context(packages=packages() + extra))
    assert take_steps(whole) == ["packages", "modules"], "it is looked at once more"
    assert not {"try", "before", "after"} & set(whole["tasks"])


def test_what_came_from_the_same_source_moves_along_in_every_architecture() -> None:
    rows = ROW.format("nvidia-driver", VERSION, OURS, "amd64") + ROW.format("libcuda1", VERSION, OURS, "i386")
    there = packages(nvidia_driver=("ii ", VERSION))
    made = make(context(NEWEST, packages=there, driver_makers=f"own|amd64\n{rows}"))
    assert f"nvidia-driver={NEWER}" in made["install"]
    assert f"libcuda1:i386={NEWER}" in made["install"]
    assert made["tasks"]["reason"]["reason"].startswith("the loaded driver is 535.261.03 (proprietary) and in use")


@pytest.mark.parametrize(("container", "reload"), [("none\n", True), ("podman\n", False)])
def test_the_machines_driver_is_not_a_containers_to_reload(container: str, *, reload: bool) -> None:
    made = make(context(NEWEST, container=container))
    tasks = made["tasks"]
    assert (bool(tasks["reason"]["reason"]), tasks["driver_loaded"]["wanted"]) == (reload, reload)
    assert ("stop" in tasks, "unload" in tasks) == (reload, reload)
    aside = take_steps(make(context(NEWEST, container=container, driver_building="")))
    assert aside == [name for name in BUILT_ASIDE if reload or name not in ("stop", "unload")]


def test_a_mirror_comes_first_and_the_driver_waits_for_it() -> None:
    made = make(context(MIRROR, **FRESH))
    assert made["repository"]["url"] == "https://mirror.example/cuda"
    assert made["later"]["told"] == "driver 580 is resolved when apply has added https://mirror.example/cuda"
    assert (made["version"], made["install"]) == ("", [])
    nothing = {"reason": {"capability": "nvidia_driver", "reason": ""}, "driver_loaded": {"wanted": False}}
    assert made["tasks"] == nothing


def test_debians_components_come_first_unless_the_site_adds_them_itself() -> None:
    bare = {**FRESH, "package_index": "dkms | 3.0.10-8 | http://deb.debian.org/debian bookworm/main\n"}
    archive = "archive|http://deb.debian.org/debian/|bookworm|main|Debian\n"
    own = (
        "Types: deb\n URIs: http://deb.debian.org/debian\n Suites: bookworm\n Signed-By: /usr/share/keyrings/debian.gpg"
    )
    bare["repositories"] = f"@arch amd64\n@file /etc/apt/sources.list.d/debian.sources\n {own}\n@end\n"
    made = make(context(debian_archives=archive, **bare))
    (text,) = made["components"].values()
    stanza = "URIs: http://deb.debian.org/debian/\nSuites: bookworm\nComponents: contrib non-free non-free-firmware\n"
    assert f"Types: deb\n{stanza}Signed-By: /usr/share/keyrings/debian.gpg\n" in text
    assert made["later"]["told"].endswith("added contrib, non-free and non-free-firmware")
    assert made["tasks"]["components"] == {"sources": made["components"]}
    for no in (False, "no", "off", "0"):
        with pytest.raises(ProbeFailed, match="none of"):
            make(context(site={"nvidia_driver_manage_repository": no}, debian_archives=archive, **bare))
    assert make(context(site={"nvidia_driver_manage_repository": "on"}, debian_archives=archive, **bare))["components"]


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
    assert (seen["repository"], seen["components"]) == ({}, {}), "act 1 takes no source away"
    assert seen["leave"]["repository"]["url"] == ""
    assert "after" in seen["tasks"]
    assert make(context(source, **{**FRESH, "package_index": theirs + INDEX}))["version"] == "535.999.01"


def test_modules_of_a_build_host_stand_in_the_place_of_dkms() -> None:
    served = NvidiaDriver(version="535.309.01", build_host="builder")
    made = make(context(served, **FRESH))
    assert not [name for name in made["install"] if name.startswith("nvidia-kernel-dkms=")]
    assert ("tools" in made["tasks"], made["builds"]) == (False, False)
    there = packages() + f"hi |nvidia-kernel-dkms-prebuilt|{VERSION}|{OURS}\n"
    assert make(context(packages=there))["remove"] == ["nvidia-kernel-dkms-prebuilt"], "no build host is named any more"


def test_the_installers_options() -> None:
    def options(version: str, flavour: str, *, secure: bool = False) -> str:
        signing = Signing(key_file="/site.key") if secure else Signing()
        driver = NvidiaDriver(version=version, kernel_modules=flavour, source="runfile", signing=signing)  # type: ignore[arg-type]
        on = captured("secure_boot", "on") if secure else ""
        return " ".join(make(context(driver, secure_boot=on))["tasks"]["installer"]["options"])

    first = "--silent --dkms --no-x-check --no-nouveau-check --kernel-name=6.1.0-47-amd64"
    signs = f"--module-signing-secret-key={KEY_FILE} --module-signing-public-key={CERTIFICATE_FILE}"
    running = "--allow-installation-with-running-driver --skip-module-load"
    assert options("535.261.03", "open") == f"{first} --kernel-module-build-directory=kernel-open"
    assert options("535.261.03", "proprietary", secure=True) == f"{first} {signs}"
    assert options("580.95.05", "open", secure=True) == f"{first} --kernel-module-type=open {running}"


HELD, NEW, OWN = "linux-image-amd64", "linux-image-6.1.0-48-amd64", "linux-image-6.1.0-47-amd64"
SERVED = NvidiaDriver(version="535.309.01", build_host="builder")


@run_each(
    ("held", "ours", "recorded"),
    [
        ([HELD], [], [OWN, NEW]),
        ([HELD, OWN, NEW], [OWN, NEW], [OWN, NEW]),
        ([HELD, OWN], [OWN, "linux-image-6.1.0-46-amd64"], [OWN, NEW]),
        ([HELD, OWN, NEW], [], []),
    ],
    ids=["at first", "again", "a kernel came and one went", "all are the admin's"],
)
def test_kernels_that_the_administrator_held_are_not_recorded(
    held: list[str], ours: list[str], recorded: list[str]
) -> None:
    rows = [f"{'hi' if name in held else 'ii'} |{name}|6.1.1|linux\n" for name in (HELD, NEW, OWN)]
    known: dict[str, Any] = {
        "packages": packages() + "".join(rows),
        "kernels_held": "".join(f"{name}\n" for name in ours),
    }
    made = make(context(SERVED, **known))
    assert made["record"] == {"files": {HELD_KERNELS: "".join(f"{name}\n" for name in recorded)}}
    assert {HELD, NEW, OWN, "nvidia-kernel-dkms-prebuilt"} <= set(made["hold"]), "all are held"
    assert "nvidia-kernel-dkms" not in made["hold"], "which the build host's package stands for"
    loose = make(context(msgspec.structs.replace(SERVED, hold=False), **known))
    assert (loose["hold"], loose["record"]) == ([], {})
    assert {*ours} == {name for name in loose["release"] if name.startswith("linux-image")}, "the admin's stay held"
    assert loose["forget"] == ({"absent": [HELD_KERNELS]} if ours else {})
    mine = make(context(**known))
    assert {*ours} == {name for name in mine["release"] if name.startswith("linux-image")}, "DKMS builds for any kernel"
    assert not {*mine["hold"]} & {HELD, NEW, OWN}


def test_the_order_of_the_tasks_is_that_of_the_role() -> None:
    keys = [task.key for task in each_task({"install": TASKS["install"]})]
    assert [name for name in dict.fromkeys(keys) if name in (*STEPS, *STEPS_AFTER)] == [
        name for name in (*STEPS, *STEPS_AFTER) if name != "packages"
    ], "packages is the key of a part"


def test_a_site_key_comes_before_anything_is_built_and_goes_so_too() -> None:
    signing = Signing(key_file="/site.key", certificate_file="")
    made = make(context(NvidiaDriver(version="535.309.01", signing=signing), **FRESH))
    assert take_steps(made)[:1] == ["folder"]
    assert [one["dest"] for one in made["tasks"]["key"]] == [KEY_FILE, CERTIFICATE_FILE]
    (text,) = made["signing"]["files"].values()
    assert f"mok_signing_key={KEY_FILE}\nmok_certificate={CERTIFICATE_FILE}\n" in text
    left = make(context(site_key=f"{KEY_FILE}\n", **FRESH))
    assert (take_steps(left)[0], left["tasks"]["old_key"]) == ("old_key", [{"path": KEY_FILE}])
    assert left["signing"] == {}
    elsewhere = msgspec.structs.replace(SERVED, signing=signing)
    assert take_steps(make(context(elsewhere, site_key=KEY_FILE)))[0] == "old_key", "the build host signs"


def test_what_a_build_host_and_the_hosts_that_it_serves_do() -> None:
    builder = NvidiaDriver(version="535.309.01", build_host="gpu1")
    assert take_steps(make(context(builder, **FRESH))) == ["tools", "aside", "packages", "modules", "pack"]
    made = make(context(SERVED, **FRESH))
    assert {"judged", "try", "brought", "after"} <= set(made["tasks"]), "when the build host has packed"
    assert take_steps(made) == ["brought"]
    assert made["tasks"]["brought"]["driver"]["stand_in"] == []
    assert list(DESIRED.packages(made)) == [], "its packages are known when the build host has packed"
    moves = make(context(SERVED))
    assert "nvidia-kernel-dkms" in moves["remove"], "it has built its own until now"
    assert moves["tasks"]["judged"]["driver"]["stand_in"] == [f"nvidia-kernel-dkms={NEWER}"], (
        "the old one would hold back the rest of the set in the trial"
    )


def test_an_installer_has_no_driver_loaded_under_it() -> None:
    driver = NvidiaDriver(version="535.261.03", source="runfile", runfile=Runfile(url="https://x/y", sha256="AB"))
    there = "record|1.0-5 (535.261.03)\nours|{}\nmodule|6.1.0-47-amd64|NVIDIA\n"
    same = make(context(driver, runfile=there.replace("{}", '{"sha256": "ab"}')))
    assert (same["pin"], {"installer", "unload_first"} & set(same["tasks"])) == ({}, set())
    made = make(context(driver, runfile=there.replace("{}", '{"sha256": "cd"}')))
    assert {"fetch", "runfile"} <= set(made["tasks"])
    assert take_steps(made) == ["unload_first", "installer", "modules"]
    (record,) = made["runfile"]["files"].values()
    assert json.loads(record) == {"url": "https://x/y", "file": "", "sha256": "ab", "version": "535.261.03"}
    parameters = msgspec.structs.replace(driver, module_parameters={"NVreg_OpenRmEnableUnsupportedGpus": 1})
    made = make(context(parameters, runfile=there.replace("{}", '{"sha256": "ab"}')))
    assert take_steps(made) in (["modules", "unload"], ["modules"])
    held = make(context(driver, runfile=there, kernels_held=f"{OWN}\n"))
    assert (take_steps(held)[0], held["forget"]) == ("packages", {"absent": [HELD_KERNELS]})
