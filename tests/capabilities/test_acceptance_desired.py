"""acceptance: what the role brings about."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from gpuprov.capabilities.acceptance.desired import DESIRED
from gpuprov.capabilities.acceptance.fragment import Acceptance, Nccl, NvBandwidth, RdmaTests, Source, Stream
from gpuprov.catalog import acceptance as catalogue
from gpuprov.facts.probes.acceptance import build
from tests.capabilities import contexts
from tests.capabilities.acceptance_host import tools
from tests.capabilities.asking import good

SUM = "0123456789abcdef" * 4
BUILT = Acceptance(nccl=Nccl(source=Source(url="https://mirror.example/nccl-tests.tar.gz", sha256=SUM)))
ROCKY = 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\n'
SLES = 'ID="sles"\nID_LIKE="suse"\nVERSION_ID="15.6"\n'


def made(block: Acceptance, **changed: str) -> dict[str, Any]:
    told = {"acceptance_packages": "native|amd64\n", "acceptance_tools": tools(), "rdma_devices": "", **changed}
    return dict(DESIRED.make(contexts.context("acceptance", contexts.spec(acceptance=block), told)))


@pytest.mark.parametrize(
    ("release", "there", "expected"),
    [
        ("", "native|amd64\n", ["build-essential", "libnccl-dev"]),
        ("", "native|amd64\nii |build-essential|12.9|build-essential|amd64\n", ["libnccl-dev"]),
        (ROCKY, "", ["gcc-c++", "make", "libnccl-devel"]),
        (SLES, "", []),
    ],
)
def test_what_a_build_needs(release: str, there: str, expected: list[str]) -> None:
    changed = {"os_release": release} if release else {}
    found = made(
        BUILT, **changed, **({"acceptance_packages": there} if there else {"acceptance_packages": "redhat|\n"})
    )
    assert found["install"] == expected


@pytest.mark.parametrize("release", ["", ROCKY, SLES])
def test_stress_ng_is_installed_where_stream_is_asked_for(release: str) -> None:
    changed = {"os_release": release, "acceptance_packages": "redhat|\n"} if release else {}
    assert made(Acceptance(stream=Stream(seconds=30)), **changed)["install"] == ["stress-ng"]
    assert made(Acceptance(), **changed)["install"] == []


def test_what_is_built() -> None:
    folder = "/opt/gpuprov/acceptance/nccl-0123456789ab"
    tasks = made(BUILT)["tasks"]
    (one,), (fetched,) = tasks["tool_build"], tasks["fetch"]
    assert (one["folder"], one["program"], one["mpi"]) == (folder, "all_reduce_perf", False)
    assert one["archive"] == fetched["path"]
    assert (fetched["path"], fetched["url"], fetched["file"], fetched["sha256"], fetched["of"]) == (
        f"{folder}.archive", "https://mirror.example/nccl-tests.tar.gz", "", SUM, "acceptance.nccl.source",
    )  # fmt: skip
    assert made(BUILT, acceptance_tools=tools(built="nccl-0123456789ab|"))["tasks"]["tool_build"] == []
    source = Source(file="/srv/a.tar", sha256=SUM)
    both = Acceptance(nccl=Nccl(source=source, across=True), nvbandwidth=NvBandwidth(source=source))
    assert [
        [one[key] for key in ("name", "folder", "program", "mpi")] for one in made(both)["tasks"]["tool_build"]
    ] == [
        ["nccl", f"{folder}-mpi", "all_reduce_perf", True],
        ["nvbandwidth", "/opt/gpuprov/acceptance/nvbandwidth-0123456789ab", "nvbandwidth", False],
    ]
    assert {"cmake", "libboost-program-options-dev", "libnccl-dev"} <= set(made(both)["install"])


def test_tools_between_hosts_are_for_hosts_with_a_fabric() -> None:
    block = Acceptance(rdma=RdmaTests(tests=("write_bw", "ping")))
    assert made(block)["install"] == []
    device = good()["rdma_devices"]
    assert isinstance(device, str)
    assert made(block, rdma_devices=device)["install"] == ["perftest", "rdmacm-utils", "infiniband-diags"]


def test_the_probe_knows_every_package_of_the_catalogue() -> None:
    known = catalogue.read_acceptance_file()
    assert {one.debian for one in known.tools} | {name for one in known.builds for name in one.debian} == set(
        build.DEBIAN
    )
    rpm = {name for one in known.tools for name in (one.redhat, one.suse) if name}
    assert rpm | {name for one in known.builds for name in one.redhat} == set(build.RPM)


def test_a_name_with_a_plus_is_found_among_rpms() -> None:
    line = "rpm|gcc-c++|0|11.4.1|3.el9|x86_64|gcc-11.4.1-3.el9.src.rpm"
    script = build.PACKAGES.script
    assert "gcc-c[+][+]" in script
    pattern = next(part for part in script.split("'") if "gcc-c[+][+]" in part)
    assert subprocess.run(["grep", "-E", pattern], input=line, capture_output=True, text=True, check=False).stdout
