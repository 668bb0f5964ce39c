"""Parts of a rehearsal that are real, simulated, or stand-ins, and what these cannot prove."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from gpuprov.simulate.description import Description

How = Literal["real", "simulated", "stand-in", "none"]


class Row(NamedTuple):
    """One thing that production has."""

    thing: str
    how: How
    detail: str


def build_table(descriptions: Iterable[Description]) -> list[Row]:
    """List, for these simulated hosts, every row that one of them has."""
    return list(dict.fromkeys(row for description in descriptions for row in list_rows(description)))


def list_rows(description: Description) -> Iterable[Row]:
    if description.known.stands_in:
        text = f"{description.distribution}'s names, files and package versions, on Debian's programs"
        yield Row("distribution", "stand-in", text)
        yield Row("systemd, ssh, sudo, package manager", "real", "from Debian's archive")
    else:
        text = f"{description.distribution}, from Debian's archive"
        yield Row("distribution, systemd, ssh, sudo, apt, dpkg", "real", text)
    if description.kind == "machine":
        yield Row(
            "kernel, initramfs, bootloader, reboot", "real", "a QEMU machine; its timing says nothing about production"
        )
    else:
        yield Row(
            "kernel", "none", "a container runs on this machine's: no modules, command line or bootloader of its own"
        )
        yield Row("initramfs", "real", "built and read back, never booted")
        yield Row("reboot", "simulated", "services start afresh and /run is empty; the kernel stays")
    if description.engines or description.containerd:
        running = [f"{name}, Debian's" for name in description.engines]
        running += [f"containerd {description.containerd}, built from its Go module"] if description.containerd else []
        yield Row("container engine", "real", f"{'; '.join(running)}; no container with a GPU is started")
    if description.gpu is None:
        yield Row("GPU", "none", "nothing that needs one is proved")
        yield Row("NVIDIA driver packages", "real", "Debian's, with a real DKMS build")
        return
    yield from _list_rows_of_gpus(description)
    yield from _list_rows_of_hcas(description)
    yield Row("package repository", "simulated", "on the host itself; reaching production's mirror is not proved")


def _list_rows_of_gpus(description: Description) -> Iterable[Row]:
    yield Row("GPU on the PCI bus", "simulated", "PCI ids and addresses; not this machine's slots, links and topology")
    yield Row("NVML", "stand-in", "gpuprov's own, under the real nvidia-smi: no computation, memory, heat or errors")
    loaded = "load, unload and use counts are real; no hardware is driven"
    text = loaded if description.kind == "machine" else "built by DKMS, not loaded"
    yield Row("NVIDIA kernel modules", "stand-in", text)
    if description.driver:
        text = "Debian's files of another version under the right names"
        yield Row(f"NVIDIA driver {description.driver}", "stand-in", text)
    else:
        text = "Debian's; what touches the silicon is a stand-in of the same version"
        yield Row("NVIDIA user space packages", "real", text)
    if description.nvswitch:
        yield Row("NVSwitch, fabric manager", "stand-in", "PCI functions and a daemon's states; no fabric is trained")


def _list_rows_of_hcas(description: Description) -> Iterable[Row]:
    if not description.hcas:
        return
    if description.kind == "machine":
        yield Row("HCAs", "simulated", "PCI functions; no RDMA device, link, fabric or firmware")
        return
    name = "InfiniBand HCAs" if description.fabric == "infiniband" else "RoCE HCAs"
    text = "files in sysfs as of a live fabric: no verbs, no packets, no firmware, no subnet manager"
    yield Row(name, "simulated", text)
    yield Row("PCIe switches and links", "simulated", "a board's usual tree, with registers that keep what is written")
