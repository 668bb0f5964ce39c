"""hpc: whose Open MPI and UCX a host should have, HPC-X, NCCL's plugin, and what they say of the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.cuda_toolkit.fragment import CudaToolkit
from gpuprov.capabilities.hpc import CAPABILITY, doubts, export
from gpuprov.capabilities.hpc.desired import make as make_values
from gpuprov.capabilities.hpc.fragment import Hpc, Hpcx
from gpuprov.capabilities.hpc.rules import NAME, rules
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl.fragment import Nccl
from gpuprov.catalog import hpc as catalogue
from gpuprov.catalog.hpc import LINKER
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.fleet.specs import load_fleet
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from tests.capabilities import contexts, ofed_host
from tests.capabilities import hpc_host as hh
from tests.capabilities.asking import CHECKS, Row, expect, facts, good, with_own_files
from tests.rows import run_each

make: Callable[..., Any] = make_values


URL = f"https://content.example/{hh.FOLDER}.tbz"
OPENMPI = Hpc()
CUDA = Hpc(cuda_aware=True)
HPCX = Hpc(mpi="hpcx", hpcx=Hpcx(url=URL, sha256=hh.SHA))
ANY = Hpc(mpi="hpcx")
SHARP = Rdma(stack="doca-ofed", nccl=Nccl(sharp=True))
OFED, INBOX = Rdma(stack="doca-ofed"), Rdma()
UBUNTU = {"os_release": ofed_host.UBUNTU}
NONE = {"hpc_packages": "native|amd64\n"}
X = {"hpc": hh.hpcx()}
OLD = {name: version.replace("2510171", "2507096") for name, version in hh.DOCA.items()}
ARM = Hpc(mpi="hpcx", hpcx=Hpcx(url=URL.replace("x86_64", "aarch64"), sha256=hh.SHA))
RHEL = Hpc(mpi="hpcx", hpcx=Hpcx(url=URL.replace("ubuntu24.04", "redhat9"), sha256=hh.SHA))
MIXED = hh.packages(openmpi=hh.DOCA["openmpi"], ucx=hh.DOCA["ucx"], openmpi_bin=hh.MPI, libucx0=hh.UCX)

ROWS: list[tuple[Rdma | None, Row]] = [
    (None, Row("openmpi", "hpc.fits", OPENMPI, {}, "n/a")),
    (None, Row("fits", "hpc.fits", HPCX, UBUNTU, "pass", hh.FOLDER)),
    (None, Row("for another processor", "hpc.fits", ARM, UBUNTU, "fail", "ubuntu24.04, aarch64", "for this host")),
    (None, Row("for another family", "hpc.fits", RHEL, UBUNTU, "fail", "redhat9", "for this host")),
    (None, Row("for its kin", "hpc.fits", RHEL, {"os_release": ofed_host.ROCKY.format("9.6", "9.6")}, "pass")),
    (None, Row("somebody else's folder", "hpc.fits", HPCX, {**UBUNTU, "hpc": hh.said("foreign|")}, "fail", hh.PLACE,
               "mv /opt/")),
    (None, Row("a folder in the link's place", "hpc.fits", HPCX, {**UBUNTU, "hpc": hh.said("folder|")}, "fail",
               "/opt/hpcx exists")),
    (None, Row("offered", "hpc.resolvable", OPENMPI, NONE, "pass", f"openmpi-bin {hh.MPI}",
               change=f"package ucx-utils:  -> {hh.UCX}")),
    (None, Row("not offered", "hpc.resolvable", OPENMPI, {**NONE, "hpc_index": ""}, "fail", "openmpi-bin ucx-utils",
               "repositories")),
    (None, Row("an OFED's alone is offered", "hpc.resolvable", OPENMPI,
               {**NONE, "hpc_index": hh.offers({"openmpi-bin": hh.DOCA["openmpi"], "ucx-utils": hh.DOCA["ucx"]})},
               "fail", "in step")),
    (None, Row("hpcx has its own", "hpc.resolvable", HPCX, NONE, "n/a")),
    (OFED, Row("they come with doca-ofed", "hpc.resolvable", OPENMPI, {**NONE, "ofed_packages": "native|amd64\n"},
               "pass",
               "come with doca-ofed")),
    (OFED, Row("of the OFED's level", "hpc.resolvable", OPENMPI, {**NONE, "hpc_index": hh.offers(OLD, hh.DOCA)}, "pass",
               "openmpi 4.1.9a1-1.2510171")),
    (OFED, Row("of another level alone", "hpc.resolvable", OPENMPI, {**NONE, "hpc_index": hh.offers(OLD)}, "fail",
               "openmpi ucx")),
    (None, Row("installed", "hpc.packages", OPENMPI, {}, "pass", f"ucx-utils {hh.UCX}")),
    (None, Row("none", "hpc.packages", OPENMPI, NONE, "fail", "not installed: openmpi-bin ucx-utils", "gpuprov apply")),
    (None, Row("half installed", "hpc.packages", OPENMPI,
               {"hpc_packages": hh.INSTALLED["hpc_packages"].replace("hi |ucx", "iF |ucx")}, "fail",
               "incomplete: ucx-utils")),
    (None, Row("an OFED's on the kernel's own stack", "hpc.packages", OPENMPI,
               {"hpc_packages": hh.packages(openmpi_bin=hh.DOCA["openmpi"], ucx_utils=hh.DOCA["ucx"])}, "fail",
               "another source")),
    (OFED, Row("of DOCA", "hpc.packages", OPENMPI, {}, "pass", "openmpi 4.1.9a1-1.2510171")),
    (OFED, Row("of an older OFED", "hpc.packages", OPENMPI, {"hpc_packages": hh.packages(**OLD)}, "fail",
               "ucx 1.20.0-1.2507096",
               "gpuprov apply")),
    (OFED, Row("of both", "hpc.packages", OPENMPI, {"hpc_packages": MIXED}, "fail", "libucx0",
               "apt-get remove openmpi-bin libucx0")),
    (OFED, Row("of both, beside hpcx", "hpc.packages", HPCX, {"hpc_packages": MIXED}, "fail", "libucx0")),
    (None, Row("hpcx is not a package", "hpc.packages", HPCX, NONE, "n/a")),
    (None, Row("held", "hpc.held", OPENMPI, {}, "pass", "3 packages held")),
    (None, Row("not held", "hpc.held", OPENMPI, {"hpc_packages": hh.INSTALLED["hpc_packages"].replace("hi |", "ii |")},
               "fail",
               "not held", "apt-mark hold")),
    (None, Row("not to be held", "hpc.held", Hpc(hold=False), {}, "fail", "held: ", "apt-mark unhold")),
    (None, Row("no package to hold", "hpc.held", HPCX, NONE, "n/a")),
    (None, Row("openmpi has no folder", "hpc.hpcx", OPENMPI, {}, "n/a", "mpi is openmpi")),
    (None, Row("the release", "hpc.hpcx", HPCX, X, "pass", hh.PLACE)),
    (None, Row("not there", "hpc.hpcx", HPCX, {}, "fail", "leads to nothing",
               "gpuprov apply", change=f"package /opt/hpcx:  -> {hh.PLACE}")),
    (None, Row("another archive", "hpc.hpcx", HPCX, {"hpc": hh.hpcx(mark='{"sha256": "00"}')}, "fail", "SHA-256 00")),
    (None, Row("another's", "hpc.hpcx", HPCX, {"hpc": hh.hpcx(mark="[]")}, "fail", "gpuprov did not unpack it")),
    (None, Row("any release", "hpc.hpcx", ANY, {"hpc": hh.hpcx(link="/opt/other", mark="")}, "pass", "/opt/other")),
    (None, Row("none of the site's", "hpc.hpcx", ANY, {}, "fail", "not there", "ln -s")),
    (None, Row("it runs", "hpc.mpi", OPENMPI, {}, "pass", "/usr/bin/mpirun, mpirun (Open MPI) 4.1.6")),
    (None, Row("Debian's calls itself OpenRTE", "hpc.mpi", OPENMPI,
               {"hpc": hh.said(output="mpirun.openmpi (OpenRTE) 4.1.4")}, "pass", "OpenRTE")),
    (OFED, Row("DOCA's", "hpc.mpi", OPENMPI, {}, "pass", "/usr/mpi/gcc")),
    (OFED, Row("the distribution's alone", "hpc.mpi", OPENMPI, {"hpc": hh.said()}, "fail", "no mpirun",
               "hpc.packages")),
    (None, Row("with CUDA", "hpc.mpi", msgspec.structs.replace(HPCX, cuda_aware=True), X, "pass", "with CUDA")),
    (None, Row("without CUDA", "hpc.mpi", CUDA, {}, "fail", "without CUDA", "mpi: hpcx")),
    (None, Row("without UCX", "hpc.mpi", OPENMPI, {"hpc": hh.said(pml=False)}, "fail", "without UCX")),
    (None, Row("a library is missing", "hpc.mpi", OPENMPI,
               {"hpc": hh.said(output="mpirun: error while loading shared libraries")},
               "fail", "error while loading", "--version")),
    (None, Row("devices", "hpc.ucx", OPENMPI, {}, "pass", "UCX 1.16.0: ibp59s0 ibp94s0")),
    (None, Row("an older UCX tells no path", "hpc.ucx", OPENMPI, {"hpc": hh.said(library="")}, "pass")),
    (None, Row("no ucx_info", "hpc.ucx", OPENMPI, {"hpc": hh.said(ucx="")}, "fail", "no ucx_info", "hpc.packages")),
    (None, Row("ucx_info fails", "hpc.ucx", OPENMPI, {"hpc": hh.said("ucx|libucs.so.0: cannot open", ucx="")}, "fail",
               "cannot open")),
    (None, Row("an adapter is not listed", "hpc.ucx", OPENMPI, {"hpc": hh.said(devices=("ibp59s0",))}, "fail",
               "does not list ibp94s0",
               "/dev/infiniband")),
    (None, Row("hpcx loads the distribution's", "hpc.ucx", HPCX, {"hpc": hh.hpcx(library="/usr/lib/libucs.so.0")},
               "fail",
               "another one's",
               "LD_LIBRARY_PATH")),
    (None, Row("the distribution's loads hpcx'", "hpc.ucx", OPENMPI,
               {"hpc": hh.said(library="/opt/hpcx/ucx/lib/libucs.so.0")}, "fail",
               "another one's")),
    (None, Row("by the folder's own name", "hpc.ucx", HPCX, {"hpc": hh.hpcx(library=f"{hh.PLACE}/ucx/lib/libucs.so.0")},
               "pass")),
    (None, Row("GPU memory", "hpc.ucx", msgspec.structs.replace(HPCX, cuda_aware=True), X, "pass",
               "cuda_copy gdr_copy")),
    (None, Row("no GPU memory", "hpc.ucx", CUDA, {}, "fail", "no transport cuda_copy", "nvidia_driver.loaded")),
    (OFED, Row("no SHARP", "hpc.plugin", HPCX, X, "n/a", "rdma.nccl.sharp does not ask for it")),
    (SHARP, Row("openmpi has none", "hpc.plugin", OPENMPI, {}, "n/a", "mpi is openmpi")),
    (SHARP, Row("the plugin", "hpc.plugin", HPCX, X, "pass", "libsharp_coll.so.5 /opt/hpcx/sharp/lib")),
    (SHARP, Row("no plugin", "hpc.plugin", HPCX, {"hpc": hh.said(f"link|{hh.PLACE}")}, "fail",
                "finds no libnccl-net.so",
               "gpuprov apply")),
    (SHARP, Row("another comes first", "hpc.plugin", HPCX, {"hpc": hh.hpcx(lib="/opt/amazon/lib/libnccl-net.so")},
                "fail",
               "comes first")),
    (SHARP, Row("of another CUDA", "hpc.plugin", HPCX, {"hpc": hh.hpcx("lost|libcudart.so.13")}, "fail",
               "lacks libcudart.so.13", "CUDA")),
]  # fmt: skip


def host(**blocks: Fragment | None) -> HostSpec:
    return HostSpec(name="gpu1", capabilities={name: block for name, block in blocks.items() if block})


def on(model: str) -> HostSpec:
    return HostSpec(name="gpu1", gpu=GpuSpec(model=model))


def told(rdma: Rdma | None, changed: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of a host with what it should have; Ubuntu where it has OFED."""
    base = {**hh.WITH_OFED, **UBUNTU} if rdma and rdma.own_stack == "doca-ofed" else hh.INSTALLED
    return {**good(), **base, **changed}


@run_each(("rdma", "row"), [pytest.param(*each, id=f"{each[1].check}-{each[1].name}") for each in ROWS])
def test_checks(rdma: Rdma | None, row: Row) -> None:
    check = CHECKS[row.check]
    block = row.fragment
    assert isinstance(block, Hpc)
    texts = {probe.name: told(rdma, row.changed)[probe.name] for probe in check.probes}
    outcome = check.run(Context(host(hpc=block, rdma=rdma), block, facts(**texts)))
    expect(outcome, row.status, row.found, row.fix, row.change)
    assert bool(outcome.fix) == (row.status == "fail"), outcome


def context(block: Hpc, changed: Mapping[str, Any] | None = None, rdma: Rdma | None = None) -> Context[Hpc]:
    return contexts.context("hpc", host(hpc=block, rdma=rdma), told(rdma, changed or {}))


@run_each(("block", "rdma"), [(OPENMPI, None), (OPENMPI, OFED), (ANY, None)])
def test_a_host_with_everything_gets_nothing_new(block: Hpc, rdma: Rdma | None) -> None:
    made = make(context(block, {} if block.mpi == "openmpi" else X, rdma))
    assert (made["install"], made["tasks"]) == ([], {"command": []})


def test_packages_are_installed_in_step_and_held() -> None:
    assert make(context(OPENMPI, NONE))["install"] == [f"openmpi-bin={hh.MPI}", f"ucx-utils={hh.UCX}"]
    made = make(context(OPENMPI, {"hpc_packages": hh.packages(**OLD), "hpc_index": hh.offers(hh.DOCA)}, OFED))
    assert made["install"] == [f"{name}={version}" for name, version in hh.DOCA.items()]
    assert make(context(OPENMPI, {**NONE, "ofed_packages": "native|amd64\n"}, OFED))["install"] == []
    assert make(context(OPENMPI))["held"] == {"hold": ["openmpi-bin", "ucx-utils", "libucx0"], "release": []}
    with pytest.raises(ProbeFailed, match="no package source of the host has openmpi-bin"):
        make(context(OPENMPI, {**NONE, "hpc_index": ""}))
    with pytest.raises(ProbeFailed, match="no packages of Open MPI are known for SLES"):
        make(context(OPENMPI, {"os_release": 'ID=sles\nPRETTY_NAME="SLES 15"\nVERSION_ID=15.7\nID_LIKE=suse\n'}))


def test_hpcx_is_fetched_unpacked_and_found_by_the_linker() -> None:
    made = make(context(HPCX, {"hpc": hh.said(mpirun="", ucx="")}, SHARP))
    tasks = made["tasks"]
    assert tasks["fetch"]["url"] == URL
    assert not tasks["fetch"]["file"]
    assert tasks["hpcx"] == {"archive": tasks["fetch"]["path"], "sha256": hh.SHA, "folder": hh.FOLDER}
    assert tasks["command"] == [{"argv": ["ldconfig"]}]
    folders = made["files"][LINKER].splitlines()[1:]
    assert folders == ["/opt/hpcx/nccl_rdma_sharp_plugin/lib", "/opt/hpcx/sharp/lib"], "DOCA-OFED has the one UCX"
    made = make(context(HPCX, {**X, **NONE}, Rdma(nccl=Nccl(sharp=True))))
    assert made["files"][LINKER].endswith("/opt/hpcx/ucx/lib\n"), "no package has one"
    assert LINKER in make(context(HPCX, X, OFED))["absent"]
    assert not make(context(HPCX, X, OFED))["tasks"]["command"]
    assert make(context(HPCX, {"hpc": hh.hpcx("conf|")}, OFED))["tasks"]["command"], "the cache forgets what was there"
    assert make(context(HPCX, {"hpc": hh.hpcx("lost|libsharp_coll.so.5")}, SHARP))["tasks"]["command"]


def test_the_module_of_hpcx_goes_with_it() -> None:
    (module,) = (path for path in make(context(HPCX, X))["files"] if "modulefiles" in path)
    assert module == "/usr/share/modules/modulefiles/mpi/hpcx"
    assert module in make(context(OPENMPI))["absent"]


@run_each(
    ("block", "spec", "expected"),
    [
        (OPENMPI, host(), []),
        (OPENMPI, host(rdma=SHARP), []),
        (CUDA, host(rdma=INBOX), ["hpc.cuda_aware is true, and the distribution's own UCX is built without CUDA"]),
        (CUDA, host(rdma=OFED), []),
        (HPCX, host(rdma=SHARP), []),
        (ANY, host(rdma=SHARP), []),
        (HPCX, host(rdma=INBOX), ["hpc.hpcx.url is built for doca_ofed, and rdma.stack is inbox"]),
        (Hpc(mpi="hpcx", hpcx=Hpcx(url=URL.replace("doca_ofed", "inbox"), sha256=hh.SHA)), host(rdma=OFED),
         ["hpc.hpcx.url is built for inbox, and rdma.stack is doca-ofed"]),
        (Hpc(mpi="hpcx", hpcx=Hpcx(url=URL.replace("cuda12", "cuda13"), sha256=hh.SHA)),
         host(nvidia_driver=NvidiaDriver(version="550")),
         ["hpc.hpcx.url is built for CUDA 13, which driver 550 does not run"]),
        (HPCX, host(cuda_toolkit=CudaToolkit(versions=("13.0",))),
         ["hpc.hpcx.url is built for CUDA 12, and cuda_toolkit has 13 alone"]),
        (HPCX, host(cuda_toolkit=CudaToolkit(versions=("12.8",)), nvidia_driver=NvidiaDriver(version="580")), []),
        (Hpc(mpi="hpcx", hpcx=Hpcx(url=URL)), host(), ["hpc.hpcx.sha256 is missing"]),
        (Hpc(mpi="hpcx", hpcx=Hpcx(sha256=hh.SHA)), host(), ["hpc.hpcx.sha256 is of no file"]),
        (Hpc(mpi="hpcx", hpcx=Hpcx(url=URL, file="x.tbz", sha256=hh.SHA)), host(), ["hpc.hpcx has both url and file"]),
        (Hpc(mpi="hpcx", hpcx=Hpcx(file=f"/none/{NAME}", sha256=hh.SHA)), host(),
         [f"hpc.hpcx.file /none/{NAME} is not there"]),
        (Hpc(mpi="hpcx", hpcx=Hpcx(url="https://x/hpcx.tbz", sha256=hh.SHA)), host(),
         ["hpc.hpcx.url is not named as NVIDIA names"]),
        *[(Hpc(mpi="hpcx", hpcx=Hpcx(url=URL.replace(*words), sha256=hh.SHA)), host(), [f"hpc.hpcx.url {expected}"])
          for words, expected in (
              (("ubuntu24.04", "windows10"), "names an unknown distribution: windows10"),
              (("-gcc-", "-icc-"), "names an unknown compiler: icc"),
              (("cuda12", "cuda99"), "names an unknown CUDA: 99"),
          )],
        (HPCX, on("GB200"), ["hpc.hpcx.url is built for x86_64, and the processor of a GB200 is aarch64"]),
        (HPCX, on("p6e-gb200.36xlarge"), ["hpc.hpcx.url is built for x86_64, and the processor of a GB200 is aarch64"]),
        (ARM, on("GH200-96GB"), []),
        (ARM, on("H100-SXM5-80GB"),
         ["hpc.hpcx.url is built for aarch64, and hosts of HGX H100 8-GPU, DGX H100 are mostly x86_64"]),
        (ARM, on("L40S"), []),
    ],
)  # fmt: skip
def test_rules(block: Hpc, spec: HostSpec, expected: list[str]) -> None:
    problems = list(rules(spec, block))
    assert len(problems) == len(expected), problems
    assert all(text in problem.message and problem.fix for problem, text in zip(problems, expected, strict=True)), (
        problems
    )


def test_the_preflight_of_sharp_counts_what_hpc_brings() -> None:
    check = CHECKS["rdma.nccl_named"]
    texts = {**good(), "nccl": "netdev|eth0\n"}
    for hpc, status in ((HPCX, "n/a"), (OPENMPI, "fail"), (None, "fail")):
        ctx = with_own_files(check, SHARP, {p.name: texts[p.name] for p in check.probes}, host(rdma=SHARP, hpc=hpc))
        outcome = check.run(ctx)
        assert outcome.status == status, outcome
        assert status != "fail" or "hpc: {hpcx: {url:" in outcome.fix


JOB = """\
all:
  hosts: {gpu1: {}}
  vars:
    gpuprov:
      gpu: {model: H100-SXM5-80GB, count: 8}
      nvidia_driver: {version: "580", source: nvidia}
      cuda_toolkit: {versions: ["12.8"], nccl: "2"}
      rdma: {fabric: infiniband, stack: doca-ofed, count: 2, rate: 400, opensm: {elsewhere: true}, nccl: {sharp: true}}
      gpudirect_rdma: {}
      slurm: {gres: nvml}
      gds: {}
      hpc: {hpcx: {url: URL, sha256: SHA}}
"""


def test_a_cluster_of_hgx_with_sharp_is_not_refused_before_anything_is_installed(tmp_path: Path) -> None:
    """A site's spec for HGX H100, InfiniBand and Slurm: no check of the preflight waits for hands."""
    (tmp_path / "inventory.yaml").write_text(JOB.replace("URL", URL).replace("SHA", hh.SHA))
    ((_, spec),) = load_fleet([str(tmp_path / "inventory.yaml")], None, cache=False).pairs
    texts = {**good(), **UBUNTU, "ofed_index": ofed_host.index(), "nccl": "netdev|eth0\n"}
    asked = [check for check in CHECKS.values() if check.moment == "preflight" and check.capability in ("hpc", "rdma")]
    for check in asked:
        block = spec.capabilities[check.capability]
        outcome = check.run(Context(spec, block, facts(**{probe.name: texts[probe.name] for probe in check.probes})))
        assert outcome.status in ("pass", "n/a"), (check.id, outcome)


def test_export() -> None:
    def on(**texts: str) -> Fragment | None:
        told = {**good(), **texts}
        return export(facts(**{probe.name: told[probe.name] for probe in CAPABILITY.export_probes}))

    assert on() is None
    assert on(**hh.INSTALLED) == Hpc()
    assert on(**X) == Hpc(mpi="hpcx")
    known = facts(**{**good(), "hpc_packages": MIXED})
    assert list(doubts(known)) == [
        f"Open MPI and UCX of two origins: openmpi {hh.DOCA['openmpi']}, ucx {hh.DOCA['ucx']}, openmpi-bin "
        f"{hh.MPI}, libucx0 {hh.UCX}"
    ]
    assert not list(doubts(facts(**{**good(), **hh.INSTALLED})))


@run_each(
    ("version", "level"),
    [("1.16.0-1.2310119", "23.10"), ("2507mlnx58-1.2507097", "25.07"), ("4.8.3230-1.2410068", "24.10"),
     ("3.5.1.MLNX20231116.7fcef5af-1.2310119", "23.10"), ("1.13.1-1", ""), ("1.16.0+ds-5ubuntu1", ""),
     ("4.1.4-3+b1", "")],
)  # fmt: skip
def test_the_level_of_a_version(version: str, level: str) -> None:
    assert catalogue.parse_level(version) == level


def test_the_name_of_an_archive(tmp_path: Path) -> None:
    archive = catalogue.parse_archive(f"{tmp_path}/{NAME}")
    assert archive is not None
    assert (archive.version, archive.stack, archive.distribution, archive.cuda) == (
        "2.25.1",
        "doca-ofed",
        "ubuntu24.04",
        "13",
    )
    old = catalogue.parse_archive("hpcx-v2.18-gcc-mlnx_ofed-redhat8-cuda12-x86_64.tbz")
    assert old is not None
    assert (old.version, old.stack) == ("2.18", "doca-ofed")
    assert catalogue.parse_archive("hpcx.tbz") is None
