"""nvidia_driver in virtual machines: room for the GPUs' memory, vGPUs, hypervisors that are seen, resets."""

from __future__ import annotations

from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.vgpu_guest.fragment import VgpuGuest
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.host import virtualization
from gpuprov.spec.model import HostSpec
from tests.capabilities import vgpu_host as vm
from tests.rows import run_each

MEMORY, VGPU = "nvidia_driver.machine_memory", "nvidia_driver.machine_vgpu"
HYPERVISOR, RESET = "nvidia_driver.machine_hypervisor", "nvidia_driver.machine_reset"
ANY = NvidiaDriver()
PASSED = vm.function("physical", reset="flr")
GB10 = "000f:01:00.0 0x10de 0x2e12 0x10de 0x0000 0x030000 nvidia\n"
ONE_REGION = "bar|0|0x0000000024000000|0x0000000027ffffff|0x000000000014220c\n"
NOTHING = {"nvidia_functions": ""}
PODMAN = {"container": "podman\n"}
AZURE = vm.machine("microsoft", vendor="Microsoft Corporation", tag="7783-7084-3265-9085-8269-3286-77")

WITH = HostSpec(name="vm1", capabilities={"nvidia_driver": ANY, "vgpu_guest": VgpuGuest()})

OLD = NvidiaDriver(version="460")
GEFORCE = {"nvidia_functions": vm.GEFORCE, "loaded_driver": ""}

NO_RESET = {"gpu_functions": vm.function("physical")}
MIG = HostSpec(name="vm1", capabilities={"nvidia_driver": ANY, "mig": VgpuGuest()})
MIG_REBOOTS = HostSpec(name="vm1", reboot="if-needed", capabilities=MIG.capabilities)

ROWS: list[tuple[str, NvidiaDriver, HostSpec | None, dict[str, str], str, str, str]] = [
    # Room for the memory of GPUs.
    (MEMORY, ANY, None, {}, "pass", "1 GPU with all their regions; KVM, UEFI", ""),
    (MEMORY, ANY, None, {"gpu_functions": vm.function(bars=vm.WIDE)}, "pass", "1 GPU", ""),
    (MEMORY, ANY, None, {"machine": vm.machine("none"), "gpu_functions": PASSED}, "pass", "bare metal, UEFI", ""),
    (MEMORY, ANY, None, {"gpu_functions": vm.function(bars=vm.UNBOUND)}, "fail", "0000:06:00.0 region 1; KVM, UEFI",
        "X-PciMmio64Mb"),
    (MEMORY, ANY, None,
        {"nvidia_functions": GB10, "gpu_functions": vm.function("physical", bars=ONE_REGION, address="000f:01:00.0")},
        "pass", "1 GPU with all their regions", ""),
    (MEMORY, ANY, None, {"gpu_functions": vm.function(bars=vm.WIDE_LOST)}, "fail", "0000:06:00.0 region 2",
        "maxphysaddr"),
    (MEMORY, ANY, None, {"gpu_functions": vm.function(bars=vm.REGISTERS_LOST)}, "fail", "0000:06:00.0 region 0",
        "OVMF"),
    (MEMORY, ANY, None, {"gpu_functions": vm.function(bars="")}, "fail", "0000:06:00.0 region 0", "OVMF"),
    (MEMORY, ANY, None,
        {"gpu_functions": vm.function(bars=vm.BOUND.replace("0x000000000014220c", "0x000000002014220c"))}, "fail",
        "region 1", "OVMF"),
    (MEMORY, ANY, None, {"machine": vm.machine("vmware", efi=False), "gpu_functions": vm.function(bars=vm.UNBOUND)},
        "fail", "VMware, BIOS",
        "boot the VM by EFI, and set pciPassthru.use64bitMMIO=TRUE and pciPassthru.64bitMMIOSizeGB"),
    (MEMORY, ANY, None, {"machine": vm.machine("microsoft"), "gpu_functions": vm.function(bars=vm.UNBOUND)}, "fail",
        "Hyper-V", "-HighMemoryMappedIoSpace"),
    (MEMORY, ANY, None, {"machine": vm.machine("xen"), "gpu_functions": vm.function(bars=vm.UNBOUND)}, "fail", "Xen",
        "mmio_hole"),
    (MEMORY, ANY, None, {"machine": vm.machine("bhyve"), "gpu_functions": vm.function(bars=vm.UNBOUND)}, "fail",
        "bhyve", "64-bit window"),
    (MEMORY, ANY, None, {"machine": AZURE, "gpu_functions": vm.function(bars=vm.UNBOUND)}, "fail", "Azure (Hyper-V)",
        "the provider's to fix: Azure"),
    (MEMORY, ANY, None,
        {"machine": vm.machine("none", efi=False), "gpu_functions": vm.function("physical", bars=vm.UNBOUND)}, "fail",
        "bare metal, BIOS", "Above 4G Decoding"),
    (MEMORY, ANY, None, NOTHING, "skip", "no NVIDIA GPU", ""),
    (MEMORY, ANY, None, PODMAN, "skip", "podman container", ""),
    # vGPUs have their own driver.
    (VGPU, ANY, WITH, {}, "fail", "vGPU: 0000:06:00.0; vGPU manager 580.95.02; KVM",
        "nvidia_driver: false for these hosts"),
    (VGPU, ANY, None, {}, "fail", "vGPU: 0000:06:00.0", "nvidia_driver: false for these hosts"),
    (VGPU, ANY, None, {"gpu_functions": vm.function(host="|")}, "fail", "of unknown version", "then vgpu_guest"),
    (VGPU, ANY, None, {"gpu_functions": PASSED}, "pass", "1 GPU passed through; KVM", ""),
    (VGPU, ANY, None, {"machine": vm.machine("none")}, "skip", "bare metal", ""),
    (VGPU, ANY, None, NOTHING, "skip", "no NVIDIA GPU", ""),
    (VGPU, ANY, None, PODMAN, "skip", "podman", ""),
    (VGPU, ANY, None, {"gpu_functions": vm.function("unknown")}, "fail", "not readable: 0000:06:00.0", "root"),
    # Old drivers, and hypervisors that are seen.
    (HYPERVISOR, OLD, None, GEFORCE, "fail", "driver 460 starts no GeForce (0000:06:00.0) where it sees KVM",
        "<kvm><hidden state='on'/></kvm>"),
    (HYPERVISOR, OLD, None, GEFORCE | {"machine": vm.machine("vmware")}, "fail", "VMware", "hypervisor.cpuid.v0=FALSE"),
    (HYPERVISOR, OLD, None, GEFORCE | {"machine": vm.machine("microsoft")}, "fail", "Hyper-V",
        'nvidia_driver: {version: "465"} or newer'),
    (HYPERVISOR, OLD, None, GEFORCE | {"machine": vm.machine(flag=0)}, "pass", "hides itself", ""),
    (HYPERVISOR, NvidiaDriver(version="580"), None, GEFORCE, "pass", "driver 580: the hypervisor may be seen", ""),
    (HYPERVISOR, ANY, None, GEFORCE, "pass", "still to be chosen", ""),
    (HYPERVISOR, OLD, None, {}, "pass", "no GeForce", ""),
    (HYPERVISOR, OLD, None, GEFORCE | {"machine": vm.machine("none")}, "skip", "bare metal", ""),
    (HYPERVISOR, OLD, None, NOTHING, "skip", "no NVIDIA GPU", ""),
    (HYPERVISOR, OLD, None, GEFORCE | PODMAN, "skip", "podman container", ""),
    # Resets.
    (RESET, ANY, MIG, NO_RESET, "fail", "the hypervisor lets the VM reset no GPU; reboot: never", ""),
    (RESET, ANY, MIG, {}, "fail", "a vGPU is reset by its VM's reboot", ""),
    (RESET, ANY, MIG_REBOOTS, NO_RESET, "pass", "come with a reboot", ""),
    (RESET, ANY, None, NO_RESET, "pass", "come with a reboot", ""),
    (RESET, ANY, MIG, {"gpu_functions": PASSED}, "pass", "GPUs can be reset; KVM", ""),
    (RESET, ANY, MIG, {"machine": vm.machine("none")}, "skip", "bare metal", ""),
    (RESET, ANY, MIG, NOTHING, "skip", "no NVIDIA GPU", ""),
    (RESET, ANY, MIG, NO_RESET | PODMAN, "skip", "podman container", ""),
]  # fmt: skip


@run_each(("check", "fragment", "host", "changed", "status", "found", "fix"), ROWS)
def test_a_driver_in_a_virtual_machine(
    check: str,
    fragment: NvidiaDriver,
    host: HostSpec | None,
    changed: dict[str, str],
    status: str,
    found: str,
    fix: str,
) -> None:
    outcome = vm.ask(check, fragment, host, **changed)
    assert (outcome.status, found in outcome.found, fix in outcome.fix) == (status, True, True), outcome


def test_why_a_reset_is_a_reboot() -> None:
    guest = virtualization.parse_machine(Output(vm.machine()))
    metal = virtualization.parse_machine(Output(vm.machine("none")))
    unresettable = virtualization.parse_functions(Output(vm.function("physical")))
    assert virtualization.reset_by_reboot(metal, unresettable) == ""
    assert "0000:06:00.0" in virtualization.reset_by_reboot(guest, unresettable)
