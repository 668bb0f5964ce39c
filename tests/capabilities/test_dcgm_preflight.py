"""dcgm before anything is changed: which build, which version, which exporter; what cannot be; and what a host has."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities.dcgm import CAPABILITY, export, rules
from gpuprov.capabilities.dcgm.fragment import Dcgm
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.catalog import dcgm as catalogue
from gpuprov.spec.model import HostSpec
from tests.capabilities import dcgm_host as host
from tests.capabilities.asking import GOOD, Row, facts
from tests.capabilities.dcgm_host import CORE, CUDA, EXPORTER, SENDER, index, packages, said, units
from tests.capabilities.test_dcgm import DRIVER_580, THREE, V100, asked
from tests.rows import run_each

NOTHING = {"dcgm_packages": ""}
NO_DRIVER = {"driver_libraries": "", "loaded_driver": ""}
OLD_DRIVER = {"driver_libraries": "/usr/lib/x86_64-linux-gnu/libcuda.so.418.226.00\n"}
PIECES = ("nv-hostengine", "dcgmi", "libdcgm")
FIVE = "1:4.5.3-1"

ROWS = [
    Row("driver", "dcgm.driver", None, {}, "pass", "branch 535"),
    Row("none", "dcgm.driver", None, NO_DRIVER, "fail", "no NVIDIA driver", "nvidia_driver"),
    Row("too old", "dcgm.driver", None, OLD_DRIVER, "fail", "DCGM does not work with driver branch 418", "450"),
    Row("too old for the build", "dcgm.driver", Dcgm(cuda="13"), {}, "fail",
        "the build for CUDA 13 does not work with driver branch 535", "cuda: auto"),
    Row("3 with CUDA 13", "dcgm.driver", Dcgm(version="3.3.9"), DRIVER_580, "fail",
        "DCGM 3 does not work with CUDA 13", 'version: "4"'),
    Row("an installed set stays", "dcgm.resolvable", None, {}, "pass", "4.4.2, build for CUDA 12"),
    Row("the newest", "dcgm.resolvable", None, NOTHING, "pass", "4.5.3", change=f"package {CORE}:  -> {FIVE}"),
    Row("the build of the driver", "dcgm.resolvable", None, NOTHING | DRIVER_580, "pass", "CUDA 13",
        change=f"package {CUDA.replace('12', '13')}:  -> {FIVE}"),
    Row("the build of the old driver goes", "dcgm.resolvable", None, DRIVER_580, "pass", "CUDA 13",
        change=f"package {CUDA}: 1:4.4.2-1 -> "),
    Row("and its closed parts", "dcgm.resolvable", None, DRIVER_580, "pass", "CUDA 13",
        change="package datacenter-gpu-manager-4-proprietary-cuda12: 1:4.4.2-1 -> "),
    Row("two builds for Volta", "dcgm.resolvable", None, NOTHING | DRIVER_580 | V100, "pass", "CUDA 13 and 12",
        change=f"package {CUDA}:  -> {FIVE}"),
    Row("moved whole", "dcgm.resolvable", Dcgm(version="4.5.3"), {}, "pass", "4.5.3",
        change=f"package {CUDA}: 1:4.4.2-1 -> {FIVE}"),
    Row("3 to 4", "dcgm.resolvable", Dcgm(version="4"), THREE, "pass", "4.5.3",
        change="package datacenter-gpu-manager: 1:3.3.9 -> "),
    Row("4 to 3", "dcgm.resolvable", Dcgm(version="3"), {}, "pass", "3.3.9", change=f"package {CUDA}: 1:4.4.2-1 -> "),
    Row("4 to 3 takes the exporter", "dcgm.resolvable", Dcgm(version="3"),
        {"dcgm_packages": packages() + packages(EXPORTER, version="4.7.1-1")}, "pass", "3.3.9",
        change=f"package {EXPORTER}: 4.7.1-1 -> "),
    Row("any keeps 3", "dcgm.resolvable", None, THREE, "pass", "3.3.9"),
    Row("any leaves 3 with CUDA 13", "dcgm.resolvable", None, THREE | DRIVER_580, "pass", "4.5.3",
        change="package datacenter-gpu-manager: 1:3.3.9 -> "),
    Row("pieces of a split release come along", "dcgm.resolvable", Dcgm(version="4.7.0"),
        {"dcgm_index": index("1:4.7.0-1") + index("1:4.7.0-1", names=PIECES)}, "pass", "4.7.0",
        change="package nv-hostengine:  -> 1:4.7.0-1"),
    Row("and go with it", "dcgm.resolvable", Dcgm(version="4.5.3"),
        {"dcgm_packages": packages(*host.SET, *PIECES, version="1:4.7.0-1")}, "pass", "4.5.3",
        change="package nv-hostengine: 1:4.7.0-1 -> "),
    Row("what else is installed moves along", "dcgm.resolvable", Dcgm(version="4.5.3"),
        {"dcgm_packages": packages(*host.SET, "datacenter-gpu-manager-4-dev"),
         "dcgm_index": index() + index(FIVE, names=("datacenter-gpu-manager-4-dev",))}, "pass", "4.5.3",
        change=f"package datacenter-gpu-manager-4-dev: 1:4.4.2-1 -> {FIVE}"),
    Row("no such version", "dcgm.resolvable", Dcgm(version="4.1.0"), NOTHING, "fail", "4.1.0", "4.5.3"),
    Row("a version with a hole", "dcgm.resolvable", Dcgm(version="4.6.0"),
        NOTHING | {"dcgm_index": index() + index("1:4.6.0-1", names=(CORE,))}, "fail", CUDA, "4.5.3"),
    Row("no repository", "dcgm.resolvable", None, NOTHING | {"dcgm_index": ""}, "fail", "none of", "CUDA repository"),
    Row("nothing tells the build", "dcgm.resolvable", None, NOTHING | NO_DRIVER, "fail", "which CUDA build",
        "dcgm.cuda"),
    Row("it was told", "dcgm.resolvable", Dcgm(cuda="12"), NOTHING | NO_DRIVER, "pass", "4.5.3"),
    Row("the exporter of the pair", "dcgm.resolvable", Dcgm(exporter=True), {}, "pass",
        change=f"package {EXPORTER}:  -> 4.7.1-1"),
    Row("of a newer one", "dcgm.resolvable", Dcgm(exporter=True, version="4.5.3"), {}, "pass",
        change=f"package {EXPORTER}:  -> 4.8.2-1"),
    Row("no exporter for it", "dcgm.resolvable", Dcgm(exporter=True), {"dcgm_index": index(exporters=("4.8.2-1",))},
        "fail",
        "none for DCGM 4.4.2", "exporter: false"),
    Row("no exporter at all", "dcgm.resolvable", Dcgm(exporter=True), {"dcgm_index": index(exporters=())}, "fail",
        "none for DCGM", "CUDA repository"),
]  # fmt: skip


@run_each("row", ROWS, ids=lambda row: f"{row.check}: {row.name}")
def test_preflight(row: Row) -> None:
    asked(row)


def problems(driver: str = "any", **fields: Any) -> list[str]:
    spec = HostSpec(name="gpu1", capabilities={"nvidia_driver": NvidiaDriver(version=driver)})
    return [f"{'.'.join(map(str, p.path))} {p.severity}: {p.message} | {p.fix}" for p in rules(spec, Dcgm(**fields))]


@run_each(
    ("driver", "fields", "words"),
    [
        ("440", {}, "nvidia_driver.version error: nvidia_driver.version: DCGM does not work with driver branch 440"),
        ("580", {"version": "3"},
            "dcgm.version error: dcgm.version: DCGM 3 does not work with CUDA 13 (driver branch 580)"),
        ("535", {"cuda": "13"},
            "dcgm.cuda error: dcgm.cuda: the build for CUDA 13 does not work with driver branch 535"),
        ("any", {"version": "3", "cuda": "13"}, "dcgm.version: DCGM 3 does not work with CUDA 13"),
        ("any", {"version": "3.3.9", "exporter": True}, "dcgm.exporter error: dcgm.exporter: there is none for DCGM 3"),
        ("any", {"version": "3", "multinode": True}, "dcgm.multinode: there is none"),
        ("any", {"multinode": True, "cuda": "11"}, "allowed: 12, 13"),
        ("any", {"listen": "127.0.0.1:70000"}, 'dcgm.listen is "127.0.0.1:70000"'),
        ("any", {"listen": "300.0.0.1:5555"}, 'dcgm.listen is "300.0.0.1:5555"'),
        ("any", {"listen": "/run/dcgm", "exporter": True}, "by TCP only"),
        ("any", {"listen": "ALL:9400", "exporter": True}, "where the host engine listens"),
        ("any", {"exporter_port": 9500}, "warning: dcgm.exporter_port has no effect"),
        ("any", {"exporter_counters": "/etc/c.csv"}, "warning: dcgm.exporter_counters has no effect"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_offline(driver: str, fields: dict[str, Any], words: str) -> None:
    found = problems(driver, **fields)
    assert len(found) == 1, found
    assert words in found[0]


@run_each(
    ("driver", "fields"),
    [("580", {}), ("535", {"version": "3"}), ("580", {"cuda": "12"}), ("any", {"listen": "/run/dcgm"}),
     ("any", {"exporter": True, "exporter_port": 9500, "listen": "ALL:5556"}), ("570", {"multinode": True})],
)  # fmt: skip
def test_what_can_be_is_not_refused(driver: str, fields: dict[str, Any]) -> None:
    assert problems(driver, **fields) == []


@run_each(("branch", "cuda"), [(449, ""), (450, "11"), (524, "11"), (525, "12"), (575, "12"), (580, "13"), (615, "13")])
def test_the_build_of_a_driver_branch(branch: int, cuda: str) -> None:
    assert catalogue.find_cuda_major(branch) == cuda


@run_each(
    ("exporter", "dcgm", "fits"),
    [("4.7.1-1", "4.4.2", True), ("4.8.2-1", "4.4.2", False), ("4.8.4.3955-1", "4.5.3", False),
     ("4.8.4.3955-1", "4.5.2", False), ("4.8.1.77-1", "4.5.2", True),
     ("4.9.9-1", "4.7.0", True), ("4.0.1-1", "4.0.0", True)],
)  # fmt: skip
def test_which_exporter_fits(exporter: str, dcgm: str, fits: bool) -> None:
    assert catalogue.is_fitting_exporter(exporter, dcgm) is fits


def test_where_it_is_reached() -> None:
    assert catalogue.derive_address("ALL:5556") == "localhost:5556"
    assert catalogue.derive_address("/run/dcgm") == "unix:///run/dcgm"


def exported(**changed: str) -> Any:
    return export(facts(**{**GOOD, **host.PROBES, **changed}))


def test_export_writes_what_is() -> None:
    assert exported() == Dcgm(version="4.4.2")
    there = exported(
        dcgm_packages=packages(*host.SET, datacenter_gpu_manager_exporter="4.7.1-1"),
        dcgm_units=units(exporter=("active", "enabled")),
        dcgm=said(exporter=SENDER.replace("default", "my"), metrics="3", told="DCGM_EXPORTER_LISTEN=:9500"),
    )
    assert there == Dcgm(
        version="4.4.2", exporter=True, exporter_port=9500, exporter_counters="/etc/dcgm-exporter/my-counters.csv"
    )
    assert exported(**THREE) == Dcgm(version="3.3.9")
    assert exported(dcgm_packages=packages(CORE, CUDA, state="ii ")) == Dcgm(
        version="4.4.2", proprietary=False, hold=False
    )


def test_export_leaves_out_what_is_not_there() -> None:
    assert exported(dcgm_units=units(("inactive", "disabled"))) is None
    assert exported(dcgm_packages="") is None
    assert {probe.name for probe in CAPABILITY.export_probes} == {"dcgm_packages", "dcgm_units", "dcgm"}
