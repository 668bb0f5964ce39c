"""nvidia_driver in virtual machines: room for the GPUs' memory, vGPUs, hypervisors that are seen, resets."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.vgpu_guest.fragment import VgpuGuest
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.host import virtualization
from gpuprov.spec.model import Fragment, HostSpec
from tests.capabilities import vgpu_host as vm

MEMORY, VGPU = "nvidia_driver.machine_memory", "nvidia_driver.machine_vgpu"
HYPERVISOR, RESET = "nvidia_driver.machine_hypervisor", "nvidia_driver.machine_reset"
ANY = NvidiaDriver()
PASSED = vm.function("physical", reset="flr")
GB10 = "000f:01:00.0 0x10de 0x2e12 0x10de 0x0000 0x030000 nvidia\n"
ONE_REGION = "bar|0|0x0000000024000000|0x0000000027ffffff|0x000000000014220c\n"
NOTHING = {"nvidia_functions": ""}
PODMAN = {"container": "podman\n"}
AZURE = vm.machine("microsoft", vendor="Microsoft Corporation", tag="7783-7084-3265-9085-8269-3286-77")


@pytest.mark.parametrize(
    ("changed", "status", "found", "hint"),
    [
        ({}, "pass", "1 GPU with all their regions; KVM, UEFI", ""),
        ({"gpu_functions": vm.function(bars=vm.WIDE)}, "pass", "1 GPU", ""),
        ({"machine": vm.machine("none"), "gpu_functions": PASSED}, "pass", "bare metal, UEFI", ""),
        ({"gpu_functions": vm.function(bars=vm.UNBOUND)}, "fail", "0000:06:00.0 region 1; KVM, UEFI", "X-PciMmio64Mb"),
        ({"nvidia_functions": GB10, "gpu_functions": vm.function("physical", bars=ONE_REGION, address="000f:01:00.0")},
            "pass", "1 GPU with all their regions", ""),
        ({"gpu_functions": vm.function(bars=vm.WIDE_LOST)}, "fail", "0000:06:00.0 region 2", "maxphysaddr"),
        ({"gpu_functions": vm.function(bars=vm.REGISTERS_LOST)}, "fail", "0000:06:00.0 region 0", "OVMF"),
        ({"gpu_functions": vm.function(bars="")}, "fail", "0000:06:00.0 region 0", "OVMF"),
        ({"gpu_functions": vm.function(bars=vm.BOUND.replace("0x000000000014220c", "0x000000002014220c"))}, "fail",
            "region 1", "OVMF"),
        ({"machine": vm.machine("vmware", efi=False), "gpu_functions": vm.function(bars=vm.UNBOUND)}, "fail",
            "VMware, BIOS",
            "boot the VM by EFI, and set pciPassthru.use64bitMMIO=TRUE and pciPassthru.64bitMMIOSizeGB"),
        ({"machine": vm.machine("microsoft"), "gpu_functions": vm.function(bars=vm.UNBOUND)}, "fail", "Hyper-V",
            "-HighMemoryMappedIoSpace"),
        ({"machine": vm.machine("xen"), "gpu_functions": vm.function(bars=vm.UNBOUND)}, "fail", "Xen", "mmio_hole"),
        ({"machine": vm.machine("bhyve"), "gpu_functions": vm.function(bars=vm.UNBOUND)}, "fail", "bhyve",
            "64-bit window"),
        ({"machine": AZURE, "gpu_functions": vm.function(bars=vm.UNBOUND)}, "fail", "Azure (Hyper-V)",
            "the provider's to fix: Azure"),
        ({"machine": vm.machine("none", efi=False), "gpu_functions": vm.function("physical", bars=vm.UNBOUND)}, "fail",
            "bare metal, BIOS", "Above 4G Decoding"),
        (NOTHING, "skip", "no NVIDIA GPU", ""),
        (PODMAN, "skip", "podman container", ""),
    ],
)  # fmt: skip
def test_room_for_the_memory_of_gpus(changed: dict[str, str], status: str, found: str, hint: str) -> None:
    outcome = vm.ask(MEMORY, ANY, **changed)
    assert (outcome.status, found in outcome.found, hint in outcome.hint) == (status, True, True), outcome


WITH = HostSpec(name="vm1", capabilities={"nvidia_driver": ANY, "vgpu_guest": VgpuGuest()})


@pytest.mark.parametrize(
    ("host", "changed", "status", "found", "hint"),
    [
        (WITH, {}, "fail", "vGPU: 0000:06:00.0; vGPU manager 580.95.02; KVM", "nvidia_driver: false for these hosts"),
        (None, {}, "fail", "vGPU: 0000:06:00.0", "nvidia_driver: false for these hosts"),
        (None, {"gpu_functions": vm.function(host="|")}, "fail", "of unknown version", "then vgpu_guest"),
        (None, {"gpu_functions": PASSED}, "pass", "1 GPU passed through; KVM", ""),
        (None, {"machine": vm.machine("none")}, "skip", "bare metal", ""),
        (None, NOTHING, "skip", "no NVIDIA GPU", ""),
        (None, PODMAN, "skip", "podman", ""),
        (None, {"gpu_functions": vm.function("unknown")}, "fail", "not readable: 0000:06:00.0", "root"),
    ],
)
def test_vgpus_have_their_own_driver(
    host: HostSpec | None, changed: dict[str, str], status: str, found: str, hint: str
) -> None:
    outcome = vm.ask(VGPU, ANY, host, **changed)
    assert (outcome.status, found in outcome.found, hint in outcome.hint) == (status, True, True), outcome


OLD = NvidiaDriver(version="460")
GEFORCE = {"nvidia_functions": vm.GEFORCE, "loaded_driver": ""}


@pytest.mark.parametrize(
    ("fragment", "changed", "status", "found", "hint"),
    [
        (OLD, GEFORCE, "fail", "driver 460 starts no GeForce (0000:06:00.0) where it sees KVM",
            "<kvm><hidden state='on'/></kvm>"),
        (OLD, GEFORCE | {"machine": vm.machine("vmware")}, "fail", "VMware", "hypervisor.cpuid.v0=FALSE"),
        (OLD, GEFORCE | {"machine": vm.machine("microsoft")}, "fail", "Hyper-V",
            'nvidia_driver: {version: "465"} or newer'),
        (OLD, GEFORCE | {"machine": vm.machine(flag=0)}, "pass", "hides itself", ""),
        (NvidiaDriver(version="580"), GEFORCE, "pass", "driver 580: the hypervisor may be seen", ""),
        (ANY, GEFORCE, "pass", "still to be chosen", ""),
        (OLD, {}, "pass", "no GeForce", ""),
        (OLD, GEFORCE | {"machine": vm.machine("none")}, "skip", "bare metal", ""),
        (OLD, NOTHING, "skip", "no NVIDIA GPU", ""),
        (OLD, GEFORCE | PODMAN, "skip", "podman container", ""),
    ],
)  # fmt: skip
def test_old_drivers_and_hypervisors_that_are_seen(
    fragment: Fragment, changed: dict[str, str], status: str, found: str, hint: str
) -> None:
    outcome = vm.ask(HYPERVISOR, fragment, **changed)
    assert (outcome.status, found in outcome.found, hint in outcome.hint) == (status, True, True), outcome


NO_RESET = {"gpu_functions": vm.function("physical")}
MIG = HostSpec(name="vm1", capabilities={"nvidia_driver": ANY, "mig": VgpuGuest()})
MIG_REBOOTS = HostSpec(name="vm1", reboot="if-needed", capabilities=MIG.capabilities)


@pytest.mark.parametrize(
    ("host", "changed", "status", "found"),
    [
        (MIG, NO_RESET, "fail", "the hypervisor lets the VM reset no GPU; reboot: never"),
        (MIG, {}, "fail", "a vGPU is reset by its VM's reboot"),
        (MIG_REBOOTS, NO_RESET, "pass", "come with a reboot"),
        (None, NO_RESET, "pass", "come with a reboot"),
        (MIG, {"gpu_functions": PASSED}, "pass", "GPUs can be reset; KVM"),
        (MIG, {"machine": vm.machine("none")}, "skip", "bare metal"),
        (MIG, NOTHING, "skip", "no NVIDIA GPU"),
        (MIG, NO_RESET | PODMAN, "skip", "podman container"),
    ],
)
def test_resets(host: HostSpec | None, changed: dict[str, str], status: str, found: str) -> None:
    outcome = vm.ask(RESET, ANY, host, **changed)
    assert (outcome.status, found in outcome.found) == (status, True), outcome


def test_why_a_reset_is_a_reboot() -> None:
    guest = virtualization.parse_machine(Output(vm.machine()))
    metal = virtualization.parse_machine(Output(vm.machine("none")))
    unresettable = virtualization.parse_functions(Output(vm.function("physical")))
    assert virtualization.reset_by_reboot(metal, unresettable) == ""
    assert "0000:06:00.0" in virtualization.reset_by_reboot(guest, unresettable)
