"""Identity of a host's machine: its own name, maker, model, serial numbers and firmware, and the present boot."""

import msgspec

from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Output, Probe


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The machine. Texts are empty where the firmware does not give them; serial numbers are root's to read."""

    name: str = ""
    vendor: str = ""
    product: str = ""
    serial: str = ""
    board_serial: str = ""
    firmware: str = ""
    firmware_date: str = ""
    # The kernel's own name of this boot.
    boot_id: str = ""
    # In Unix time, 0 if unknown.
    booted: int = 0


def parse(output: Output) -> Identity:
    rows = (line.partition("|")[::2] for line in output.text.splitlines())
    values = {key: value.strip() for key, value in rows if key in Identity.__struct_fields__}
    booted = values.pop("booted", "")
    return Identity(**values, booted=int(booted) if is_whole(booted) else 0)


# Files of DMI: Documentation/ABI/testing/sysfs-class-dmi of the kernel,
# https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-dmi
IDENTITY = Probe(
    "identity",
    """echo "name|$(uname -n)"
d=/sys/class/dmi/id
for n in vendor:sys_vendor product:product_name serial:product_serial board_serial:board_serial \\
  firmware:bios_version firmware_date:bios_date; do
  v=""; [ -r $d/${n#*:} ] && read -r v < $d/${n#*:}; echo "${n%%:*}|$v"
done
echo "boot_id|$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"
awk '$1 == "btime" { print "booted|" $2 }' /proc/stat""",
    parse,
    "hostnamectl; head /sys/class/dmi/id/*",
    speaks=True,
)
