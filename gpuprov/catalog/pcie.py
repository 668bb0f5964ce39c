"""PCI Express settings: IOMMU parameters by processor, registers, machines whose ACS is computed, errata of relaxed
ordering."""

from functools import partial
from typing import Literal

from gpuprov.catalog.reader import Fact, File, load

POLICY = "/usr/local/lib/gpuprov/pcie/irqbalance.sh"
BALANCER, BALANCER_PROGRAM = "irqbalance.service", "/usr/sbin/irqbalance"
DROP_IN = "/etc/systemd/system/irqbalance.service.d/90-gpuprov-pcie.conf"
# The file that `rdma_topo write-grub-acs` writes by default.
GRUB = "/etc/default/grub.d/config-acs.cfg"
UNIT = "gpuprov-pcie.service"
READ_REQUESTS = (128, 256, 512, 1024, 2048, 4096)
# lspci's names of the bits of ACSCtl, from bit 0: https://github.com/pciutils/pciutils/blob/master/ls-ecaps.c
ACS_BITS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")
Mode = Literal["passthrough", "translated", "strict", "disabled"]
Cpu = Literal["intel", "amd", "arm"]
CPUS: dict[str, tuple[Cpu, ...]] = {"auto": ("intel", "amd"), "intel": ("intel",), "amd": ("amd",), "arm": ("arm",)}
# Values of a group's `type` in each mode: https://docs.kernel.org/admin-guide/abi-testing.html
# (sysfs-kernel-iommu_groups)
DOMAINS: dict[str, tuple[str, ...]] = {
    "passthrough": ("identity",),
    "translated": ("DMA", "DMA-FQ"),
    "strict": ("DMA",),
}
# Prefixes of the names of GPUs that share a module with a Grace CPU.
ARM_GPUS = ("GH200", "GB200", "GB300")


class Iommu(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters that a mode needs on machines of a processor's vendor."""

    mode: Mode
    cpu: Cpu
    words: dict[str, str]


class Function(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A PCI function by vendor and device id."""

    id: str
    name: str


class Range(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Device ids of a vendor, in hexadecimal, both ends included."""

    vendor: str
    first: str
    last: str
    name: str


class PcieFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/pcie.yaml"""

    iommu: tuple[Iommu, ...]
    computed_acs: tuple[Function, ...]
    no_relaxed_ordering: tuple[Range, ...]


read_pcie_file = partial(load, "pcie", PcieFile)


def list_processors(cpu: str, gpu: str = "") -> tuple[Cpu, ...]:
    """Return the processors whose IOMMU is relevant: the named one, else a Grace CPU if the GPU (`GB200`) has one, else
    both vendors of x86 processors, since parameters of one have no effect on the other."""
    return CPUS["arm" if cpu == "auto" and gpu.startswith(ARM_GPUS) else cpu]


def build_parameters(mode: str, cpu: str, gpu: str = "") -> dict[str, str]:
    """Return the kernel parameters of a mode; empty if there are none: no parameter switches the IOMMU of an Arm
    machine off."""
    known = list_processors(cpu, gpu)
    all_words: dict[str, str] = {}
    for entry in read_pcie_file().iommu:
        if entry.mode == mode and entry.cpu in known:
            all_words |= entry.words
    return all_words


def find_acs_kind(identifier: str) -> str:
    """Return the kind of a function whose presence makes ACS a matter for rdma_topo; "" for any other function."""
    return next((entry.name for entry in read_pcie_file().computed_acs if entry.id == identifier), "")


def find_excluded_processor(identifier: str) -> str:
    """Return the processor of a root port below which relaxed ordering must stay off; "" for any other port."""
    vendor, _, device = identifier.partition(":")
    try:
        number = int(device or "0", 16)
    except ValueError:
        return ""
    for rule in read_pcie_file().no_relaxed_ordering:
        if vendor == rule.vendor and int(rule.first, 16) <= number <= int(rule.last, 16):
            return rule.name
    return ""


def format_acs(control: int) -> str:
    """Return the bits that are set, with lspci's names: `SrcValid+ ReqRedir+`."""
    named = [f"{name}+" for bit, name in enumerate(ACS_BITS) if control & 1 << bit]
    return " ".join(named + ([f"0x{control:04x}"] if control >> len(ACS_BITS) else []))
