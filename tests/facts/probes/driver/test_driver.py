"""The driver as it runs, from captured text."""

from __future__ import annotations

import pytest

from gpuprov.facts.probes.base import Facts, Output, ProbeFailed
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.driver.nvidia import Client, LoadedDriver
from gpuprov.facts.probes.host import pci
from gpuprov.facts.probes.kernel import modules
from tests.facts.probes import captured, published
from tests.rows import run_each


@run_each(
    ("case", "driver"),
    [
        ("proprietary", LoadedDriver("535.261.03", False)),
        ("open", LoadedDriver("565.57.01", True)),
        ("open_two_part", LoadedDriver("555.58", True)),
        ("open_aarch64", LoadedDriver("570.124.06", True)),
    ],
)
def test_version_and_flavour_of_the_loaded_module(case: str, driver: LoadedDriver) -> None:
    assert nvidia.parse_loaded(captured("loaded_driver", case)) == driver


@run_each("text", ["", "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14) \n", "NVRM version: damaged\n"])
def test_no_version_is_no_driver(text: str) -> None:
    assert nvidia.parse_loaded(Output(text)) == LoadedDriver("", False)


def test_parameters_have_the_names_that_modprobe_takes() -> None:
    parameters = nvidia.parse_parameters(captured("driver_parameters", "535"))
    assert parameters["NVreg_RestrictProfilingToAdminUsers"] == "1"
    assert parameters["NVreg_EnableMSI"] == "1"
    assert parameters["NVreg_RegistryDwords"] == "RMIntrLockingMode=1;PeerMappingOverride=1"
    assert parameters["NVreg_TemporaryFilePath"] == ""
    assert "NVreg_RmProfilingAdminOnly" not in parameters


def test_libraries_by_their_real_files() -> None:
    libraries = nvidia.parse_libraries(captured("driver_libraries", "driver_installed"))
    assert libraries == {"libcuda": "535.261.03", "libnvidia-ml": "535.261.03"}


def test_of_two_libraries_the_first_in_the_linkers_cache_counts() -> None:
    text = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05\n/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.535.261.03\n"
    assert nvidia.parse_libraries(Output(text)) == {"libcuda": "580.95.05"}


def test_a_library_that_is_no_driver_file_has_no_version() -> None:
    assert nvidia.parse_libraries(Output("/usr/local/lib/libnvidia-ml.so.1\n")) == {}


def test_smi_rows() -> None:
    smi = nvidia.parse_smi(captured("nvidia_smi", "two_gpus"))
    assert smi.complaint == ""
    assert [(gpu.bus, gpu.name, gpu.driver, gpu.persistence) for gpu in smi.gpus] == [
        ("0000:19:00.0", "NVIDIA H100 80GB HBM3", "535.261.03", True),
        ("0000:3b:00.0", "NVIDIA H100 80GB HBM3", "535.261.03", False),
    ]


@run_each(
    ("case", "status", "complaint", "gpus"),
    [
        ("no_module", 9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 0),
        ("mismatch", 18, "Failed to initialize NVML: Driver/library version mismatch NVML library version: 535.261", 0),
        ("one_lost", 255, "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error", 1),
    ],
)
def test_smi_complaints(case: str, status: int, complaint: str, gpus: int) -> None:
    smi = nvidia.parse_smi(captured("nvidia_smi", case, status))
    assert complaint in smi.complaint
    assert len(smi.gpus) == gpus
    assert smi.installed


def test_a_corrupted_inforom_is_a_warning_beside_an_answer() -> None:
    smi = nvidia.parse_smi(published("p4000-inforom", "nvidia-smi-query-gpu", 14))
    assert [gpu.bus for gpu in smi.gpus] == ["0000:b3:00.0"]
    assert (smi.complaint, smi.warnings) == ("", ("WARNING: infoROM is corrupted at gpu 0000:B3:00.0",))
    assert nvidia.parse_smi(Output("WARNING: infoROM is corrupted at gpu 0000:B3:00.0\n", 14)).complaint


def test_smi_without_gpus_is_a_complaint_even_with_status_0() -> None:
    assert nvidia.parse_smi(Output("No devices were found\n")).complaint == "No devices were found"


def test_clients_and_their_units() -> None:
    assert nvidia.parse_clients(captured("gpu_clients", "mixed")) == (
        Client(812, "nvidia-persiste", "nvidia-persistenced.service"),
        Client(4211, "python3", "session-7.scope"),
        Client(5120, "pt|main", "docker-0a1b.scope"),
        Client(5300, "kworker", ""),
    )


def test_clients_that_cannot_be_understood_fail() -> None:
    with pytest.raises(ProbeFailed, match="gpu_clients cannot be read"):
        Facts({"gpu_clients": Output("find: bad\nlooked\n")}).get(nvidia.CLIENTS)


def test_pci_functions() -> None:
    functions = pci.parse(captured("nvidia_functions", "hgx_h100"))
    assert [f.identifier for f in pci.gpus(functions)] == ["10de:2330", "10de:2330"]
    switch = functions[2]
    assert (switch.address, switch.subsystem, switch.pci_class, switch.driver) == (
        "0000:07:00.0",
        "10de:1796",
        "068000",
        "",
    )
    assert not switch.is_gpu


def test_audio_functions_are_no_gpus() -> None:
    functions = pci.parse(captured("nvidia_functions", "nouveau_bound"))
    assert [(f.address, f.driver) for f in pci.gpus(functions)] == [("0000:01:00.0", "nouveau")]


def test_pci_lines_that_are_cut_off_fail() -> None:
    with pytest.raises(ProbeFailed, match="nvidia_functions cannot be read"):
        Facts({"nvidia_functions": Output("0000:19:00.0 0x10de\n")}).get(pci.NVIDIA_FUNCTIONS)


def test_loaded_modules_and_their_use_counts() -> None:
    loaded = modules.parse_loaded(captured("loaded_modules", "driver_in_use"))
    assert loaded["nvidia"] == 114
    assert loaded["nvidia_drm"] == 0
    assert modules.parse_loaded(Output("")) == {}, "a kernel without modules"
    with pytest.raises(ProbeFailed, match="/proc/modules cannot be read: cat: /proc/modules"):
        modules.parse_loaded(Output("", 1, "cat: /proc/modules: No such file or directory"))


def test_modprobe_configuration_of_a_debian_driver() -> None:
    configured = modules.parse_modprobe(captured("modprobe_config", "driver_installed"))
    assert "nouveau" in configured.blacklist
    assert "nouveau" not in modules.parse_modprobe(captured("modprobe_config", "debian12")).blacklist
    assert configured.options["snd_usb_audio" if "snd_usb_audio" in configured.options else "snd_pcsp"]["index"] == "-2"


def test_the_last_of_two_options_wins_and_dashes_are_underscores() -> None:
    text = (
        'options nvidia-current NVreg_EnableMSI=0 NVreg_RegistryDwords="a=1;b=2"\noptions nvidia_current '
        "NVreg_EnableMSI=1\n"
    )
    assert modules.parse_modprobe(Output(text)).options == {
        "nvidia_current": {"NVreg_EnableMSI": "1", "NVreg_RegistryDwords": "a=1;b=2"}
    }


def test_kernels() -> None:
    old, new, cloud = modules.parse_kernels(captured("kernels", "three"))
    assert (old.bootable, old.headers, old.nvidia) == (True, False, "")
    assert (new.release, new.nvidia, new.nouveau) == ("6.1.0-47-amd64", "535.261.03", True)
    assert not cloud.nouveau
    (container,) = modules.parse_kernels(captured("kernels", "driver_installed"))
    assert (container.bootable, container.headers, container.nvidia) == (False, True, "")


def test_kernels_that_are_cut_off_fail() -> None:
    with pytest.raises(ProbeFailed, match="kernels cannot be read"):
        Facts({"kernels": Output("6.1.0-47-amd64|1|1\n")}).get(modules.KERNELS)
