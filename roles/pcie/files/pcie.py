"""ACS, maximum read request, relaxed ordering and interrupt affinity of GPUs and HCAs. usage: pcie.py state|apply [CONFIG]

CONFIG has lines `SETTING VALUE`. state prints `FUNCTION SETTING FOUND VALUE` for what differs; apply sets it with setpci (interrupts in
/proc/irq), reads it back, and fails with one line if it is not so. Nothing of this outlives a reboot or a reset of the function.
Managed by gpuprov.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

ROOT = os.environ.get("GPUPROV_ROOT", "")
DEVICES = ROOT + "/sys/bus/pci/devices"
ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")
# https://github.com/torvalds/linux/blob/master/include/uapi/linux/pci_regs.h
EXPRESS, ACS, RELAXED, REQUEST = 0x10, 0x0D, 0x0010, 0x7000

UNREADABLE = "unreadable"


class Refused(Exception):
    """What a person must know, in one line."""


def read(path, size=-1):
    """The bytes of a file; none if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except OSError:
        return b""


def text(path):
    return read(path).decode("ascii", "replace").strip()


def word(space, at):
    return int.from_bytes(space[at : at + 2], "little")


def express(space):
    """Where the PCI Express capability lies; 0 if there is none."""
    at = space[0x34] & 0xFC if len(space) >= 256 and space[6] & 0x10 else 0
    for _ in range(48):
        if at < 0x40 or space[at] == EXPRESS:
            break
        at = space[at + 1] & 0xFC
    else:
        at = 0
    return at if at >= 0x40 else 0


def access(space):
    """Where the ACS extended capability lies; 0 if there is none."""
    at = 0x100 if len(space) >= 4096 else 0
    for _ in range(960):
        if at < 0x100 or word(space, at) in (0, 0xFFFF):
            return 0
        if word(space, at) == ACS:
            return at
        at = word(space, at + 2) >> 4 & 0xFFC
    return 0


def silent(space):
    """Whether a function does not answer, which reads as ones: it fell off the bus, or sleeps."""
    return word(space, 0) == 0xFFFF


def config(address):
    """The configuration space, whole."""
    space = read(os.path.join(DEVICES, address, "config"), 4096)
    if len(space) <= 64:
        raise Refused("the configuration space of %s cannot be read (root can)" % address)
    return space


def functions():
    """(GPUs, HCAs, these and all bridges above them), by address; NVLink bridges are no HCAs, virtual functions have no DevCtl."""
    gpus, hcas, path = [], [], []
    for address in sorted(os.listdir(DEVICES) if os.path.isdir(DEVICES) else []):
        folder = os.path.join(DEVICES, address)
        gpu = text(folder + "/vendor") == "0x10de" and text(folder + "/class").startswith("0x03")
        hca = os.path.isdir(folder + "/infiniband") and b"SW_MNG" not in read(folder + "/vpd")
        if not (gpu or hca) or os.path.islink(folder + "/physfn"):
            continue
        (gpus if gpu else hcas).append(address)
        path += [part for part in os.path.realpath(folder).split("/") if ADDRESS.match(part)]
    return gpus, hcas, sorted(set(path))


def cpus(listed):
    """`0-3,8` as numbers."""
    found = set()
    for part in listed.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            found |= set(range(int(first), int(last or first) + 1))
    return found


def interrupts(address):
    folder = os.path.join(DEVICES, address, "msi_irqs")
    return sorted(int(name) for name in os.listdir(folder)) if os.path.isdir(folder) else []


def settings(path):
    """The configuration as a dictionary."""
    try:
        with open(path, encoding="utf-8") as file:
            rows = [line.split() for line in file if line[:1].isalpha()]
    except OSError as error:
        raise Refused("%s cannot be read: %s" % (path, error.strerror)) from error
    if not rows or any(len(row) != 2 for row in rows):
        raise Refused("%s has %s" % (path, "lines that are no settings" if rows else "no settings"))
    return dict(rows)


def differences(wanted):
    """(function, setting, found, value, how to set it) for each that differs."""
    gpus, hcas, path = functions()
    if ("max_read_request" in wanted or "affinity" in wanted) and not hcas:
        raise Refused("there is no HCA: the driver of RDMA devices is not loaded, or there are none")
    if not path or ("gpu_max_read_request" in wanted and not gpus):
        raise Refused("there is no %s on the PCI bus" % ("GPU" if path else "GPU and no HCA"))
    yield from in_access(path if wanted.get("acs") == "disabled" else [])
    yield from in_control(gpus, int(wanted.get("gpu_max_read_request", 0)), wanted.get("relaxed_ordering"))
    yield from in_control(hcas, int(wanted.get("max_read_request", 0)), wanted.get("relaxed_ordering"))
    yield from in_affinity(hcas if wanted.get("affinity") == "local" and not contained() else [])


def contained():
    """Whether this is a container, in which /proc/irq is the machine's."""
    try:
        return subprocess.run(["systemd-detect-virt", "--container", "--quiet"], check=False).returncode == 0
    except OSError:
        return False


def in_access(addresses):
    for address in addresses:
        space = config(address)
        at = access(space)
        found = UNREADABLE if silent(space) else "%04x" % word(space, at + 6) if at else "0000"
        if found != "0000":
            yield address, "acs", found, "0000", "ECAP_ACS+6.w=0000"


def in_control(addresses, size, ordering):
    for address in addresses:
        space = config(address)
        at, gone = express(space), silent(space)
        if not at and not gone:
            continue
        control = word(space, at + 8)
        found = UNREADABLE if gone else str(128 << (control >> 12 & 7))
        if size and found != str(size):
            change = "CAP_EXP+8.w=%04x:%04x" % ((size // 128).bit_length() - 1 << 12, REQUEST)
            yield address, "max_read_request", found, str(size), change
        found = UNREADABLE if gone else "enabled" if control & RELAXED else "disabled"
        if ordering and found != ordering:
            change = "CAP_EXP+8.w=%04x:%04x" % (RELAXED if ordering == "enabled" else 0, RELAXED)
            yield address, "relaxed_ordering", found, ordering, change


def in_affinity(addresses):
    for address in addresses:
        local = text(os.path.join(DEVICES, address, "local_cpulist"))
        for number in interrupts(address):
            found = text("%s/proc/irq/%d/smp_affinity_list" % (ROOT, number))
            if found and local and not cpus(found) <= cpus(local):
                yield address, "irq %d" % number, found, local, ""


def put(address, setting, value, change):
    """Set one thing; what went wrong, or nothing."""
    if not change:
        try:
            with open("%s/proc/irq/%s/smp_affinity_list" % (ROOT, setting[4:]), "w", encoding="ascii") as file:
                file.write(value)
        except OSError as error:
            return error.strerror
        return ""
    where = ["-A", "linux-sysfs", "-O", "sysfs.path=%s/sys/bus/pci" % ROOT] if ROOT else []
    try:
        done = subprocess.run(
            ["setpci"] + where + ["-s", address, change],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False,
        )  # fmt: skip
    except OSError as error:
        return "setpci: %s" % error.strerror
    return " ".join(done.stdout.split())


def main(action, path):
    wanted = settings(path)
    found = list(differences(wanted))
    if action == "state":
        for address, setting, have, value, _ in found:
            print(address, setting.replace(" ", ""), have, value)
        return
    said = {(row[0], row[1]): put(row[0], row[1], row[3], row[4]) for row in found}
    left = [(row[0], row[1], row[2], row[3], said.get((row[0], row[1]), "")) for row in differences(wanted)]
    for address, setting, have, value, _ in found:
        if (address, setting) not in {row[:2] for row in left}:
            print("%s %s %s -> %s" % (address, setting, have, value))
    if left:
        told = ["%s %s stays %s, asked for is %s%s" % (row[:4] + (" (%s)" % row[4] if row[4] else "",)) for row in left]
        raise Refused("; ".join(told[:4]) + (" and %d more" % (len(told) - 4) if told[4:] else ""))


if __name__ == "__main__":
    try:
        if len(sys.argv) not in (2, 3) or sys.argv[1] not in ("state", "apply"):
            raise Refused("usage: pcie.py state|apply [CONFIG]")
        main(sys.argv[1], sys.argv[2] if sys.argv[2:] else ROOT + "/etc/gpuprov/pcie.conf")
    except Refused as error:
        sys.exit("pcie: %s" % error)
