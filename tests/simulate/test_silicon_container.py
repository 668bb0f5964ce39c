"""A real container with simulated functions: lspci, a real DKMS build of the stand-ins, a boot that loads them, the
faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.host import pci
from gpuprov.simulate import container, faults, hosts
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.devices import devices, table
from gpuprov.simulate.parts import silicon
from gpuprov.simulate.parts.base import CONFIGURATION, FAULTS, File, text

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME, VERSION = "e2e-silicon", "535.261.03"
HOST = Description(gpu=Gpus(model="H100-SXM5-80GB", count=2), nvswitch=4, hcas=1)
BUILD = f"dkms install nvidia-current-open/{VERSION} -k $(ls /lib/modules) 2>&1"


@pytest.fixture(scope="module", autouse=True)
def host() -> Iterator[None]:
    container.down(NAME)
    try:
        container.up(NAME, HOST)
        files = {f"{CONFIGURATION}/devices": text(table(devices(NAME, HOST)))}
        files |= silicon.part(NAME, HOST).files
        files |= {
            f"/usr/src/nvidia-current-open-{VERSION}/{name}": File(content)
            for name, content in silicon.dkms_source(VERSION, "open").items()
        }
        container.write(NAME, hosts.archive(files))
        container.run(NAME, f"mkdir -p {FAULTS}; systemctl daemon-reload; systemctl enable --now {silicon.UNIT} 2>&1")
        yield
    finally:
        container.down(NAME)


def run(script: str) -> str:
    return container.run(NAME, f"set +e\n{script}\n")


def drivers() -> set[str]:
    functions = pci.parse(Output(run(pci.NVIDIA_FUNCTIONS.script)))
    assert [f.address for f in pci.gpus(functions)] == [d.address for d in devices(NAME, HOST) if d.role == "gpu"]
    return {f.driver for f in functions}


def loaded() -> nvidia.LoadedDriver:
    return nvidia.parse_loaded(Output(run(nvidia.DRIVER.script)))


def test_a_host_without_driver_has_nouveau_on_its_gpus() -> None:
    assert drivers() == {"nouveau"}
    assert loaded() == nvidia.LoadedDriver("", open=False)
    assert run("lspci -k -d 10de: 2>/dev/null").count("Kernel driver in use: nouveau") == 2
    assert run("lspci -vv -d 15b3: 2>/dev/null").count("[V3] Vendor specific: SW_MNG") == 4


def test_the_fault_dkms_fails_breaks_the_compiler_run() -> None:
    run(f"dkms add nvidia-current-open/{VERSION} >/dev/null; touch {FAULTS}/dkms-fails")
    with pytest.raises(GpuprovError):
        run(BUILD)
    assert "#error the fault dkms-fails" in run("cat /var/lib/dkms/nvidia-current-open/*/build/make.log")
    run(f"rm {FAULTS}/dkms-fails")


def test_a_built_driver_is_loaded_by_the_next_boot() -> None:
    run(f"{BUILD}; echo 'blacklist nouveau' > /etc/modprobe.d/test.conf")
    run("echo 'options nvidia-current-open NVreg_DeviceFileMode=0660' >> /etc/modprobe.d/test.conf")
    assert "gpuprov stand-in" in run("modinfo -k $(ls /lib/modules) nvidia-current-open")
    assert loaded().version == ""
    container.reboot(NAME)
    assert loaded() == nvidia.LoadedDriver(VERSION, open=True)
    assert drivers() == {"nvidia"}
    assert run("stat -c %a /dev/nvidia0 /dev/nvidia1 /dev/nvidiactl").split() == ["660"] * 3
    assert nvidia.parse_parameters(Output(run(nvidia.PARAMETERS.script)))["NVreg_DeviceFileMode"] == "432"


def test_a_client_that_holds_a_gpu_is_seen() -> None:
    faults.plant(NAME, "gpu-client", container.run)
    clients = nvidia.parse_clients(Output(run(nvidia.CLIENTS.script)))
    assert [client.unit for client in clients] == ["gpuprov-sim-client.service"]
    faults.heal(NAME, "gpu-client", container.run)


def test_faults_are_switched_without_a_reboot() -> None:
    faults.plant(NAME, "version-mismatch=535.1.2", container.run)
    assert loaded().version == "535.1.2"
    faults.heal(NAME, "version-mismatch", container.run)
    assert loaded().version == VERSION
    lost = next(d.address for d in devices(NAME, HOST) if (d.role, d.index) == ("gpu", 1))
    faults.plant(NAME, "gpu-lost=1", container.run)
    assert run(f"od -An -tx1 -N4 /sys/bus/pci/devices/{lost}/config").split() == ["ff"] * 4
    faults.heal(NAME, "gpu-lost", container.run)
    assert run(f"od -An -tx1 -N2 /sys/bus/pci/devices/{lost}/config").split() == ["de", "10"]
    faults.plant(NAME, "nouveau-bound", container.run)
    assert (drivers(), loaded().version) == ({"nouveau"}, "")
    faults.heal(NAME, "nouveau-bound", container.run)
    assert (drivers(), loaded().version) == ({"nvidia"}, VERSION)
