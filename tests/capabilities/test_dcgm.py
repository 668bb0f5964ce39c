"""dcgm: one version of all its packages, held; a host engine that lives, answers and is the installed one; its
exporter."""

from __future__ import annotations

from gpuprov.capabilities.dcgm.desired import EXPORTER as DROP_IN
from gpuprov.capabilities.dcgm.fragment import Dcgm, parse_listen_address
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus.dcgm import parse_dcgm
from tests.capabilities import dcgm_host as host
from tests.capabilities.asking import CHECKS, GIVEN, H100, NO_GPU, PODMAN, Row, judge, older
from tests.capabilities.contents_host import Also, unit
from tests.capabilities.dcgm_host import CORE, CUDA, ENGINE, EXPORTER, SENDER, packages, said
from tests.rows import run_each

THREE = {"dcgm_packages": packages("datacenter-gpu-manager", version="1:3.3.9")}
RED_HAT = {"os_release": 'ID="rocky"\nVERSION_ID="9.6"\nID_LIKE="rhel centos fedora"\n'}
DRIVER_580 = {"driver_libraries": "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05\n"}
V100 = {"nvidia_functions": "0000:19:00.0 0x10de 0x1db6 0x10de 0x124a 0x030200 nvidia\n"}
SERVED = {"dcgm_packages": packages(*host.SET, datacenter_gpu_manager_exporter="4.7.1-1")}
UNIT, SENDS = "nvidia-dcgm.service", "nvidia-dcgm-exporter.service"
METRICS = said(exporter=SENDER, metrics="3")
WITH = Dcgm(exporter=True)


def asked(row: Row) -> None:
    """The row, on a host with DCGM: what its check reads and the row does not say is as on the good host."""
    declared = {probe.name for probe in CHECKS[row.check].probes}
    good = {name: text for name, text in host.PROBES.items() if name in declared}
    judge(row._replace(changed={**good, **{name: text for name, text in row.changed.items() if name in declared}}))


ROWS = [
    Row("one version", "dcgm.version", None, {}, "pass", f"{CUDA}, "),
    Row("the line asked for", "dcgm.version", Dcgm(version="4"), {}, "pass"),
    Row("exactly", "dcgm.version", Dcgm(version="4.4.2"), {}, "pass", "1:4.4.2-1"),
    Row("another one", "dcgm.version", Dcgm(version="4.5.3"), {}, "fail", f"{CORE} 1:4.4.2-1", "gpuprov apply"),
    Row("not there", "dcgm.version", None, {"dcgm_packages": ""}, "fail", f"not installed: {CORE}"),
    Row("without the closed parts", "dcgm.version", None, {"dcgm_packages": packages(CORE, CUDA)}, "fail",
        "proprietary"),
    Row("which nobody wants", "dcgm.version", Dcgm(proprietary=False), {"dcgm_packages": packages(CORE, CUDA)}, "pass"),
    Row("multinode", "dcgm.version", Dcgm(multinode=True), {}, "fail", "datacenter-gpu-manager-4-multinode"),
    Row("one package moved alone", "dcgm.version", None,
        {"dcgm_packages": packages(*host.SET, datacenter_gpu_manager_4_cuda12="1:4.5.3-1")}, "fail",
        f"{CUDA} 1:4.5.3-1"),
    Row("another of it left behind", "dcgm.version", None,
        {"dcgm_packages": packages(*host.SET, datacenter_gpu_manager_4_dev="1:4.4.1-1")}, "fail", "4-dev 1:4.4.1-1"),
    Row("half configured", "dcgm.version", None, {"dcgm_packages": packages(state="iF ")}, "fail", "incomplete"),
    Row("another program", "dcgm.version", None, {"dcgm": said(installed="3.3.9")}, "fail", "says 3.3.9",
        "another installation"),
    Row("no program", "dcgm.version", None, {"dcgm": said(installed="")}, "fail", "says nothing"),
    Row("the driver moved to CUDA 13", "dcgm.version", None, DRIVER_580, "fail", "cuda13"),
    Row("another build by hand", "dcgm.version", Dcgm(cuda="11"), {}, "fail", "cuda11"),
    Row("Volta with CUDA 13 needs both", "dcgm.version", None, DRIVER_580 | V100 | {"dcgm_packages": packages(
        *host.SET, *(name.replace("12", "13") for name in host.SET[1:]))}, "pass", "cuda13"),
    Row("Volta with one", "dcgm.version", None, DRIVER_580 | V100 | {"dcgm_packages": packages(
        CORE, *(name.replace("12", "13") for name in host.SET[1:]))}, "fail", "cuda12"),
    Row("line 3 is kept", "dcgm.version", None, THREE | {"dcgm": said(installed="3.3.9")}, "pass", "1:3.3.9"),
    Row("line 3 does not know CUDA 13", "dcgm.version", None, THREE | DRIVER_580, "fail", f"not installed: {CORE}"),
    Row("one line", "dcgm.leftovers", None, {}, "pass"),
    Row("3 beside 4", "dcgm.leftovers", None, {"dcgm_packages": packages(*host.SET, datacenter_gpu_manager="1:3.3.9")},
        "fail",
        "datacenter-gpu-manager", "gpuprov apply"),
    Row("the build of the driver that was there before", "dcgm.leftovers", None,
        DRIVER_580 | {"dcgm_packages": packages(
        *host.SET, *(name.replace("12", "13") for name in host.SET[1:]))}, "fail", CUDA, "gpuprov apply removes"),
    Row("both builds for Volta", "dcgm.leftovers", None, DRIVER_580 | V100 | {"dcgm_packages": packages(
        *host.SET, *(name.replace("12", "13") for name in host.SET[1:]))}, "pass", "CUDA 13 and 12"),
    Row("a part of another build", "dcgm.leftovers", None,
        {"dcgm_packages": packages(*host.SET, "datacenter-gpu-manager-4-cuda13-nccl")}, "fail", "cuda13-nccl"),
    Row("no driver tells", "dcgm.leftovers", None, {"driver_libraries": "", "loaded_driver": ""}, "pass"),
    Row("configuration of 3", "dcgm.leftovers", None,
        {"dcgm_packages": packages(*host.SET, datacenter_gpu_manager_config="3.1")}, "fail",
        "datacenter-gpu-manager-config"),
    Row("4 where 3 is wanted", "dcgm.leftovers", Dcgm(version="3"), {}, "fail", CORE),
    Row("held", "dcgm.held", None, {}, "pass", "4 packages held"),
    Row("one is not", "dcgm.held", None,
        {"dcgm_packages": packages().replace(f"hi |{CUDA}", f"ii |{CUDA}")}, "fail", f"not held: {CUDA}",
        f"apt-mark hold {CUDA}",
        change=f"hold {CUDA}: not held -> held"),
    Row("in dnf's words", "dcgm.held", None, {"dcgm_packages": packages(state="ii ")} | RED_HAT, "fail", CORE,
        "dnf versionlock add"),
    Row("released", "dcgm.held", Dcgm(hold=False), {"dcgm_packages": packages(state="ii ")}, "pass", "not held"),
    Row("held against the spec", "dcgm.held", Dcgm(hold=False), {}, "fail", "held:", "apt-mark unhold"),
    Row("the exporter is not held", "dcgm.held", WITH,
        {"dcgm_packages": packages() + packages(EXPORTER, version="4.7.1-1", state="ii ")}, "fail",
        f"not held: {EXPORTER}"),
    Row("nothing to hold", "dcgm.held", None, {"dcgm_packages": ""}, "fail", "no package"),
    Row("enabled", "dcgm.enabled", None, {}, "pass"),
    Row("not enabled", "dcgm.enabled", None, {"contents": unit(UNIT, "active", "disabled")}, "fail", "is disabled",
        "systemctl enable --now", change="service nvidia-dcgm.service: disabled -> enabled"),
    Row("no unit", "dcgm.enabled", None, {"contents": unit(UNIT, "inactive", "")}, "fail", "not-found",
        "gpuprov apply"),
    Row("runs", "dcgm.active", None, {}, "pass", "nvidia-dcgm.service active"),
    Row("dead", "dcgm.active", None, {"contents": unit(UNIT, "failed", "enabled", "cannot bind")}, "fail",
        'nvidia-dcgm.service is failed ("cannot bind")', "journalctl",
        change="service nvidia-dcgm.service: failed -> active"),
    Row("not restarted after its settings", "dcgm.active", None, {"unit_reads": older(UNIT, "/usr/bin/nv-hostengine")},
        "fail",
        "is older than /usr/bin/nv-hostengine", "gpuprov apply"),
    Row("the exporter is off", "dcgm.enabled", WITH, {"contents": unit(SENDS, "inactive", "disabled")}, "fail",
        "is disabled"),
    Row("the exporter is old", "dcgm.active", WITH, {"unit_reads": older(SENDS,
                                                                         "/etc/dcgm-exporter/default-counters.csv")},
                                                                         "fail",
        "older than /etc/dcgm-exporter/default-counters.csv"),
    Row("an exporter that nobody asked for", "dcgm.active", None, {"contents": unit(SENDS, "active", "enabled")},
        "pass"),
    Row("the unit of line 3", "dcgm.active", None, THREE | {"contents": unit("dcgm.service", "active", "enabled")},
        "fail",
        "dcgm.service is active", "systemctl stop dcgm.service"),
    Row("the exporter's settings", "dcgm.files", WITH, {"contents": Also(f"sum|0  {DROP_IN}\n")}, "fail",
        f"{DROP_IN}: another text"),
    Row("alive", "dcgm.alive", None, {}, "pass", "process 800"),
    Row("one that does not tell its version", "dcgm.alive", None, {"dcgm": said(running="")}, "pass", "4.4.2"),
    Row("another host engine answers", "dcgm.alive", None, {"dcgm": said("")}, "fail", "outside the unit answers"),
    Row("not restarted after an upgrade", "dcgm.alive", None, {"dcgm": said(installed="4.5.3")}, "fail",
        "is of version 4.4.2, installed is 4.5.3", "systemctl restart"),
    Row("silent", "dcgm.alive", None,
        {"dcgm": said(running="", discovery="Error: unable to establish a connection to the specified host: localhost")}, "fail",
        "unable to establish a connection"),
    Row("hangs", "dcgm.alive", None, {"dcgm": said(running="", discovery="")}, "fail", "no answer"),
    Row("every GPU", "dcgm.gpus", None, {}, "pass", "1 GPU"),
    Row("but for a virtual machine's", "dcgm.gpus", None, {"nvidia_functions": H100 + GIVEN}, "pass", "1 GPU"),
    Row("none of them", "dcgm.gpus", None, {"dcgm": said(discovery="0 GPUs found.")}, "fail", "0 GPUs",
        "systemctl restart"),
    Row("no GPU", "dcgm.gpus", None, NO_GPU, "skip", "no NVIDIA GPU"),
    Row("container", "dcgm.gpus", None, PODMAN | {"loaded_driver": ""}, "skip", "podman container"),
    Row("default address", "dcgm.listens", None, {}, "pass", "127.0.0.1:5555"),
    Row("another address", "dcgm.listens", Dcgm(listen="ALL:5556"), {}, "fail", "the unit has 127.0.0.1:5555"),
    Row("as asked", "dcgm.listens", Dcgm(listen="ALL:5556"), {"dcgm": said(
        *[f"{ENGINE} --bind-interface ALL --port 5556"], start=f"{ENGINE} --bind-interface ALL --port 5556")}, "pass",
        "ALL:5556"),
    Row("not restarted", "dcgm.listens", Dcgm(listen="/run/dcgm.socket"),
        {"dcgm": said(start=f"{ENGINE} --domain-socket /run/dcgm.socket")}, "fail", "listens on 127.0.0.1:5555",
        "restart"),
    Row("nobody listens", "dcgm.listens", None, {"dcgm": said("")}, "fail", "no host engine runs"),
    Row("no unit at all", "dcgm.listens", None, {"dcgm": said("", start="")}, "fail", "no nvidia-dcgm.service"),
    Row("no exporter asked for", "dcgm.exporter", None, {}, "n/a", "no exporter in the spec"),
    Row("exporter", "dcgm.exporter", WITH, SERVED | {"dcgm": METRICS}, "pass", "3 values on port 9400"),
    Row("exporter missing", "dcgm.exporter", WITH, {}, "fail", "is not installed"),
    Row("no file of counters", "dcgm.exporter", WITH, SERVED | {"dcgm": said(exporter=SENDER, metrics="3",
                                                                             counters=False)},
        "fail", "no /etc/dcgm-exporter"),
    Row("exporter silent", "dcgm.exporter", WITH, SERVED | {"dcgm": said(exporter=SENDER)}, "fail",
        "no answer on port 9400"),
    Row("exporter for a newer DCGM", "dcgm.exporter", WITH,
        SERVED | {"dcgm_packages": packages() + packages(EXPORTER, version="4.8.2-1")}, "fail", "is for a newer one"),
]  # fmt: skip


@run_each("row", ROWS, ids=lambda row: f"{row.check}: {row.name}")
def test_state(row: Row) -> None:
    asked(row)


@run_each(
    ("command", "address"),
    [
        (ENGINE, "127.0.0.1:5555"),
        (f"{ENGINE} -p 6000", "127.0.0.1:6000"),
        (f"{ENGINE} --port=6000 -b ALL", "ALL:6000"),
        (f"{ENGINE} -d /run/dcgm", "/run/dcgm"),
    ],
)
def test_address_of_a_command_line(command: str, address: str) -> None:
    assert parse_listen_address(command) == address


def test_what_dcgmi_says() -> None:
    found = parse_dcgm(Output(said(discovery="8 GPUs found (Active).")))
    assert (found.gpus, found.complaint, found.engine.pid) == (8, "", 800)
    found = parse_dcgm(
        Output(said(discovery="Error: unable to connect\nError: Host engine connection invalid/disconnected."))
    )
    assert (found.gpus, found.complaint) == (None, "unable to connect Host engine connection invalid/disconnected.")
    assert parse_dcgm(Output("start|engine|\nenvironment|engine|\n")).complaint == ""
