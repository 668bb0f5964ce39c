"""Frequency governors and hugepages of a host, told as the probes print them."""

from __future__ import annotations


def frequency(
    *governors: str,
    available: str = "performance powersave",
    asked: str = "",
    unit: tuple[str, str, str] = ("not-found", "inactive", ""),
    rival: str = "",
) -> str:
    """A policy for each governor, and the unit that sets them."""
    lines = [f"policy|policy{n}|{name}|{available}" for n, name in enumerate(governors)]
    lines += [f"asked|{asked}"] * bool(asked)
    lines += [f"LoadState|{unit[0]}", f"ActiveState|{unit[1]}", f"UnitFileState|{unit[2]}"]
    return "\n".join([*lines, *[f"rival|{rival}"] * bool(rival)]) + "\n"


PROBES = {
    "cpu_frequency": frequency("performance", "performance"),
    "hugepages": "1048576 0\n2048 0\n",
    "default_hugepage": "2048\n",
    "bootloader": "there|/boot/grub/grub.cfg\n",
    "sysctl_fixed": "kernel/ostype\nkernel/osrelease\n",
    "dracut": "none\n",
}
