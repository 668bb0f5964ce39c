"""eRDMA's and EFA's software: what a host is given of an installer, which kernels get a build; the program of each
boot."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.rdma.desired import decide
from gpuprov.capabilities.rdma.erdma.desired import MODULES
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.catalog.rdma import efa as efa_catalogue
from gpuprov.catalog.rdma import erdma as catalogue
from gpuprov.facts.probes.rdma import erdma as probe
from tests.capabilities import at_boot, contexts, efa_host, rdma_host
from tests.capabilities.asking import CHECKS
from tests.capabilities.erdma_host import KERNEL, KO, PARAMETERS, SHA256, block, devices, said
from tests.facts.probes.rdma.erdma_tree import environment, here, tree, write
from tests.rows import run_each

UBUNTU = 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\nID_LIKE=debian\n'
ROCKY = 'ID="rocky"\nVERSION_ID="9.6"\nPRETTY_NAME="Rocky Linux 9.6"\nID_LIKE="rhel centos fedora"\n'
SUSE = 'ID="opensuse-leap"\nVERSION_ID="15.6"\nPRETTY_NAME="openSUSE Leap 15.6"\nID_LIKE="suse opensuse"\n'
GOOD = f"{KERNEL}|1|1|{KO}|{PARAMETERS}|1"
OTHER = "5.15.0-130-generic"
RAN = f"record|{SHA256} compat"
NEEDS = ["debhelper", "autotools-dev", "dkms", "libnl-3-dev", "libnl-route-3-dev", "cmake"]
NONE = {"erdma": said(kernels=(f"{KERNEL}|1|1|||0",), parameters=None)}


def context(asked: Rdma, **texts: str) -> Context[Rdma]:
    theirs = {"os_release": UBUNTU, "erdma": said(), "erdma_build": "native|amd64\n", "packages": "native|amd64\n"}
    known = {**theirs, "rdma_host": rdma_host.host(), "rdma_devices": devices(), **texts}
    return contexts.context("rdma", contexts.spec(rdma=asked), known)


def made(asked: Rdma, **texts: str) -> dict[str, Any]:
    answer: dict[str, Any] = msgspec.to_builtins(decide(context(asked, **texts)))
    return answer


@run_each(
    ("asked", "text"),
    [({}, said()), ({"installer": "1.5.7"}, said(RAN)), ({"compat_mode": False}, said(kernels=(f"{GOOD[:-1]}0",)))],
)
def test_a_host_that_has_it(asked: dict[str, Any], text: str) -> None:
    answer = made(block(**asked), erdma=text)
    assert (answer["fetch"], answer["install"], answer["erdma"]["due"], answer["erdma"]["run"]) == (
        [],
        [],
        False,
        False,
    )
    assert answer["erdma"]["build"] == []


def test_an_installer_is_fetched_and_run_where_none_has() -> None:
    answer = made(block(installer="1.5.7"), **NONE)
    (fetch,) = answer["fetch"]
    assert fetch["url"] == "http://mirrors.cloud.aliyuncs.com/erdma/erdma_installer-1.5.7.tar.gz"
    assert (fetch["file"], fetch["sha256"], fetch["public"]) == ("", SHA256, False)
    assert "inside Alibaba Cloud only" in fetch["unreachable"]
    assert "what Alibaba publishes" in fetch["fix"]
    software = answer["erdma"]
    assert (software["due"], software["run"], software["archive"]) == (True, True, fetch["path"])
    assert fetch["path"] == f"/var/cache/gpuprov/erdma/{SHA256}.tar.gz"
    assert (software["mode"], software["kernels"], software["build"]) == ("compat", [KERNEL], [])
    assert (answer["of"], answer["install"]) == ("the eRDMA driver", NEEDS)


@run_each(
    ("asked", "text", "run"),
    [
        ({"installer": "1.5.7"}, said(RAN), False),
        ({"installer": "1.5.6"}, said(RAN), True),  # another one ran
        ({"installer": "1.5.7"}, said(), True),  # none ran, whatever is there
        ({"installer": "1.5.7"}, said(RAN, kernels=(f"{KERNEL}|1|1|||0",)), True),  # what it brought is gone
        ({"file": "erdma_installer-1.5.7.tar.gz", "sha256": SHA256.upper()}, said(RAN), False),
        ({"file": "erdma_installer-1.5.7.tar.gz", "sha256": "B" * 64}, said(RAN), True),
        ({"url": "https://x/erdma.tar.gz", "sha256": "B" * 64}, said(RAN), True),
        ({}, said(), False),
        ({"packages": ("erdma",)}, said("package|erdma|installed"), False),
    ],
)
def test_when_it_runs(asked: dict[str, Any], text: str, run: bool) -> None:
    answer = made(block(**asked), erdma=text)
    assert (answer["erdma"]["run"], len(answer["fetch"])) == (run, int(run))
    if run and "file" in asked:
        assert (answer["fetch"][0]["file"], answer["fetch"][0]["sha256"]) == (asked["file"], "b" * 64)


def test_kernels_that_lack_the_driver_get_a_build_and_what_it_needs() -> None:
    told = said(RAN, kernels=(GOOD, f"{OTHER}|0|0|||0"))
    answer = made(block(installer="1.5.7"), erdma=told)
    assert (answer["erdma"]["build"], answer["erdma"]["run"], answer["fetch"]) == ([OTHER], False, [])
    assert answer["install"] == [*NEEDS, f"linux-headers-{OTHER}"]
    there = "native|amd64\n" + "".join(f"ii |{name}|1|x|amd64\n" for name in NEEDS[:3])
    assert made(block(), erdma=told, erdma_build=there)["install"] == [*NEEDS[3:], f"linux-headers-{OTHER}"]
    rocky = made(
        block(), erdma=told, os_release=ROCKY, erdma_build="redhat|\nrpm|gcc-c++|0|11|1|x86_64|gcc-11-1.src.rpm\n"
    )
    assert rocky["install"] == ["dkms", "cmake", f"kernel-devel-{OTHER}"]
    outcome = CHECKS["rdma.erdma_function"].run(context(block(), erdma=told, os_release=SUSE))
    assert (outcome.status, "no names are known on openSUSE Leap 15.6" in outcome.found) == ("fail", True)


def test_compat_mode_needs_a_build_with_mad() -> None:
    simple = said(kernels=(f"{GOOD[:-1]}0",))
    answer = made(block(), erdma=simple)["erdma"]
    assert (answer["build"], answer["environment"]) == (
        [KERNEL], {"ERDMA_CM_NO_BOUND_IF": "1", "ERDMA_FORCE_MAD_ENABLE": "1"},
    )  # fmt: skip
    assert made(block(compat_mode=False), erdma=simple)["erdma"]["environment"] == {"ERDMA_CM_NO_BOUND_IF": "1"}
    zeronet = made(block(parameters={"use_zeronet": True}), erdma=simple)["erdma"]["environment"]
    assert zeronet == {"ERDMA_FORCE_MAD_ENABLE": "1"}


def test_packages_of_the_driver_are_installed_and_the_rest_is_built() -> None:
    assert made(block(packages=("erdma",)), **NONE)["install"] == [*NEEDS, "erdma"]
    assert made(block(packages=("erdma",)))["install"] == ["erdma"]
    assert made(block(stack="inbox", compat_mode=False))["erdma"]["due"] is False


def test_what_the_build_needs_is_read() -> None:
    for one in catalogue.read_erdma_file().build:
        for name in one.packages:
            plain = name.replace("{kernel}", "")
            assert plain.rstrip("-") in probe.BUILD.script.replace("\\+\\+", "++"), name


def efa(asked: Rdma, text: str) -> dict[str, Any]:
    return made(asked, efa=text, rdma_devices=efa_host.devices())


def test_awss_installer_is_fetched_where_it_has_not_run_just_so() -> None:
    asked = efa_host.block(installer="1.47.0")
    ran = efa(asked, efa_host.said())
    assert ran["fetch"] == []
    path = f"/var/cache/gpuprov/efa/{efa_host.SHA256}.tar.gz"
    assert ran["efa"] == {
        "state": "installed",
        "archive": path,
        "sha256": efa_host.SHA256,
        "kmod": True,
        "plugin": True,
        "mpi": "none",
    }
    never = efa(asked, efa_host.said(record=""))
    assert [(one["url"], one["path"], one["sha256"]) for one in never["fetch"]] == [
        (efa_catalogue.read_efa_file().at("1.47.0"), path, efa_host.SHA256)
    ]
    assert len(efa(efa_host.block(installer="1.47.0", mpi="openmpi5"), efa_host.said())["fetch"]) == 1
    beside = efa(efa_host.block(installer="", file="aws-efa-installer.tar.gz", sha256="C" * 64), efa_host.said())
    assert (beside["fetch"][0]["file"], beside["fetch"][0]["sha256"]) == ("aws-efa-installer.tar.gz", "c" * 64)
    none = efa(efa_host.block(installer=""), efa_host.said())
    assert (none["fetch"], none["efa"]) == ([], None)
    assert made(block())["efa"] is None


WANTED = "parameter compat_mode Y\nparameter default_cc -1\nmtu 8500\n"
NOT_FOUND = {"find": "exit 0"}
IP = 'echo "$*" >> {0}/ip; [ "$1 $2" = "link set" ] && echo "$6" > {0}/sys/class/net/$4/mtu'


def program(root: Path, *words: str, settings: str = WANTED, **programs: str) -> subprocess.CompletedProcess[str]:
    write(root, {"etc/gpuprov/erdma.conf": f"# managed\n{settings}"})
    env = environment(root, **({"ip": IP.format(root), "ls": 'exec /bin/ls "$@"'} | NOT_FOUND | programs))
    return at_boot.run(root, "rdma", MODULES, lambda text: here(root, text), *words, env=env)


def lonely(root: Path, **more: str) -> None:
    """A tree whose module nobody holds."""
    tree(root, **more)  # type: ignore[arg-type]
    (root / "sys/module/erdma/holders/smc/x").unlink()
    (root / "sys/module/erdma/holders/smc").rmdir()


@pytest.mark.install
def test_the_mtu_is_set_and_read_back(tmp_path: Path) -> None:
    lonely(tmp_path)
    done = program(tmp_path, "apply")
    assert (done.returncode, done.stdout) == (0, "MTU of eth1: 1500 -> 8500\n"), done.stderr
    assert (tmp_path / "ip").read_text() == "link set dev eth1 mtu 8500\n"
    assert program(tmp_path, "apply").stdout == "", "a second run changes nothing"


def test_an_mtu_that_is_not_taken(tmp_path: Path) -> None:
    lonely(tmp_path)
    done = program(tmp_path, "apply", ip="echo 'RTNETLINK answers: Invalid argument' >&2; exit 2")
    assert done.returncode == 1
    assert done.stderr == "erdma: MTU of eth1: 1500 -> 8500 (RTNETLINK answers: Invalid argument)\n"


LOAD = (
    'echo "$*" >> {0}/loads; mkdir -p {0}/sys/module/erdma/parameters; echo Y > '
    "{0}/sys/module/erdma/parameters/compat_mode; "
)
LOAD += "echo -1 > {0}/sys/module/erdma/parameters/default_cc; echo ABC > {0}/sys/module/erdma/srcversion"


@pytest.mark.install
def test_the_wrong_mode_is_loaded_anew(tmp_path: Path) -> None:
    lonely(tmp_path, mode="N")
    done = program(tmp_path, "apply", modprobe=LOAD.format(tmp_path), rmmod=f"rm -r {tmp_path}/sys/module/erdma")
    assert done.returncode == 0, done.stderr
    assert "loaded anew for compat_mode: N -> Y" in done.stdout
    assert (tmp_path / "loads").read_text() == "erdma\n"


def test_a_driver_that_is_held_is_left_alone(tmp_path: Path) -> None:
    tree(tmp_path, mode="N")
    done = program(tmp_path, "apply", rmmod=f"touch {tmp_path}/unloaded")
    assert done.returncode == 1
    assert "read-only while it is loaded (compat_mode: N -> Y), and it is held by: module smc" in done.stderr
    assert not (tmp_path / "unloaded").exists()


def test_a_driver_that_does_not_take_the_mode(tmp_path: Path) -> None:
    lonely(tmp_path, mode="N")
    kernels = f"mkdir -p {tmp_path}/sys/module/erdma"
    done = program(tmp_path, "apply", modprobe=kernels, rmmod=f"rm -r {tmp_path}/sys/module/erdma")
    assert done.returncode == 1
    assert "does not take compat_mode: none -> Y" in done.stderr


@pytest.mark.install
def test_what_cannot_be_loaded_and_what_does_not_come(tmp_path: Path) -> None:
    lonely(tmp_path)
    subprocess.run(["rm", "-r", str(tmp_path / "sys/module/erdma")], check=True)
    done = program(tmp_path, "apply", modprobe="echo 'Unknown symbol in module' >&2; exit 1")
    assert done.stderr == "erdma: the driver cannot be loaded: Unknown symbol in module\n"
    lonely_again = tmp_path / "again"
    lonely(lonely_again)
    (lonely_again / "sys/class/infiniband/erdma_0/device").unlink()
    done = program(lonely_again, "apply", "1", sleep="exit 0")
    assert "not every eRDMA function has a device with a network interface" in done.stderr
    assert "0000:00:06.0" in done.stderr


def test_usage(tmp_path: Path) -> None:
    done = program(tmp_path, "boot")
    assert (done.returncode, "usage: erdma apply" in done.stderr) == (1, True)
