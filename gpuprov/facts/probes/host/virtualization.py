"""The machine type of a host, and its GPU functions: memory regions, reset methods, and whether they are vGPUs."""

import re
from typing import Literal

import msgspec

from gpuprov.facts.probes.base import Output, Probe, ProbeFailed

Kind = Literal["physical", "vgpu", "unknown"]
# IORESOURCE_UNSET: https://github.com/torvalds/linux/blob/master/include/linux/ioport.h
UNASSIGNED = 0x20000000
MEMORY = 0x200


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` is systemd-detect-virt's name of the hypervisor, empty on bare metal. `hidden`: the CPU does not report a
    hypervisor. The rest is from DMI, empty if the machine has none."""

    kind: str
    vendor: str = ""
    product: str = ""
    tag: str = ""
    efi: bool = False
    hidden: bool = False


class Region(msgspec.Struct, frozen=True):
    """A memory region of a function (BAR) by its number."""

    number: int
    # 0 if it has no address.
    start: int
    size: int
    flags: int

    @property
    def assigned(self) -> bool:
        return self.start > 0 and not self.flags & UNASSIGNED


class GpuFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as its PCI function."""

    address: str
    # Unknown if the configuration space could not be read completely.
    kind: Kind
    # `host_driver`, `host_branch`: of the hypervisor's vGPU manager ("580.95.02", "580"), for a vGPU.
    host_driver: str = ""
    host_branch: str = ""
    # The kernel's reset methods for the function, empty if it has none.
    reset: str = ""
    regions: tuple[Region, ...] = ()

    def without_address(self, integrated: bool = False) -> tuple[str, ...]:
        """Name the regions that the driver needs and that have no address: registers (region 0), and the window to the
        GPU's memory, which is the next region: 1 behind a 32-bit region 0, 2 behind a 64-bit one."""
        # An `integrated` GPU, whose memory is the machine's, has no such window
        # (https://github.com/NixOS/nixpkgs/pull/527847 shows a GB10's regions).
        regions = {region.number: region for region in self.regions}
        first = regions.get(0)
        if first is None or not first.assigned:
            return ("region 0",)
        if integrated:
            return ()
        window = regions.get(2 if first.flags & 0x100000 else 1)
        return () if window and window.assigned else (f"region {2 if first.flags & 0x100000 else 1}",)


Unseen = Literal["port", "switches", "socket", "iommu", "nvswitches"]
# Reason why pass-through hides the device's surroundings: a guest is given the function alone
# (https://docs.kernel.org/driver-api/vfio.html), and QEMU makes the port above it
# (https://github.com/qemu/qemu/blob/master/docs/pcie.txt).
UNSEEN: dict[Unseen, str] = {
    "port": "the port above is the hypervisor's, and what a guest sees of it is made up",
    "switches": "the PCIe switches are the hypervisor's machine's",
    "socket": "a guest sees the sockets and NUMA nodes that its hypervisor makes up",
    "iommu": "it has no IOMMU of its own",
    "nvswitches": "the NVSwitches, and Fabric Manager, may be the hypervisor's machine's",
}


def hidden(guest: str, what: Unseen) -> str:
    """Explain why a guest of this hypervisor cannot see `what` of its host; empty on bare metal."""
    return f"virtual machine ({guest}): {UNSEEN[what]}" if guest else ""


def parse_machine(output: Output) -> Machine:
    values = dict(line.split("|", 1) for line in output.text.splitlines() if "|" in line)
    if not values.get("kind"):
        raise ProbeFailed("systemd-detect-virt does not answer, so nobody can say whether this is a virtual machine")
    kind = "" if values["kind"] == "none" else values["kind"]
    return Machine(
        kind=kind,
        vendor=values.get("vendor", "").strip(),
        product=values.get("product", "").strip(),
        tag=values.get("tag", "").strip(),
        efi=values.get("efi") == "1",
        hidden=bool(kind) and values.get("flag") == "0",
    )


def parse_functions(output: Output) -> tuple[GpuFunction, ...]:
    functions: list[GpuFunction] = []
    for line in output.text.splitlines():
        name, *cells = line.split("|")
        if name == "gpu" and len(cells) == 5:
            address, kind, version, branch, reset = (cell.strip() for cell in cells)
            # Branch r550_00, version 550.163.10.
            number = re.match(r"r?(\d{3})", branch) or re.match(r"(\d{3})\.", version)
            functions.append(
                GpuFunction(
                    address=address,
                    kind="vgpu" if kind == "vgpu" else "physical" if kind == "physical" else "unknown",
                    host_driver=version,
                    host_branch=number[1] if number else "",
                    reset=reset,
                )
            )
        elif name == "bar" and functions and len(cells) == 4:
            number_text, start, end, flags = cells
            region = Region(int(number_text), int(start, 16), int(end, 16) - int(start, 16) + 1, int(flags, 16))
            if region.flags & MEMORY:
                functions[-1] = msgspec.structs.replace(functions[-1], regions=(*functions[-1].regions, region))
    return tuple(functions)


# The machine. The CPU flag `hypervisor` is x86's: https://docs.kernel.org/virt/kvm/x86/cpuid.html
MACHINE = Probe(
    "machine",
    """k=$(systemd-detect-virt --vm 2>/dev/null); echo "kind|$k"
d=/sys/class/dmi/id
for n in vendor:sys_vendor product:product_name tag:chassis_asset_tag; do
  v=""; [ -r $d/${n#*:} ] && read -r v < $d/${n#*:}; echo "${n%%:*}|$v"
done
[ -d /sys/firmware/efi ] && echo "efi|1"
grep -q '^flags' /proc/cpuinfo && { grep -qm1 '^flags.* hypervisor' /proc/cpuinfo && echo "flag|1" || echo "flag|0"; }
true""",
    parse_machine,
    "systemd-detect-virt --vm; head /sys/class/dmi/id/*; ls -d /sys/firmware/efi",
    speaks=True,
)

# How NVIDIA's feature discovery tells a vGPU, and the record in which its host's driver stands:
# https://github.com/NVIDIA/k8s-device-plugin/blob/main/internal/vgpu/vgpu.go
_AWK = """
function text(at, n,   s, i) { s = ""; for (i = 0; i < n && b[at + i + 1] > 0; i++) s = s sprintf("%c", b[at + i + 1])
  return s }
{ for (i = 1; i <= NF; i++) b[++n] = $i + 0 }
END {
  if (n < 256) { print "unknown||"; exit }
  at = int(b[7] / 16) % 2 ? b[53] : 0
  for (turn = 0; at > 0 && turn < 48; turn++) {
    if (b[at + 1] == 255) break
    if (b[at + 1] == 9 && b[at + 4] == 86 && b[at + 5] == 70) {
      r = at + 5
      while (r < 254 && b[r + 1] > 0 && b[r + 2] > 0) r += b[r + 2]
      if (b[r + 1] == 0 && r + 22 <= 256) print "vgpu|" text(r + 2, 10) "|" text(r + 12, 10); else print "vgpu||"
      exit
    }
    at = b[at + 2]
  }
  print "physical||"
}"""
# Every GPU on the bus, with its memory regions.
FUNCTIONS = Probe(
    "gpu_functions",
    f"""for d in /sys/bus/pci/devices/*; do
  read -r v < "$d/vendor" 2>/dev/null || continue
  [ "$v" = 0x10de ] || continue
  read -r c < "$d/class"
  case $c in 0x03*) ;; *) continue ;; esac
  r=""; [ -e "$d/reset" ] && r=yes; [ -r "$d/reset_method" ] && read -r r < "$d/reset_method"
  echo "gpu|${{d##*/}}|$(od -An -v -tu1 -N256 "$d/config" 2>/dev/null | awk '{_AWK}')|$r"
  head -n 6 "$d/resource" 2>/dev/null | {{ n=0; while read -r s e f; do echo "bar|$n|$s|$e|$f"; n=$((n + 1)); done; }}
done; true""",
    parse_functions,
    "lspci -vvv -d 10de: | grep -E 'Region|Vendor Specific'; cat /sys/bus/pci/devices/*/reset_method",
)


def reset_by_reboot(machine: Machine, functions: tuple[GpuFunction, ...]) -> str:
    """Explain why GPUs of this host need a reboot of the VM for a reset, instead of `nvidia-smi -r`; empty if they can
    be reset."""
    # https://docs.nvidia.com/datacenter/tesla/mig-user-guide/ : in some VMs the hypervisor does not allow a reset.
    if not machine.kind:
        return ""
    shared = [function.address for function in functions if function.kind == "vgpu"]
    if shared:
        return f"{' '.join(shared)}: a vGPU is reset by its VM's reboot"
    fixed = [function.address for function in functions if not function.reset]
    return f"{' '.join(fixed)}: the hypervisor lets the VM reset no GPU" if fixed else ""
