"""NVIDIA functions on the PCI bus, read from sysfs: no pciutils needed, no GPU woken; and those that are lent to
virtual machines."""

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host import systemd
from gpuprov.facts.probes.host.systemd import SetsAtBoot
from gpuprov.host_code.at_boot import passthrough as onhost
from gpuprov.host_code.at_boot.passthrough import VFIO, is_lent

__all__ = [
    "GONE",
    "NO_DRIVER",
    "NVIDIA_FUNCTIONS",
    "VFIO",
    "PciFunction",
    "driven",
    "gpus",
    "is_lent",
    "parse",
    "served",
]

# Words in a record: after a function that did not answer; in place of a missing driver.
GONE, NO_DRIVER = "gone", "-"


class PciFunction(msgspec.Struct, frozen=True):
    """`address` is `0000:3b:00.0`, `identifier` is `10de:2330`, `pci_class` six hex digits, `driver` empty if none is
    bound. `gone`: it does not answer any more; lspci shows it with `(rev ff)`."""

    address: str
    identifier: str
    subsystem: str
    pci_class: str
    driver: str
    gone: bool = False

    @property
    def is_gpu(self) -> bool:
        return self.pci_class[:2] == "03"


def parse(output: Output) -> tuple[PciFunction, ...]:
    functions = []
    for line in output.text.splitlines():
        # 0000:19:00.0 0x10de 0x2330 0x10de 0x16c1 0x030200 nvidia     (sysfs; an HGX H100)
        # 0000:07:00.0 0x10de 0x22a3 0x10de 0x1796 0x068000            (its NVSwitch)
        address, vendor, device, sub_vendor, sub_device, pci_class, driver, *more = line.split() + [""]
        bare = [part.removeprefix("0x") for part in (vendor, device, sub_vendor, sub_device, pci_class)]
        identifier, subsystem = f"{bare[0]}:{bare[1]}", f"{bare[2]}:{bare[3]}"
        functions.append(
            PciFunction(address, identifier, subsystem, bare[4], driver.removeprefix(NO_DRIVER), GONE in more)
        )
    return tuple(functions)


# Without SR-IOV functions, of which NVIDIA's vGPU manager makes many for each GPU.
NVIDIA_FUNCTIONS = Probe(
    "nvidia_functions",
    """for d in /sys/bus/pci/devices/*; do
  read -r v < "$d/vendor" 2>/dev/null || continue
  [ "$v" = 0x10de ] && [ ! -e "$d/physfn" ] || continue
  read -r i < "$d/device"; read -r sv < "$d/subsystem_vendor"; read -r sd < "$d/subsystem_device"
    read -r c < "$d/class"
  m=""; [ -L "$d/driver" ] && m=$(readlink "$d/driver") && m=${m##*/}
  echo "${d##*/} $v $i $sv $sd $c $m"
done""",
    parse,
    "lspci -nnk -d 10de:",
)


def gpus(functions: tuple[PciFunction, ...]) -> tuple[PciFunction, ...]:
    """Return the display and 3D controllers: the GPUs, without NVSwitches, audio and USB functions."""
    return tuple(function for function in functions if function.is_gpu)


def driven(functions: tuple[PciFunction, ...]) -> tuple[PciFunction, ...]:
    """Return the GPUs for this host's own driver, without those lent to virtual machines."""
    return tuple(function for function in gpus(functions) if not is_lent(function.driver))


def served(functions: tuple[PciFunction, ...]) -> tuple[PciFunction, ...]:
    """Return the GPUs and NVSwitches for this host's own driver, which cannot be loaded without one."""
    return tuple(each for each in functions if each.pci_class[:4] == "0680" or each.is_gpu if not is_lent(each.driver))


UNIT = "gpuprov-passthrough.service"


class Passthrough(SetsAtBoot, frozen=True, kw_only=True):
    """`state`: the functions, as the unit's program reads them."""

    state: onhost.State = onhost.State()


def parse_passthrough(output: Output) -> Passthrough:
    return Passthrough(state=onhost.parse(output.text), **systemd.parse(output.rows()))


PASSTHROUGH = Probe(
    "passthrough",
    onhost.READER + systemd.build_script(UNIT, onhost.CONFIG),
    parse_passthrough,
    "lspci -nnk -d 10de:; ls -l /sys/bus/pci/devices/*/iommu_group; lsof /dev/vfio/*",
    speaks=True,
    blank=systemd.BLANK,
)
