"""nvidia_driver, as it runs: the loaded module, user space, the parameters the module took; and whether apply may
begin."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import (
    B200,
    CHECKS,
    GIVEN,
    H100,
    NEWER,
    NO_GPU,
    OPEN,
    PODMAN,
    VERSION,
    Row,
    ask,
    facts,
    good,
    judge,
    packages,
)
from tests.facts.probes import captured
from tests.rows import run_each

PROFILING = NvidiaDriver(module_parameters={"NVreg_RestrictProfilingToAdminUsers": False})
NEWER_LOADED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.309.01  Sun Jun  8 18:17:58 UTC 2025\n"
CONFIGURED = "options nvidia-current NVreg_RestrictProfilingToAdminUsers=0\n"

LOADED, USER, PARAMS = "nvidia_driver.loaded", "nvidia_driver.user_space", "nvidia_driver.module_parameters"
ROWS = [
    Row("the installed version is loaded", LOADED, None, {}, "pass", "535.261.03"),
    Row("user space was upgraded under a running module", LOADED, None, {"packages": packages(version=NEWER)}, "fail",
        "535.261.03", "reload the module, or reboot",
        reboot="the loaded module is 535.261.03, its package is 535.309.01",
        change="module nvidia: 535.261.03 -> 535.309.01"),
    Row("a library moved on alone, which no reboot fixes", LOADED, None,
        {"packages": packages(libcuda1=("ii ", NEWER))}, "pass"),
    Row("a module is loaded and its package is gone", LOADED, None, {"packages": ""}, "fail", "535.261.03",
        reboot="its package is not installed"),
    Row("no module is loaded", LOADED, None, {"loaded_driver": ""}, "fail", "no NVIDIA module is loaded",
        "modprobe nvidia"),
    Row("no GPU, so no module", LOADED, None, {**NO_GPU, "loaded_driver": ""}, "skip", "no NVIDIA GPU"),
    Row("a container cannot tell", LOADED, None, {**PODMAN, "loaded_driver": NEWER_LOADED}, "skip", "podman"),
    Row("one version in user space", USER, None, {}, "pass", "libcuda 535.261.03 libnvidia-ml 535.261.03"),
    Row("no libraries", USER, None, {"driver_libraries": ""}, "fail", "not found: libcuda libnvidia-ml", "ldconfig -p"),
    Row("a runfile's library wins", USER, None,
        {"driver_libraries": "/usr/lib/libcuda.so.580.95.05\n/usr/lib/libnvidia-ml.so.535.261.03\n"}, "fail",
        "libcuda 580.95.05", "another installation's libraries"),
    Row("the packages are of two versions", USER, None, {"packages": packages(libcuda1=("ii ", NEWER))}, "fail",
        "libcuda 535.261.03", "several versions"),
    Row("libraries, but no packages", USER, None, {"packages": ""}, "fail", "no driver package is installed",
        "elsewhere"),
    Row("one of two GPUs has fallen off: nvidia-smi lists the other and is content", USER, None,
        {"nvidia_functions": H100 + H100.replace(":19:", ":5d:")}, "fail", "not listed: 0000:5d:00.0",
        "gpuprov explain 79"),
    Row("one of two GPUs is a virtual machine's", USER, None, {"nvidia_functions": H100 + GIVEN}, "pass"),
    Row("nvidia-smi finds another module", USER, None, {"nvidia_smi": captured("nvidia_smi", "mismatch", 18)}, "fail",
        "Driver/library version mismatch",
        'gpuprov explain "Failed to initialize NVML: Driver/library version mismatch',
        reboot="user space and kernel module differ"),
    Row("nvidia-smi lost a GPU", USER, None, {"nvidia_smi": captured("nvidia_smi", "one_lost", 255)}, "fail",
        "Unable to"),
    Row("no GPU to ask", USER, None, {**NO_GPU, "nvidia_smi": captured("nvidia_smi", "no_module", 9)}, "pass"),
    Row("a container cannot ask", USER, None, {**PODMAN, "nvidia_smi": captured("nvidia_smi", "no_module", 9)}, "pass"),
    Row("a container's user space is not its machine's", USER, None,
        {**PODMAN, "loaded_driver": NEWER_LOADED, "nvidia_smi": captured("nvidia_smi", "mismatch", 18)}, "fail",
        "the machine's loaded module is 535.309.01",
        "a container needs the user space of the machine's driver: 535.309.01"),
    Row("a container has a GPU of the two on the bus", USER, None, {**PODMAN, "nvidia_functions": H100 * 2}, "pass"),
    Row("a container's GPU is lost", USER, None, {**PODMAN, "nvidia_smi": captured("nvidia_smi", "one_lost", 255)},
        "fail"),
    Row("no parameters asked", PARAMS, None, {}, "n/a", "not in the spec"),
    Row(
        "a parameter is not configured",
        PARAMS,
        PROFILING,
        {},
        "fail",
        "configured: NVreg_RestrictProfilingToAdminUsers=missing",
        "gpuprov apply",
        change="file /etc/modprobe.d/gpuprov.conf: NVreg_RestrictProfilingToAdminUsers=missing"
        " -> NVreg_RestrictProfilingToAdminUsers=0",
    ),
    Row("a parameter waits for a reload", PARAMS, PROFILING, {"modprobe_config": CONFIGURED}, "fail",
        "the loaded module runs with NVreg_RestrictProfilingToAdminUsers=1", "reload", reboot="runs with"),
    Row("a parameter under the name it is shown by", PARAMS, PROFILING,
        {"modprobe_config": CONFIGURED, "driver_parameters": "RmProfilingAdminOnly: 0\n"}, "pass",
        "NVreg_RestrictProfilingToAdminUsers=0"),
    Row("a container shows its machine's", PARAMS, PROFILING, {**PODMAN, "modprobe_config": CONFIGURED}, "pass"),
    Row("no module loaded", PARAMS, PROFILING, {"modprobe_config": CONFIGURED, "driver_parameters": ""}, "pass"),
    Row("a parameter that the module does not know", PARAMS, NvidiaDriver(module_parameters={"NVreg_EnableMIS": 1}),
        {"modprobe_config": "options nvidia_current NVreg_EnableMIS=1\n"}, "fail", "does not know NVreg_EnableMIS",
        "modinfo -p"),
    Row("a parameter for another flavour's module name", PARAMS, PROFILING,
        {"modprobe_config": CONFIGURED.replace("nvidia-current", "nvidia")}, "fail", "missing"),
]  # fmt: skip


@run_each(
    ("wanted", "shown"),
    [("0660", 432), ("0x10", 16), ("-1", 4294967295), ("438", 438), (0, 0), ("a=1;b=2", '"a=1;b=2"')],
)
def test_parameters_are_compared_as_the_module_shows_them(wanted: str | int, shown: int | str) -> None:
    changed = {
        "modprobe_config": f"options nvidia_current NVreg_DeviceFileMode={wanted}\n",
        "driver_parameters": f"DeviceFileMode: {shown}\n",
    }
    judge(Row("", PARAMS, NvidiaDriver(module_parameters={"NVreg_DeviceFileMode": wanted}), changed, "pass"))
    changed["driver_parameters"] = "DeviceFileMode: 7\n"
    judge(
        Row(
            "",
            PARAMS,
            NvidiaDriver(module_parameters={"NVreg_DeviceFileMode": wanted}),
            changed,
            "fail",
            "=7",
            reboot="=7",
        )
    )


EXACT = NvidiaDriver(version="535.261.03")
NEWEST = NvidiaDriver(version="535.309.01")
OPEN_WANTED = NvidiaDriver(kernel_modules="open")
FRESH = {"packages": ""}
V100 = "0000:19:00.0 0x10de 0x1db1 0x10de 0x1212 0x030200 \n"
CLIENTS = captured("gpu_clients", "mixed")
DAEMON_ONLY = "812|nvidia-persiste|nvidia-persistenced.service\nlooked\n"
CUDA = "ii |cuda|12.9.1-1|cuda\nii |cuda-drivers|580.95.05-1|cuda-drivers\n"
RESOLVABLE, LEFTOVERS = "nvidia_driver.resolvable", "nvidia_driver.leftovers"
SPACE, HOLDERS = "nvidia_driver.space", "nvidia_driver.clients"
PREFLIGHT = [
    Row("a fresh host gets the newest whole set", RESOLVABLE, None, FRESH, "pass",
        "535.309.01 (proprietary: NVIDIA's default below branch 560 is proprietary)",
        change=f"package nvidia-kernel-dkms:  -> {NEWER}"),
    Row("what is installed is kept", RESOLVABLE, None, {}, "pass", "535.261.03"),
    Row("an upgrade", RESOLVABLE, NEWEST, {}, "pass", "535.309.01", change=f"package libcuda1: {VERSION} -> {NEWER}"),
    Row("packages outside the set move along", RESOLVABLE, NEWEST,
        {"packages": packages(nvidia_driver=("ii ", VERSION))}, "pass",
        change=f"package nvidia-driver: {VERSION} -> {NEWER}"),
    Row("the other flavour, in one version that has it", RESOLVABLE, OPEN_WANTED,
        {"packages": packages(version=NEWER)}, "pass", "535.261.03 (open",
        change=f"package nvidia-kernel-dkms: {NEWER} -> removed"),
    Row("a version that is incomplete", RESOLVABLE, NvidiaDriver(version="535.309.01", kernel_modules="open"), FRESH,
        "fail", "no nvidia-open-kernel-dkms", "nearest version with the whole set is 535.261.03"),
    Row("a branch that nobody offers", RESOLVABLE, NvidiaDriver(version="550"), FRESH, "fail", '"550"', "535.309.01"),
    Row("no package lists", RESOLVABLE, None, {**FRESH, "package_index": ""}, "skip", "no driver yet", ""),
    Row("the GPU on the bus wants the other flavour", RESOLVABLE, OPEN_WANTED, {**FRESH, "nvidia_functions": V100},
        "fail", "GPU 10de:1db1 has no GSP", "kernel_modules at auto"),
    Row("the GPU on the bus is newer than every branch that is offered", RESOLVABLE, None,
        {**FRESH, "nvidia_functions": B200}, "fail",
        "B200 (Blackwell) is not known to branch 535: it needs 570 or newer", "gpuprov catalog gpus"),
    Row("nothing interferes", LEFTOVERS, None, {}, "pass", "no other driver"),
    Row("the open set is this distribution's too", LEFTOVERS, None, {"packages": packages(OPEN)}, "pass"),
    Row("a runfile was installed", LEFTOVERS, None, {"runfile_leftovers": "/usr/bin/nvidia-uninstall\n"}, "fail",
        "a runfile installation: /usr/bin/nvidia-uninstall", "/usr/bin/nvidia-uninstall --uninstall"),
    Row("the cuda metapackage drags its own driver in", LEFTOVERS, None, {"packages": packages() + CUDA}, "fail",
        "cuda=12.9.1-1 cuda-drivers=580.95.05-1", "apt-get purge cuda cuda-drivers"),
    Row("nothing to install needs no space", SPACE, None, {"space": "512000 /boot\n10 /var\n"}, "skip",
        "nothing to install"),
    Row("no space for the packages", SPACE, None, {**FRESH, "space": "512000 /boot\n102400 /var\n"}, "fail", "100 MiB",
        "apt-get clean"),
    Row("no space for a build", SPACE, None, {"kernels": "6.1.0-47-amd64|1|1||1\n", "space": "1 /var\n"}, "fail",
        "0 MiB"),
    Row("space enough", SPACE, None, FRESH, "pass", "10240 MiB free in /var"),
    Row("the driver stays, whoever uses it", HOLDERS, None, {"gpu_clients": CLIENTS}, "pass", "stays"),
    Row("no driver is loaded", HOLDERS, NEWEST, {"loaded_driver": "", "gpu_clients": CLIENTS}, "pass", "stays"),
    Row("another version, of which no package list says anything yet", HOLDERS, NvidiaDriver(version="550.90.07"),
        {"package_index": "", "gpu_clients": CLIENTS}, "fail", "python3 pid 4211"),
    Row("an upgrade that nobody is in the way of", HOLDERS, NEWEST, {}, "pass", "0 services"),
    Row("an upgrade with services only", HOLDERS, NEWEST, {"gpu_clients": DAEMON_ONLY}, "pass", "1 service",
        change="client nvidia-persiste (nvidia-persistenced.service 812):  -> stopped"),
    Row(
        "services of laptops, of DGX, of virtual machines' topology, and a display manager",
        HOLDERS,
        NEWEST,
        {
            "gpu_clients": "5|nvidia-powerd|nvidia-powerd.service\n6|nvsm_core|nvsm-core.service\n"
            "7|nvidia-topology|nvidia-topologyd.service\n8|Xorg|lightdm.service\nlooked\n"
        },
        "pass",
        "4 services",
        change="client nvsm_core (nvsm-core.service 6):  -> stopped",
    ),
    Row("an upgrade under a training job", HOLDERS, NEWEST, {"gpu_clients": CLIENTS}, "fail",
        "python3 pid 4211 session-7", "--drain"),
    Row("another flavour of the same version", HOLDERS, OPEN_WANTED, {"gpu_clients": CLIENTS}, "fail",
        "python3 pid 4211"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=row.name) for row in (*ROWS, *PREFLIGHT)])
def test_running(row: Row) -> None:
    judge(row)


def test_what_is_kept_changes_nothing() -> None:
    changes = ask("nvidia_driver.resolvable", EXACT).changes
    assert [change.name for change in changes] == ["nvidia-modprobe"], "only what is not there yet"


@run_each(
    ("site", "unit", "status"),
    [
        ({}, "slurm-exporter.service", "fail"),
        ({"host_gpu_services": ["slurm-exporter.service"]}, "slurm-exporter.service", "pass"),
        ({"host_gpu_services": "slurm-exporter.service,my-*.service"}, "my-agent.service", "pass"),
        ({"host_gpu_services": ["slurm-exporter.service"]}, "nvidia-dcgm.service", "fail"),
        ({"host_gpu_services": []}, "gpuprov-persistence.service", "pass"),
        ({"host_gpu_services": ""}, "", "fail"),
        ({"host_gpu_services": "slurm-exporter.service, "}, "", "fail"),
    ],
)
def test_services_are_those_that_the_site_names(site: dict[str, object], unit: str, status: str) -> None:
    """As the module that stops them has it from the role: also names with commas between, and gpuprov's own unit."""
    check, spec = CHECKS[HOLDERS], HostSpec(name="gpu1", capabilities={"nvidia_driver": NEWEST}, site=site)
    names = {probe.name for probe in check.probes}
    known = {**good(), "gpu_clients": f"5|daemon|{unit}\nlooked\n"}
    outcome = check.run(Context(spec, NEWEST, facts(**{name: known[name] for name in names & set(known)})))
    assert outcome.status == status, outcome
