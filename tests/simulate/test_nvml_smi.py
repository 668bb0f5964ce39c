"""The real nvidia-smi of Debian 12 and 13 on the stand-in NVML."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuprov.capabilities.health.fragment import Health
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus import gpu_health, gpu_state
from gpuprov.simulate import debs, image, sources
from gpuprov.simulate.repository.debian import Archive
from gpuprov.simulate.repository.plan import upstream
from tests.capabilities.asking import ask
from tests.simulate.nvml_host import ROOT, Host, holding

pytestmark = pytest.mark.e2e


@dataclass
class Smi:
    """nvidia-smi, and the version of the driver that it belongs to."""

    program: Path
    version: str

    def run(self, host: Host, *arguments: str) -> tuple[int, str]:
        """Exit status and all it printed."""
        (host.library.with_name("libnvidia-ml.so.1")).unlink(missing_ok=True)
        (host.library.with_name("libnvidia-ml.so.1")).symlink_to(host.library.name)
        environment = {**os.environ, ROOT: str(host.root), "LD_LIBRARY_PATH": str(host.library.parent)}
        done = subprocess.run(
            [self.program, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False, timeout=60,
        )  # fmt: skip
        return done.returncode, done.stdout


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def smi(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Smi:
    folder = tmp_path_factory.mktemp(request.param)
    archive = Archive(folder / "apt", request.param, sources.read())
    kept = image.cache_dir() / "packages"
    kept.mkdir(exist_ok=True)
    package = next(package for package in archive.packages() if package.name == "nvidia-smi")
    (deb,) = archive.download([package], kept)
    debs.unpack(deb, folder / "package")
    return Smi(folder / "package/usr/lib/nvidia/current/nvidia-smi", upstream(package.version))


def test_it_shows_the_gpus(smi: Smi, tmp_path: Path) -> None:
    host = Host(tmp_path, "H100-SXM5-80GB", 8, nvswitch=3, version=smi.version)
    query = "--query-gpu=pci.bus_id,name,driver_version,persistence_mode"
    status, text = smi.run(host, query, "--format=csv,noheader")
    assert status == 0
    assert text.splitlines()[7] == f"00000001:83:00.0, NVIDIA H100 80GB HBM3, {smi.version}, Disabled"
    assert smi.run(host, "-i", "7", "-pm", "1") == (
        0,
        "Enabled persistence mode for GPU 00000001:83:00.0.\nAll done.\n",
    )
    assert smi.run(host, query, "--format=csv,noheader")[1].splitlines()[7].endswith(", Enabled")
    status, text = smi.run(host)
    assert status == 0
    assert f"Driver Version: {smi.version}" in text
    assert len(re.findall(r" 0MiB / +81559MiB", text)) == 8
    status, text = smi.run(host, "-q", "-x")
    assert status == 0
    assert text.count("<product_name>NVIDIA H100 80GB HBM3</product_name>") == 8
    status, text = smi.run(host, "topo", "-m")
    assert (status, text.count("NV18")) == (0, 56)


def test_it_says_what_is_wrong(smi: Smi, tmp_path: Path) -> None:
    host = Host(tmp_path, "A100-SXM4-40GB", 2, version=smi.version)
    host.write("/var/lib/gpuprov-sim/faults/gpu-lost", "1\n")
    status, text = smi.run(host)
    assert status == 15
    assert "GPU is lost.  Reboot the system to recover this GPU" in text
    host.loaded("470.256.02")
    status, text = smi.run(host)
    assert status == 18
    assert "Failed to initialize NVML: Driver/library version mismatch" in text
    host.remove("/proc/driver/nvidia/version")
    status, text = smi.run(host)
    assert status == 9
    assert "couldn't communicate with the NVIDIA driver" in text


def test_mig(smi: Smi, tmp_path: Path) -> None:
    host = Host(tmp_path, "A100-SXM4-40GB", 1, version=smi.version)
    assert smi.run(host, "mig", "-lgi")[1] == "No MIG-enabled devices found.\n"
    assert "Enabled MIG Mode for GPU 00000001:10:00.0" in smi.run(host, "-mig", "1")[1]
    assert re.search(r"MIG 3g\.20gb +9 +2/2 +19\.50 +No +42", smi.run(host, "mig", "-lgip")[1])
    assert "GPU  0 Profile ID  9 Placements: {0,4}:4" in smi.run(host, "mig", "-lgipp")[1]
    status, text = smi.run(host, "mig", "-cgi", "9,2g.10gb,MIG 1g.5gb,19", "-C")
    assert (status, text.count("Successfully created GPU instance"), text.count("created compute instance")) == (
        0,
        4,
        4,
    )
    status, text = smi.run(host, "mig", "-cgi", "19")
    assert status == 23
    assert "Insufficient Resources" in text
    assert re.search(r"MIG 3g\.20gb +9 +2 +4:4", smi.run(host, "mig", "-lgi")[1])
    status, text = smi.run(host, "-L")
    assert re.findall(r"MIG (\S+) +Device +(\d): \(UUID: MIG-", text) == [
        ("3g.20gb", "0"), ("2g.10gb", "1"), ("1g.5gb", "2"), ("1g.5gb", "3"),
    ]  # fmt: skip
    assert re.search(r"0 +2 +0 +0 +\| +0MiB / 19968MiB", smi.run(host)[1])
    status, text = smi.run(host, "mig", "-dgi")
    assert status == 19
    assert "In use by another client" in text
    assert smi.run(host, "mig", "-dci")[0] == 0
    assert smi.run(host, "mig", "-dgi")[0] == 0
    assert smi.run(host, "-L")[1].count("MIG") == 0
    assert "Disabled MIG Mode" in smi.run(host, "-mig", "0")[1]


def test_memory_that_is_held_and_a_clock_that_is_low(smi: Smi, tmp_path: Path) -> None:
    """What the faults of these names come to in nvidia-smi's own words, and in what is read of them."""
    host = Host(tmp_path, "H100-SXM5-80GB", 2, version=smi.version)

    def read() -> tuple[gpu_state.GpuHealth, ...]:
        return gpu_health.parse(Output(f"@present 2\n@smi\n{smi.run(host, '-q')[1]}")).gpus

    assert [(one.used, one.processes, one.coherent, one.clocks.busy) for one in read()] == [(0, False, False, None)] * 2
    assert [one.clocks.held for one in read()] == [("Idle",)] * 2
    host.write("/var/lib/gpuprov-sim/faults/gpu-memory-held", "1\n")
    host.write("/var/lib/gpuprov-sim/faults/gpu-slow-clock", "0\n")
    low, held = read()
    assert low.clocks.held == ()
    assert (low.used, low.clocks.busy, low.clocks.graphics, low.clocks.most_graphics) == (0, 100, 345, 1980)
    assert (held.used, held.processes, held.clocks.busy) == (40779, False, None)
    query = ("--query-gpu=pci.bus_id,memory.used", "--format=csv,noheader,nounits")
    assert smi.run(host, *query)[1].splitlines()[1] in ("00000001:11:00.0, 40779", "00000001:11:00.0, 41330")
    with holding(host.write("/dev/nvidia1", ""), host.write("/dev/nvidia-uvm", "")):
        assert read()[1].processes is True


HEALTH = {  # fault -> the check, and what it finds
    "gpu-ecc-off": ("health.ecc_mode", "0001:11:00.0 has it off"),
    "gpu-reset-required": ("health.recovery", "0001:11:00.0 needs a reset"),
    "gpu-reset-fails": ("health.recovery", "0001:11:00.0 needs a reset"),
    "gpu-power-held": ("health.power", "0001:11:00.0 is held at 350 W of 700 W"),
    "gpu-pcie-replays": ("health.pcie_replays", "0001:11:00.0 has 67"),
}


def test_faults_of_a_gpu_in_work(smi: Smi, tmp_path: Path) -> None:
    host = Host(tmp_path, "H100-SXM5-80GB", 2, version=smi.version)

    def asked(check: str) -> tuple[str, str]:
        told = ask(check, Health(pcie_replays=10), gpu_health=f"@present 2\n@smi\n{smi.run(host, '-q')[1]}")
        return told.status, told.found

    for fault, (check, found) in HEALTH.items():
        assert asked(check)[0] == "pass", check
        host.write(f"/var/lib/gpuprov-sim/faults/{fault}", "1\n")
        assert asked(check) == ("fail", found)
        host.remove(f"/var/lib/gpuprov-sim/faults/{fault}")


def test_what_a_reset_ends_and_what_only_a_boot_does(smi: Smi, tmp_path: Path) -> None:
    host = Host(tmp_path, "H100-SXM5-80GB", 2, version=smi.version)
    host.boot(1)

    def needs() -> list[str]:
        state = gpu_health.parse(Output(f"@present 2\n@smi\n{smi.run(host, '-q')[1]}"))
        return [gpu.address for gpu in state.gpus if gpu.reset_required or gpu.remap_pending]

    for fault in ("gpu-reset-required", "gpu-row-pending"):
        host.write(f"/var/lib/gpuprov-sim/faults/{fault}", "1\n")
    assert needs() == ["0001:11:00.0"]
    uuids = smi.run(host, "--query-gpu=uuid", "--format=csv,noheader")[1].split()
    assert smi.run(host, "--gpu-reset", "-i", uuids[0])[0] == 0
    assert needs() == ["0001:11:00.0"], "another GPU's reset"
    assert smi.run(host, "--gpu-reset", "-i", uuids[1])[0] == 0
    assert needs() == []
    host.write("/var/lib/gpuprov-sim/faults/gpu-reset-fails", "1\n")
    assert smi.run(host, "--gpu-reset")[0] != 0
    assert needs() == ["0001:11:00.0"]
    host.boot(1 << 33)
    assert needs() == []


STATE = "--query-gpu=power.limit,clocks.gr,clocks.applications.gr,compute_mode,ecc.mode.current,ecc.mode.pending"


def test_settings(smi: Smi, tmp_path: Path) -> None:
    """In nvidia-smi's own words, as public outputs of real GPUs have them."""
    host = Host(tmp_path, "H100-SXM5-80GB", 2, version=smi.version)

    def state(gpu: str = "0") -> str:
        return smi.run(host, "-i", gpu, STATE, "--format=csv,noheader")[1].strip()

    own = "700.00 W, 345 MHz, 1980 MHz, Default, Enabled, Enabled"
    assert state() == own
    assert smi.run(host, "-i", "0", "-pl", "50") == (
        2,
        "Provided power limit 50.00 W is not a valid power limit which should be between 200.00 W and 700.00 W for GPU "
        "00000001:10:00.0\nTerminating early due to previous errors.\n",
    )
    for arguments, said in (
        (("-pl", "500"), "Power limit for GPU 00000001:10:00.0 was set to 500.00 W from 700.00 W."),
        (("-lgc", "1200,1755"), 'GPU clocks set to "(gpuClkMin 1200, gpuClkMax 1755)" for GPU 00000001:10:00.0'),
        (("-ac", "2619,1755"), 'Applications clocks set to "(MEM 2619, SM 1755)" for GPU 00000001:10:00.0'),
        (("-ac", "2619,1756"), 'Specified clock combination "(MEM 2619, SM 1756)" is not supported'),
        (("-c", "EXCLUSIVE_PROCESS"), "Set compute mode to EXCLUSIVE_PROCESS for GPU 00000001:10:00.0."),
        (("-e", "0"), "Disabled ECC support for GPU 00000001:10:00.0."),
    ):
        assert said in smi.run(host, "-i", "0", *arguments)[1]
    assert state() == "500.00 W, 1200 MHz, 1755 MHz, Exclusive_Process, Enabled, Disabled"
    assert state("1") == own
    host.boot(2)
    assert state() == "700.00 W, 345 MHz, 1980 MHz, Default, Disabled, Disabled"
