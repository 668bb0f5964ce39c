"""NVIDIA's functions with their IOMMU groups, drivers and overrides, who holds them, and the unit that binds lent
ones."""

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host import boot_unit
from gpuprov.facts.probes.host.boot_unit import SetsAtBoot
from gpuprov.host_code.at_boot import passthrough as onhost

UNIT = "gpuprov-passthrough.service"


class Passthrough(SetsAtBoot, frozen=True, kw_only=True):
    """`state`: the functions, as the unit's program reads them."""

    state: onhost.State = onhost.State()


def parse(output: Output) -> Passthrough:
    return Passthrough(state=onhost.parse(output.text), **boot_unit.parse(output.rows()))


PASSTHROUGH = Probe(
    "passthrough",
    onhost.READER + boot_unit.build_script(UNIT, onhost.CONFIG),
    parse,
    "lspci -nnk -d 10de:; ls -l /sys/bus/pci/devices/*/iommu_group; lsof /dev/vfio/*",
    speaks=True,
    blank=boot_unit.BLANK,
)
