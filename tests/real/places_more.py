"""Further places: what the kernel, package managers and clusters print."""

from __future__ import annotations

import re

from gpuprov.core import safe_parse
from tests.real.places import kernels_of_packages, ls_long, systemctl_status
from tests.real.tree import Tree


def lsmod(tree: Tree, text: str, _: str) -> None:
    """/proc/modules has the columns of lsmod, its users in one word behind the count; what is loaded has a folder in
    sysfs."""
    rows = []
    for line in text.splitlines():
        found = re.match(r"(\w+)\s+(\d+)\s+(\d+)\s*(\S*)", line)
        if found and found[1] != "Module":
            rows.append(
                f"{found[1]} {found[2]} {found[3]} {found[4] + ',' if found[4] else '-'} Live 0x0000000000000000\n"
            )
            tree.folder(f"/sys/module/{found[1]}")
    tree.file("/proc/modules", "".join(rows))


def journal(tree: Tree, text: str, _: str) -> None:
    """Lines of the journal, without what stands in front of the message."""
    told = re.sub(r"^\w{3} +\d+ [\d:.]+ \S+ [\w.-]+\[\d+\]: ", "", text, flags=re.MULTILINE)
    tree.prints("journalctl", told)


def dmesg(tree: Tree, text: str, _: str) -> None:
    tree.prints("dmesg", re.sub(r"^\[[^\]]*\] ?", "", text, flags=re.MULTILINE))


def programs(tree: Tree, text: str, _: str) -> None:
    """Paths of programs, however they were listed (ls, which, locate, dpkg -L)."""
    for path in re.findall(r"(?<!\S)(/usr/s?bin/[\w.-]+)", text):
        tree.file(path).chmod(0o755)


def initrd(tree: Tree, text: str, command: str) -> None:
    """The list of an image's files, of the running kernel's where nothing else is told. lsinitrd is a part of
    dracut."""
    name, release = command.split(maxsplit=1)[0], tree.kernel or "unknown"
    image = f"initramfs-{release}.img"
    if name == "lsinitramfs":
        image = f"initrd.img-{release}"
    elif release.endswith(("default", "unknown")):
        image = f"initrd-{release}"
    tree.file(f"/boot/{image}")
    tree.folder(f"/lib/modules/{release}")
    tree.prints(name, text)
    if name == "lsinitrd":
        tree.file("/usr/bin/dracut").chmod(0o755)


def folder(tree: Tree, text: str, command: str) -> None:
    """`ls` of one folder, long or short."""
    for line in text.splitlines():
        words = line.split()
        for name in words[8:9] if "-l" in command.split() else words:
            tree.file(f"{command.rsplit(maxsplit=1)[-1]}/{name}")


def apt_config(tree: Tree, text: str, _: str) -> None:
    """`apt-config dump`. Asked for one key in a format of its own, it prints that key alone."""
    key = r'^APT::Get::allow-change-held-packages "(.*)";'
    told = re.findall(key, text, re.MULTILINE | re.IGNORECASE)
    tree.prints("apt-config", "".join(f"apt|{value}\n" for value in told))


def apt_cache_show(tree: Tree, text: str, _: str) -> None:
    """Records of packages; the host has the kernels that their names end with."""
    names = re.findall(r"^Package: (\S+)", text, re.MULTILINE)
    for name in names:
        if found := re.search(r"-(\d+\.\d+\.\d+-\d+-\w+)$", name):
            tree.folder(f"/lib/modules/{found[1]}")
    tree.file("/etc/os-release", "ID=ubuntu\nID_LIKE=debian\n")
    tree.prints("apt-cache", "".join(f"{name}\n" for name in names), when="pkgnames*")
    tree.prints("apt-cache", text, when="show*")


def dpkg_list(tree: Tree, text: str, command: str) -> None:
    """`dpkg -l`: kernels, and the columns that dpkg-query is asked for, without what the packages depend on."""
    kernels_of_packages(tree, text, command)
    rows = re.findall(r"^(\w\w) +(linux-modules-nvidia-\S+?)(?::\w+)? +(\S+)", text, re.MULTILINE)
    tree.prints("dpkg-query", "".join(f"{state} |{name}|{version}|\n" for state, name, version in rows))


def imex_status(tree: Tree, text: str, command: str) -> None:
    """`systemctl status`: where the unit is, its package put the program too."""
    systemctl_status(tree, text, command)
    if "/nvidia-imex.service" in text:
        tree.file("/usr/bin/nvidia-imex").chmod(0o755)


def kubectl_node(tree: Tree, text: str, _: str) -> None:
    """A node of a cluster, as YAML or JSON; the API gives JSON. The kubelet has credentials, and kubectl is there."""
    from yaml import safe_load

    node = safe_load(text)
    node.setdefault("metadata", {})
    node.setdefault("status", {})
    tree.file("/etc/kubernetes/kubelet.conf", "apiVersion: v1\n")
    tree.file("/usr/local/bin/kubectl")
    tree.program("openssl", "exit 1")
    tree.prints("kubectl", reading_json(node))


def reading_json(value: object) -> str:
    import msgspec

    text = msgspec.json.encode(value).decode()
    assert safe_parse.parse_json(text) == value
    return text


def mig_capabilities(tree: Tree, text: str, _: str) -> None:
    """Files of capabilities with what is in them (`PATH` and its lines), or with the device file that each is opened
    by."""
    for path, minor in re.findall(r"(/proc/\S+access)\s[^/]*/dev/nvidia-caps/nvidia-cap(\d+)", text):
        tree.file(path, f"DeviceFileMinor: {minor}\n")


GPU_INSTANCES, COMPUTE_INSTANCES = 15, 8


def mig_device_files(tree: Tree, text: str, command: str) -> None:
    """`ls -l /dev/nvidia-caps`. The driver's minors are fixed (/proc/driver/nvidia-caps/mig-minors): 1 and 2 configure
    and monitor, then each GPU has for each of 15 GPU instances its own and those of 8 compute instances."""
    ls_long(tree, text, command)
    for minor in map(int, re.findall(r"nvidia-cap(\d+)$", text, re.MULTILINE)):
        if minor > 2:
            gpu, rest = divmod(minor - 3, GPU_INSTANCES * (COMPUTE_INSTANCES + 1))
            instance, part = divmod(rest, COMPUTE_INSTANCES + 1)
            place = f"gpu{gpu}/mig/gi{instance}" + (f"/ci{part - 1}" if part else "")
            tree.file(f"/proc/driver/nvidia/capabilities/{place}/access", f"DeviceFileMinor: {minor}\n")


def processes(tree: Tree, text: str, _: str) -> None:
    """`ps -ef`, `ps -elf`, `ps aux`: what /proc shows of processes of MPS; grep's own line is none."""
    for line in text.splitlines():
        found = re.search(r"^(?:\d \w )?(\S+) +(\d+) .*? \d+:\d\d(?::\d\d)? (nvidia-cuda-mps-.*)", line)
        if found:
            folder = f"/proc/{found[2]}"
            tree.file(f"{folder}/comm", found[3].split()[0][:15] + "\n")
            tree.file(f"{folder}/cmdline", found[3].replace(" ", "\0") + "\0")
            for empty in ("cgroup", "environ"):
                tree.file(f"{folder}/{empty}")


def mps_servers(tree: Tree, text: str, _: str) -> None:
    """`echo get_server_list | nvidia-cuda-mps-control`; what it would say to other questions is not told."""
    told = tree.texts / "mps-servers"
    told.write_text(text)
    tree.program("nvidia-cuda-mps-control", f'while read -r l; do [ "$l" != get_server_list ] || cat {told}; done')


def key_tested(tree: Tree, text: str, _: str) -> None:
    """`mokutil --test-key`: the certificate is there."""
    tree.file(text.split(maxsplit=1)[0])
    tree.prints("mokutil", text, when="--test-key*")


def dkms_log(tree: Tree, text: str, command: str) -> None:
    """The log of a build that failed. Where its first line is not told, it names no kernel."""
    first = "" if text.startswith("DKMS") else "\n"
    tree.file("/var/lib/dkms/nvidia/1/build/make.log", first + text)


def rdma_statistic(tree: Tree, text: str, _: str) -> None:
    """`rdma statistic show`: what the files of hw_counters say, of each port that it names."""
    for device, port, told in re.findall(r"^link (\S+)/(\d+)((?:\s+(?!link )\w+ \d+)*)", text, re.MULTILINE):
        _counters(tree, device, port, re.findall(r"(\w+) (\d+)", told))


def show_counters(tree: Tree, text: str, command: str) -> None:
    """`show_counters DEVICE` of mlnx-tools prints each file of hw_counters."""
    port, told = re.split(r"^Port (\d+) hw counters:\n", text, maxsplit=1, flags=re.MULTILINE)[1:]
    _counters(tree, command.rsplit(maxsplit=1)[-1], port, re.findall(r"^(\w+): (\d+)$", told, re.MULTILINE))


def _counters(tree: Tree, device: str, port: str, counters: list[tuple[str, str]]) -> None:
    for name, count in counters:
        tree.file(f"/sys/class/infiniband/{device}/ports/{port}/hw_counters/{name}", f"{count}\n")
