"""DOCA-OFED: which packages a host gets and from where, and what the role brings about."""

from __future__ import annotations

from typing import Any

import msgspec

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.rdma.desired import decide
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.ofed.beside import resolvable
from gpuprov.capabilities.rdma.ofed.fragment import Ofed
from tests.capabilities import contexts, rdma_host
from tests.capabilities.ofed_host import (
    ABSENT,
    KERNEL,
    OTHER,
    ROCKY,
    UBUNTU,
    VERSION,
    index,
    kernel,
    loaded,
    packages,
    said,
)
from tests.rows import run_each

SHA = "AB" * 32
PLACE = f"/var/lib/gpuprov/doca-host/{SHA.lower()}.deb"
URL = "https://example.org/doca-host_3.2.1_amd64.deb"
OLDER = tuple(loaded(name, older=True) for name in ("ib_core", "mlx5_core", "mlx5_ib"))
NONE = {"ofed": ABSENT, "ofed_packages": "native|amd64\n"}
HEADLESS = said(kernels=(kernel(KERNEL), kernel(OTHER, headers=False)))
NEWER = "26.01.OFED.26.01.0.5.3.1-1"


def block(**values: Any) -> Rdma:
    return Rdma(fabric="roce", stack="doca-ofed", ofed=Ofed(**values))


def context(asked: Rdma, **texts: str) -> Context[Rdma]:
    theirs = {"os_release": UBUNTU, "ofed": said(), "ofed_packages": packages(), "ofed_index": index()}
    known = {**theirs, "packages": "native|amd64\n", "rdma_host": rdma_host.host(), **texts}
    return contexts.context("rdma", contexts.spec(rdma=asked), known)


def made(asked: Rdma, **texts: str) -> dict[str, Any]:
    answer: dict[str, Any] = msgspec.to_builtins(decide(context(asked, **texts)))
    return answer


def test_a_host_that_has_it() -> None:
    answer = made(block())
    assert (answer["of"], answer["install"], answer["fetch"], answer["later"]) == ("DOCA-OFED", [], [], {})
    assert (answer["ofed"]["build"], answer["ofed"]["reboot"], answer["now"]) == ([], "", "ran")
    assert answer["ofed"]["openibd"] | {"unload": []} == {
        "unit": "openibd.service", "replace": [], "unload": [], "start": False, "left": "",
    }  # fmt: skip
    assert answer["lines"] == [{"path": "/etc/infiniband/openib.conf", "keys": {"ONBOOT": "yes"}, "made": False}]
    assert answer["ofed"]["files"]["/etc/apt/preferences.d/gpuprov-doca"].endswith(
        "\nPackage: dkms\nPin: release l=DOCA-HOST*\nPin-Priority: -1\n"
    )
    assert {"doca-ofed", "mlnx-ofed-kernel-dkms", "rdma-core"} <= set(answer["ofed"]["hold"])
    assert made(block(hold=False))["ofed"]["release"] == answer["ofed"]["hold"]
    assert "doca-host" not in answer["ofed"]["hold"]


def test_a_host_of_another_stack_gets_nothing_of_it() -> None:
    answer = made(Rdma(fabric="roce", stack="inbox"))["ofed"]
    assert not any(answer.values())


@run_each(
    ("asked", "texts", "install"),
    [
        ({}, NONE, ["doca-ofed"]),
        ({"version": "25.10"}, NONE, ["doca-ofed", f"mlnx-ofed-kernel-dkms={VERSION}",
                                      f"mlnx-ofed-kernel-utils={VERSION}"]),
        ({"version": "25.10-1.7.1"}, NONE, ["doca-ofed", f"mlnx-ofed-kernel-dkms={VERSION}",
                                            f"mlnx-ofed-kernel-utils={VERSION}"]),
        ({"version": "25.10"}, NONE | {"ofed_index": index(NEWER, VERSION)},
         ["doca-ofed", f"mlnx-ofed-kernel-dkms={VERSION}", f"mlnx-ofed-kernel-utils={VERSION}"]),
        # What is there stays, also where a newer one is offered; another release is asked for by name.
        ({}, {"ofed_index": index(NEWER, VERSION)}, []),
        ({"version": "26.01"}, {"ofed_index": index(NEWER, VERSION)},
         ["doca-ofed", f"mlnx-ofed-kernel-dkms={NEWER}", f"mlnx-ofed-kernel-utils={NEWER}"]),
        # A kernel that boots without headers gets them, also beside an OFED that is right.
        ({}, {"ofed": HEADLESS}, [f"linux-headers-{OTHER}"]),
        ({}, {"ofed": HEADLESS, "packages": f"native|amd64\nii |linux-headers-{OTHER}|1|linux|amd64\n"}, []),
    ],
)  # fmt: skip
def test_packages(asked: dict[str, Any], texts: dict[str, str], install: list[str]) -> None:
    assert made(block(**asked), **texts)["install"] == install


@run_each(
    ("asked", "texts", "problem", "fix"),
    [
        ({}, NONE | {"ofed_index": ""}, "the repositories of the host have no doca-ofed",
         "url and sha256 of the doca-host package"),
        ({"version": "26.01"}, NONE, f"rdma.ofed.version is 26.01, and the repositories of the host have {VERSION}",
         "url and sha256"),
        ({"version": "5.10"}, NONE, "rdma.ofed.version is 5.10", "url and sha256"),
        ({"version": "26.01"}, {}, "rdma.ofed.version is 26.01", "url and sha256"),
        ({}, {"ofed": said(info="MLNX_OFED_LINUX-24.10-2.1.8.0:"), "ofed_packages": packages("doca-ofed")},
         "OFED 24.10-2.1.8.0 is there without doca-ofed", "ofed_uninstall.sh --force, on the host, then apply again"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_is_changed(
    asked: dict[str, Any], texts: dict[str, str], problem: str, fix: str
) -> None:
    outcome = resolvable.run(context(block(**asked), **texts))
    assert outcome.status == "fail"
    assert problem in outcome.found
    assert fix in outcome.fix


def test_the_release_that_would_come_must_build_here() -> None:
    """Also where no release is asked for, and none is there."""
    names = ("doca-ofed", "mlnx-ofa_kernel-dkms", "mlnx-ofa_kernel")
    offered = "".join(f"rpm|{name}|0|25.10.OFED.25.10.1.7.1|1.rhel9|x86_64\n" for name in names)
    headless = said(info="", memory=(), kernels=(kernel(KERNEL, own=True, headers=False),), dkms="", conf=None)
    bare = {"ofed": headless, "ofed_packages": "redhat|\n", "packages": "redhat|\n", "ofed_index": offered}
    outcome = resolvable.run(context(block(), os_release=ROCKY.format("9.8", "9.8"), **bare))
    assert (outcome.status, outcome.fix) == ("fail", "a newer DOCA-OFED, or a kernel of EL 9.7")
    assert "OFED 25.10-1.7.1 on Rocky Linux 9.8: EL 9.8's kernel has another DPLL callback" in outcome.found
    told = {"os_release": ROCKY.format("9.7", "9.7"), **bare}
    assert resolvable.run(context(block(), **told)).found == f"kernel-devel-{KERNEL} doca-ofed"
    assert made(block(), **told)["ofed"]["files"] == {}, "dnf has no such preference"


def test_the_named_package_is_fetched_and_what_follows_from_it_waits() -> None:
    asked = block(url=URL, sha256=SHA, version="25.10")
    answer = made(asked, **NONE, ofed_index="")
    assert answer["fetch"] == [{
        "of": "rdma.ofed", "url": URL, "file": "", "path": PLACE, "sha256": SHA.lower(), "most": 4 << 30,
        "public": True,
        "fix": "the right file, and the sha256 that NVIDIA publishes for it",
        "unreachable": "correct the url, the network, or the proxy of the host",
    }]  # fmt: skip
    assert (answer["ofed"]["source"], answer["ofed"]["named"], answer["install"]) == (PLACE, URL, [])
    assert answer["later"]["told"] == f"doca-ofed is resolved when apply has added {URL}"
    assert answer["later"]["problem"].startswith(f"{URL} brought no package source. Fix: ")
    outcome = resolvable.run(context(asked, **NONE, ofed_index=""))
    assert (outcome.status, "resolved when apply has added" in outcome.found) == ("skip", True)
    # When it is there, it is decided by what it offers; without its package source it is brought again.
    done = ABSENT + f"fetched|{SHA.lower()}.deb\n"
    there = made(asked, ofed=done + "source|/etc/apt/sources.list.d/doca.list\n", ofed_packages="native|amd64\n")
    assert (there["later"], there["fetch"], there["ofed"]["source"]) == ({}, [], "")
    assert "doca-ofed" in there["install"]
    assert made(asked, ofed=done, ofed_packages="native|amd64\n")["ofed"]["source"] == PLACE
    # A host that has what is asked for still gets its package source, and waits for nothing.
    right = made(asked)
    assert (right["ofed"]["source"], right["later"], right["install"]) == (PLACE, {}, [])
    assert made(block(file="doca.deb", sha256=SHA), **NONE)["fetch"][0]["file"] == "doca.deb"


def test_modules_that_dkms_has_not_built_are_built() -> None:
    state = said(kernels=(kernel(KERNEL, built="mlnx-ofed-kernel isert srp"), kernel(OTHER, built="", headers=False)))
    assert made(block(), ofed=state)["ofed"]["build"] == [["dkms", "install", "iser/25.10", "-k", KERNEL]]


def test_openibd_is_restarted_for_modules_that_are_not_ofeds() -> None:
    answer = made(block(), ofed=said(memory=OLDER))["ofed"]
    assert (answer["openibd"]["replace"], answer["reboot"]) == (["ib_core", "mlx5_core", "mlx5_ib"], "")
    assert {"nvidia_peermem", "nvme_rdma"} <= set(answer["openibd"]["unload"])
    assert "erdma" not in answer["openibd"]["unload"], "modules of others are never taken away"
    assert answer["openibd"]["left"].startswith("openibd ran, and ib_core mlx5_core mlx5_ib is still not OFED's. Fix: ")
    stopped = made(block(), ofed=said(unit=("loaded", "inactive", "enabled")))["ofed"]["openibd"]
    assert (stopped["start"], stopped["replace"]) == (True, [])


@run_each("row", ["busy|nvme_rdma|2", "busy|ko2iblnd|4", "client|python3 (7)", "uplink|bond0", "talks|ens1|2"])
def test_openibd_is_never_restarted_under_what_uses_it(row: str) -> None:
    answer = made(block(), ofed=said(row, memory=OLDER, unit=("loaded", "failed", "enabled")))
    openibd = answer["ofed"]["openibd"]
    assert (openibd["replace"], openibd["start"], answer["now"]) == ([], False, "observed")
    assert "openibd cannot restart: " in answer["ofed"]["reboot"]
    assert openibd["left"].startswith(answer["ofed"]["reboot"])
    # In a container the modules are the machine's.
    inside = made(block(), ofed=said(row, memory=OLDER), container="podman\n")
    assert (inside["ofed"]["openibd"]["replace"], inside["ofed"]["reboot"], inside["now"]) == ([], "", "ran")


def test_before_it_is_installed_nothing_is_asked_of_openibd() -> None:
    answer = made(block(openib_conf={"SRP_LOAD": False}), **NONE)["ofed"]
    assert (answer["openibd"], answer["hold"]) == (None, [])


def test_keys_of_openibs_configuration() -> None:
    (lines,) = made(block(openib_conf={"SRP_LOAD": False, "SET_IPOIB_CM": "auto"}))["lines"]
    assert lines["keys"] == {"ONBOOT": "yes", "SRP_LOAD": "no", "SET_IPOIB_CM": "auto"}
    assert made(Rdma(fabric="roce", stack="inbox"))["lines"] == []
