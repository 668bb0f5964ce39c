"""gds: packages, configuration, and what gdscheck says of file systems."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from gpuprov.capabilities.answers import HEADER
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.cuda_toolkit.fragment import CudaToolkit
from gpuprov.capabilities.gds import CAPABILITY, export
from gpuprov.capabilities.gds.desired import make as make_values
from gpuprov.capabilities.gds.fragment import Gds, settings
from gpuprov.capabilities.gds.rules import contribute, rules
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from tests.capabilities import contexts, ofed_host
from tests.capabilities import gds_host as gd
from tests.capabilities.asking import CHECKS, PODMAN, Row, facts, judge
from tests.rows import run_each

make: Callable[..., Any] = make_values


RESOLVABLE, SUPPORTED, PACKAGES, MODULE, LINK, DIRECT = (
    f"gds.{name}" for name in ("resolvable", "supported", "packages", "module", "configuration", "direct")
)
BLOCK = Gds(toolkit="12.8")
DENY = Gds(toolkit="12.8", compat_mode="deny")
P2P = Gds(toolkit="12.8", path="p2pdma", file_systems=("nvme",))
NVME = Gds(toolkit="12.8", file_systems=("nvme",))
DFS = Gds(toolkit="12.8", file_systems=("lustre", "weka", "gpfs"))
BARE = {"gds_packages": "native|amd64\n"}
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (dvs-builder@U22)\n"

ROWS = [
    Row("installed", RESOLVABLE, BLOCK, {}, "pass", f"gds-tools-12-8 {gd.VERSION}"),
    Row("offered", RESOLVABLE, BLOCK, BARE, "pass", "nvidia-fs-dkms 2.24.2-1",
        change="package nvidia-fs-dkms:  -> 2.24.2-1"),
    Row("p2pdma takes no nvidia-fs", RESOLVABLE, P2P, {**BARE, "gds_index": gd.offers(nvidia_fs_dkms="")}, "pass"),
    Row("no nvidia-fs", RESOLVABLE, BLOCK, {**BARE, "gds_index": gd.offers(nvidia_fs_dkms="")}, "fail",
        "no package source of the host has nvidia-fs-dkms", "nvidia-fs-downloads"),
    Row("not one version", RESOLVABLE, BLOCK, {**BARE, "gds_index": gd.offers(gds_tools_12_8="1.13.0.11-1")}, "fail",
        "has libcufile-12-8 gds-tools-12-8, in one version", "nvidia_driver.source"),
    Row("the tools in the version of the installed library", RESOLVABLE, BLOCK,
        {"gds_packages": gd.packages(gds_tools_12_8="", libcufile_12_8="1.13.0.11-1"),
         "gds_index": gd.offers(libcufile_12_8="1.13.1.3-1 1.13.0.11-1", gds_tools_12_8="1.13.1.3-1 1.13.0.11-1")},
        "pass", "gds-tools-12-8 1.13.0.11-1"),
    Row("the library moves where the tools are not offered in its version", RESOLVABLE, BLOCK,
        {"gds_packages": gd.packages(gds_tools_12_8="", libcufile_12_8="1.13.0.11-1")},
        "pass", change="package libcufile-12-8: 1.13.0.11-1 -> 1.13.1.3-1"),
    Row("no release named, one installed", RESOLVABLE, Gds(), {}, "pass", f"gds-tools-12-8 {gd.VERSION}"),
    Row("no release named, the newest that the driver runs", RESOLVABLE, Gds(),
        {**BARE, "gds_index": gd.offers() + gd.offers(libcufile_13_0="1.15.1.6-1", gds_tools_13_0="1.15.1.6-1"),
         "driver_libraries": "", "loaded_driver": OPEN.format("570.172.08")}, "pass", "libcufile-12-8 1.13.1.3-1"),
    Row("no release named, a newer driver", RESOLVABLE, Gds(),
        {**BARE, "gds_index": gd.offers(libcufile_13_0="1.15.1.6-1", gds_tools_13_0="1.15.1.6-1"),
         "driver_libraries": "", "loaded_driver": OPEN.format("580.95.05")}, "pass", "libcufile-13-0 1.15.1.6-1"),
    Row("no release named, and none there", RESOLVABLE, Gds(),
        {**BARE, "gds_index": gd.offers(libcufile_12_8="", gds_tools_12_8="")},
        "fail", "has libcufile-X-Y gds-tools-X-Y, in one version"),
    Row("open modules", SUPPORTED, BLOCK, {"loaded_driver": OPEN.format("580.95.05")}, "pass", "nvidia-fs"),
    Row("proprietary modules", SUPPORTED, BLOCK, {"loaded_driver": CLOSED}, "fail", "proprietary",
        "kernel_modules: open"),
    Row("proprietary modules on disk", SUPPORTED, BLOCK, {**gd.state(licence="NVIDIA"), "loaded_driver": ""}, "fail",
        "proprietary"),
    Row("no driver yet", SUPPORTED, BLOCK, {**gd.state(licence=""), "loaded_driver": ""}, "pass"),
    Row("p2pdma", SUPPORTED, P2P, {"loaded_driver": OPEN.format("580.95.05")}, "pass", "p2pdma, kernel 6.8.0"),
    Row("Ubuntu's old kernel", SUPPORTED, P2P, {**gd.state(kernel="5.15.0-101-generic"),
                                                "loaded_driver": OPEN.format("580.95.05")},
        "fail", "kernel 5.15.0-101-generic", "path: nvidia-fs"),
    Row("an old kernel with p2pdma", SUPPORTED, P2P,
        {**gd.state(kernel="5.14.0-570.el9.x86_64", system="rhel"), "loaded_driver": OPEN.format("580.95.05")}, "pass"),
    Row("a kernel without p2pdma", SUPPORTED, P2P, {**gd.state(p2pdma="no"), "loaded_driver": OPEN.format("580.95.05")},
        "fail",
        "has no PCI P2PDMA"),
    Row("an old driver", SUPPORTED, P2P, {"loaded_driver": OPEN.format("550.54.15")}, "fail", "driver 550.54.15",
        "a newer driver"),
    Row("packages", PACKAGES, BLOCK, {}, "pass", "of CUDA 12.8.1"),
    Row("none", PACKAGES, BLOCK, BARE, "fail", "not installed: libcufile-12-8 gds-tools-12-8 nvidia-fs-dkms",
        "gpuprov apply"),
    Row("no release named, packages", PACKAGES, Gds(), {}, "pass", "of CUDA 12.8.1"),
    Row("no release named, none", PACKAGES, Gds(), BARE, "fail",
        "not installed: libcufile-X-Y gds-tools-X-Y nvidia-fs-dkms"),
    Row("half installed", PACKAGES, BLOCK, {"gds_packages": gd.packages().replace("ii |nvidia-fs", "iF |nvidia-fs")},
        "fail",
        "incomplete: nvidia-fs-dkms", "dpkg --configure"),
    Row("two versions", PACKAGES, BLOCK, {"gds_packages": gd.packages(libcufile_12_8="1.13.0.11-1")}, "fail",
        "libcufile-12-8 1.13.0.11-1, gds-tools-12-8 1.13.1.3-1"),
    Row("p2pdma needs two", PACKAGES, P2P, {"gds_packages": gd.packages(nvidia_fs_dkms="")}, "pass"),
    Row("the module", MODULE, BLOCK, {}, "pass", "nvidia_fs 2.24.2"),
    Row("no module with p2pdma", MODULE, P2P, gd.state(module=""), "n/a"),
    Row("a container's", MODULE, BLOCK, {**PODMAN, **gd.state(module="")}, "skip", "the machine's"),
    Row("not loaded", MODULE, BLOCK, gd.state(module=""), "fail", "not loaded", "modprobe nvidia_fs",
        change="module nvidia_fs:  -> loaded"),
    Row("beside proprietary modules", MODULE, BLOCK, gd.state(module="", licence="NVIDIA"), "fail", "beside open",
        "kernel_modules: open"),
    Row("the link", LINK, DENY, {}, "pass", gd.PLACE),
    Row("no settings", LINK, BLOCK, gd.state(link=""), "n/a"),
    Row("no link", LINK, DENY, gd.state(link=""), "fail", "absent", "gpuprov apply"),
    Row("another release", LINK, DENY, gd.state(link="/usr/local/cuda-13.0/gds/cufile.json"), "fail", "cuda-13.0",
        change=f"setting /etc/cufile.json: /usr/local/cuda-13.0/gds/cufile.json -> {gd.PLACE}"),
    Row("a file", LINK, DENY, gd.state(link="/etc/cufile.json"), "fail", "a file of its own", "gds.cufile"),
    Row("verified", DIRECT, BLOCK, {}, "pass",
        "GDS 1.16.0.49: platform verified; cuFile may read through the CPU without a word"),
    Row("nothing of the CPU, where the spec decides", DIRECT, DENY, {}, "pass", "platform verified"),
    Row("nvme by nvidia-fs", DIRECT, NVME, {}, "pass", "nvme by nvfs"),
    Row("distributed ones", DIRECT, DFS, {}, "pass", "lustre by supported, weka by dmabuf, gpfs by dmabuf"),
    Row("nvme through the CPU", DIRECT, NVME, gd.said("1.16-nvfs-l4", ("NVMe : nvfs, compat", "NVMe : compat")), "fail",
        "through the CPU alone: nvme", "mlnx-nvme-dkms"),
    Row("nfs through the CPU", DIRECT, Gds(toolkit="12.8", file_systems=("nvme", "nfs")), {}, "fail", "alone: nfs",
        "proto=rdma"),
    Row("p2pdma in a row of its own", DIRECT, P2P, gd.said("1.15-p2pdma-l40s"), "pass", "nvme by supported"),
    Row("p2pdma as a mode", DIRECT, P2P, gd.said("1.16-nvfs-l4", ("NVMe : nvfs", "NVMe : p2pdma")), "pass",
        "nvme by p2pdma"),
    Row("nvidia-fs is not p2pdma", DIRECT, P2P, {}, "fail", "through the CPU alone: nvme", "reboot, so that nvidia"),
    Row("multipath is on", DIRECT, P2P, gd.state(multipath="Y"), "fail", "alone: nvme", "multipath=Y: reboot"),
    Row("no nvidia-fs seen", DIRECT, BLOCK, gd.said("1.15-p2pdma-l40s"), "fail", "sees no nvidia-fs",
        "modprobe nvidia_fs"),
    Row("an IOMMU", DIRECT, NVME, gd.said("1.11-a6000-iommu"), "pass",
        "IOMMU Pass-through or enabled, in the way of GDS: pcie.iommu"),
    Row("ACS", DIRECT, NVME,
        gd.said("1.11-a6000-iommu", (" WARN: GDS", " Found ACS enabled for switch 86:10.0\n WARN: GDS")), "pass",
        "Found ACS enabled for switch 86:10.0: pcie.acs"),
    Row("no GPU", DIRECT, BLOCK, gd.said("1.18-no-gpu"), "fail", "sees no GPU", "nvidia_driver.loaded"),
    Row("no GPU in a container", DIRECT, BLOCK, {**PODMAN, **gd.said("1.18-no-gpu")}, "skip",
        "the GPUs are the machine's"),
    Row("a GPU without GDS", DIRECT, BLOCK, gd.said("1.16-nvfs-l4", ("supports GDS", "is not for GDS")), "fail",
        "no GDS on NVIDIA L4"),
    Row("not verified", DIRECT, BLOCK, gd.said("1.16-nvfs-l4", ("verification succeeded", "verification failed")),
        "fail",
        "does not verify the platform: Platform verification failed"),
    Row("no program", DIRECT, BLOCK, {"gds_check": "none|\n"}, "fail", "/usr/local/cuda-12.8/gds/tools has no gdscheck",
        "gds.packages"),
    Row("no release named, no program", DIRECT, Gds(), {"gds_check": "none|\n"}, "fail",
        "/usr/local/cuda/gds/tools has no gdscheck"),
    Row("a program that fails", DIRECT, BLOCK, {"gds_check": "said|libcuda.so.1: cannot open\n"}, "fail",
        "libcuda.so.1: cannot open"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=f"{row.check}-{row.name}") for row in ROWS])
def test_checks(row: Row) -> None:
    declared = {probe.name for probe in CHECKS[row.check].probes}
    there = {name: text for name, text in gd.INSTALLED.items() if name in declared}
    judge(row._replace(changed={**there, **row.changed}))


def host(model: str = "", **blocks: Fragment) -> HostSpec:
    return HostSpec(name="gpu1", gpu=GpuSpec(model=model, count=8) if model else None, capabilities=blocks)


OFED = Rdma(stack="doca-ofed")


@run_each(
    ("block", "spec", "told"),
    [
        (BLOCK, host("H100-SXM5-80GB", nvidia_driver=NvidiaDriver(version="580")), []),
        (Gds(), host(), []),
        (Gds(compat_mode="deny"), host(), ["gds.toolkit is not set, and cuda_toolkit names no release"]),
        (Gds(compat_mode="deny"), host(cuda_toolkit=CudaToolkit(versions=("12.8",))), []),
        (BLOCK, host(nvidia_driver=NvidiaDriver(kernel_modules="proprietary")),
         ["gds: nvidia-fs needs open kernel modules"]),
        (P2P, host(nvidia_driver=NvidiaDriver(kernel_modules="proprietary")),
         ["gds: p2pdma needs open kernel modules"]),
        (BLOCK, host("V100-SXM2"), ["gds: V100-SXM2 (Volta) has no open kernel modules"]),
        (BLOCK, host(nvidia_driver=NvidiaDriver(build="precompiled")),
         ["gds.path is nvidia-fs, whose package depends on a driver"]),
        (P2P, host("L40S", nvidia_driver=NvidiaDriver(version="580", build="precompiled")), []),
        (NVME, host(), ["gds.file_systems has nvme, which nvidia-fs reaches only by the drivers of DOCA-OFED"]),
        (NVME, host(rdma=OFED), []),
        (DFS, host(), []),
        (Gds(toolkit="12.6", path="p2pdma"), host(), ["gds.path is p2pdma, and CUDA 12.6 does not know it"]),
        (P2P, host(nvidia_driver=NvidiaDriver(version="550")), ["gds.path is p2pdma, and driver 550 does not know it"]),
        (P2P, host("T4"), ["gds.path is p2pdma, and NVIDIA does not list T4"]),
        (P2P, host("GB200"), ["gds.path is p2pdma, and NVIDIA does not list GB200"]),
        (Gds(toolkit="12.8", path="p2pdma", file_systems=("nvme", "nfs")), host(),
         ["gds.file_systems has nfs, and p2pdma is for nvme"]),
        (Gds(toolkit="12.8", cufile={"properties.allow_compat_mode": True}), host(), ["is compat_mode's to say"]),
        (Gds(toolkit="12.8", cufile={"properties.use_pci_p2pdma": True}), host(), ["is path's to say"]),
    ],
)  # fmt: skip
def test_rules(block: Gds, spec: HostSpec, told: list[str]) -> None:
    found = list(rules(HostSpec(name=spec.name, gpu=spec.gpu, capabilities={**spec.capabilities, "gds": block}), block))
    assert len(found) == len(told), found
    assert all(text in problem.message and problem.fix for problem, text in zip(found, told, strict=True)), found


def test_only_patched_drivers_are_a_warning() -> None:
    (found,) = rules(host(gds=NVME), NVME)
    assert found.severity == "warning"
    assert "or path: p2pdma" in found.fix


def test_the_module_is_loaded_and_built_for_the_next_kernel() -> None:
    assert contribute(host(), BLOCK) == Kernel(modules_built=("nvidia_fs",))
    files = {"/etc/modules-load.d/gpuprov-gds.conf": f"{HEADER}nvidia_fs\n"}
    assert make(context())["files"] == files
    assert make(context({}, P2P))["absent"] == list(files)


def test_the_module_is_loaded_where_that_is_possible() -> None:
    unloaded = gd.state(module="")
    assert make(context(unloaded))["tasks"]["running_kernel"]["modules"] == ["nvidia_fs"]
    assert "running_kernel" not in make(context())["tasks"]
    assert "running_kernel" not in make(context(unloaded, P2P))["tasks"]
    assert "running_kernel" not in make(context({**unloaded, "container": "podman\n"}))["tasks"]
    assert (
        "running_kernel"
        not in make(context({**unloaded, "reboot_reasons": "nvidia_driver|the loaded driver is another\n"}))["tasks"]
    )


def test_p2pdma_sets_options_of_modules_on_x86() -> None:
    found = contribute(host("H100-SXM5-80GB"), P2P)
    assert found is not None
    assert (found.modules_load, found.modules_built) == ((), ())
    assert found.module_options["nvme_core"] == {"multipath": "N"}
    assert found.module_options["nvidia"] == {"NVreg_RegistryDwords": "RMForceStaticBar1=1;RmForceDisableIomapWC=1;"}
    assert contribute(host("GB200"), P2P) is None


def test_settings() -> None:
    block = Gds(
        path="p2pdma",
        compat_mode="deny",
        cufile={"properties.rdma_dev_addr_list": ("192.0.2.1",), "logging.dir": "/var/log"},
    )
    own = {"properties.rdma_dev_addr_list": '["192.0.2.1"]', "logging.dir": '"/var/log"'}
    assert settings(host(), msgspec.structs.replace(block, toolkit="12.8")) == {
        **own,
        "properties.use_pci_p2pdma": "true",
        "properties.allow_compat_mode": "false",
    }
    assert settings(host(), msgspec.structs.replace(block, toolkit="13.1"))["block.nvme.use_pci_p2pdma"] == "true"
    assert settings(host(), Gds(compat_mode="allow")) == {"properties.allow_compat_mode": "true"}
    assert settings(host(), Gds()) == {}


def context(
    changed: Mapping[str, str] | None = None, block: Gds = DENY, driver: NvidiaDriver | None = None
) -> Context[Gds]:
    host = contexts.spec(nvidia_driver=driver, gds=block)
    return contexts.context("gds", host, {**gd.INSTALLED, **(changed or {})})


def test_a_host_with_everything_gets_nothing_new() -> None:
    made = make(context())
    assert (made["install"], made["tasks"]["command"], made["later"]) == ([], [], {})
    assert made["lines"] == [{"path": gd.PLACE, "keys": {"properties.allow_compat_mode": "false"}, "made": False}]


def test_a_bare_host_gets_exact_versions_and_the_link() -> None:
    made = make(context({**BARE, **gd.state(link="")}))
    assert made["install"] == ["libcufile-12-8=1.13.1.3-1", "gds-tools-12-8=1.13.1.3-1", "nvidia-fs-dkms=2.24.2-1"]
    assert made["tasks"]["command"] == [{"argv": ["update-alternatives", "--set", "cufile.json", gd.PLACE]}]
    assert make(context(gd.state(link=""), BLOCK))["tasks"]["command"] == []
    assert make(context(gd.state(link="/etc/cufile.json")))["tasks"]["command"] == []


def test_nvidia_fs_is_built_anew_for_kernels_of_which_ofed_is_newer() -> None:
    """As after an upgrade of OFED; another path, or the kernel's own stack, has no module to build."""
    older = {"ofed": ofed_host.said(f"older|{ofed_host.OTHER}|nvidia_fs"), "gds": gd.INSTALLED["gds"] + "tree|2.24.2\n"}

    def rebuild(block: Gds, rdma: Rdma, **changed: str) -> Any:
        spec = contexts.spec(nvidia_driver=NvidiaDriver(), rdma=rdma, gds=block)
        tasks = make(contexts.context("gds", spec, {**gd.INSTALLED, **older, **changed}))["tasks"]
        return "ofed" in tasks, [" ".join(task["argv"]) for task in tasks["rebuild"]]

    again = [f"dkms {act} --force nvidia-fs/2.24.2 -k {ofed_host.OTHER}" for act in ("build", "install")]
    assert rebuild(BLOCK, OFED) == (True, again)
    assert rebuild(BLOCK, OFED, ofed=ofed_host.said()) == (True, [])
    assert rebuild(P2P, OFED) == rebuild(BLOCK, Rdma()) == (False, [])


def test_no_package_of_a_driver_comes_with_it() -> None:
    patterns = make(context())["refuse"]["patterns"]
    touched = [name for name in ("nvidia-dkms-580", "libnvidia-cfg1", "cuda-drivers", "nvidia-fs-dkms", "nvidia-fs",
                                 "libcufile-12-8")
               if any(re.fullmatch(pattern, name) for pattern in patterns)]  # fmt: skip
    assert touched == ["nvidia-dkms-580", "libnvidia-cfg1", "cuda-drivers"]


def test_what_nobody_offers_is_refused() -> None:
    with pytest.raises(ProbeFailed, match="no package source of the host has nvidia-fs-dkms"):
        make(context({**BARE, "gds_index": gd.offers(nvidia_fs_dkms="")}))


def test_what_a_coming_package_source_may_have_waits() -> None:
    made = make(context({**BARE, "gds_index": ""}, BLOCK, NvidiaDriver(source="nvidia")))
    assert made["install"] == []
    assert "is resolved when apply has added https://" in made["later"]["told"]


def test_export() -> None:
    texts = {probe.name: gd.INSTALLED[probe.name] for probe in CAPABILITY.export_probes}
    assert export(facts(**texts)) == Gds(toolkit="12.8")
    assert export(facts(**{**texts, **gd.state(module="")})) is None
    assert export(facts(**{**texts, **BARE})) is None
