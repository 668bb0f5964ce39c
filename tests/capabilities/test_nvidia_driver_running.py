"""nvidia_driver, as it runs: the loaded module, user space, and the parameters the module took."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from tests.capabilities.asking import GIVEN, H100, NEWER, NO_GPU, PODMAN, Row, judge, packages
from tests.facts.probes import captured

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


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_running(row: Row) -> None:
    judge(row)


@pytest.mark.parametrize(
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
