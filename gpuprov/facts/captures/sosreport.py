"""sosreport, as an archive or its folder: copies of files under their own path, and outputs of commands under
sos_commands.

Names of commands are sos's: blanks and slashes are replaced (https://github.com/sosreport/sos, `mangle_command`); sos
4.0 and 4.9.
"""

import re

from gpuprov.core.safe_parse.archives import decode_text
from gpuprov.facts.captures.model import Pieces

FILES = re.compile(
    r"(?:etc/(?:os-release|modules|modules-load\.d/[^/]+\.conf|sysctl\.d/90-gpuprov\.conf|security/limits\.conf|"
    r"security/limits\.d/[^/]+)|usr/lib/os-release|proc/(?:cmdline|modules|driver/nvidia/(?:version|params))"
    r"|boot/grub2?/grub\.cfg|var/lib/gpuprov/receipt\.json|var/log/(?:messages|syslog|kern\.log)|hostname|"
    r"installed-rpms)\Z"
)
COMMANDS: dict[str, str] = {
    "kernel/uname_-a": "uname -a",
    "kernel/lsmod": "lsmod",
    "kernel/sysctl_-a": "sysctl -a",
    "kernel/dmesg": "dmesg",
    "kernel/dkms_status": "dkms status",
    "logs/journalctl_--no-pager_--boot": "journalctl --boot",
    "logs/journalctl_--no-pager": "journalctl",
    "date/date": "date",
    "pci/lspci_-nnvv": "lspci -nnvv",
    "dpkg/dpkg_-l": "dpkg -l",
    "host/hostname": "hostname",
    "host/uname_-a": "uname -a",
    "systemd/systemctl_show_--all": "systemctl show",
    "systemd/systemctl_show_service_--all": "systemctl show service",
    "systemd/systemctl_list-unit-files": "systemctl list-unit-files",
    "nvidia/nvidia-smi_-q": "nvidia-smi -q",
    "nvidia/nvidia-smi_--list-gpus": "nvidia-smi -L",
    "nvidia/nvidia-smi_topo_-m": "nvidia-smi topo -m",
    "nvidia/nvidia-smi_nvlink_-e": "nvidia-smi nvlink -e",
    "nvidia/nvidia-smi_nvlink_-s": "nvidia-smi nvlink -s",
    "infiniband/ibstat": "ibstat",
}
LOGS = re.compile(
    r"sos_commands/(?:kernel/dmesg|logs/journalctl_--no-pager(?:_--boot)?|nvidia/[^/]+|kernel/dkms_status)\Z|"
    r"var/log/(?:messages|syslog|kern\.log)\Z"
)


def inside(name: str) -> str:
    """Return a member's name without sos's top folder; the name itself if there is none."""
    first, slash, rest = name.partition("/")
    return rest if slash and first.startswith("sosreport") else name


def is_read(name: str) -> bool:
    """Return whether a member is read at all."""
    bare = inside(name)
    return bool(FILES.match(bare) or LOGS.match(bare) or bare.removeprefix("sos_commands/") in COMMANDS)


def is_one(names: set[str]) -> bool:
    """Return whether a tree with these members is such a report."""
    return any(inside(name).startswith("sos_commands/") for name in names)


def pieces(tree: dict[str, bytes], cut: str = "") -> Pieces:
    """Collect the files and commands in the report. `cut`: the reason why others may be missing."""
    collected = Pieces(cut=cut)
    for name, data in tree.items():
        bare = inside(name)
        command = COMMANDS.get(bare.removeprefix("sos_commands/"))
        if command:
            collected.commands.setdefault(command, decode_text(data))
        elif bare == "installed-rpms":
            collected.commands["rpm -qa"] = decode_text(data)
        elif FILES.match(bare):
            collected.files[f"/{bare}"] = decode_text(data)
    return collected


def host(tree: dict[str, bytes]) -> str:
    """Return the host's own name."""
    named = {inside(name): data for name, data in tree.items()}
    for name in ("sos_commands/host/hostname", "hostname"):
        if text := decode_text(named.get(name, b"")).strip():
            return text.split()[0]
    return ""


def logs(tree: dict[str, bytes]) -> str:
    """Return the texts that contain messages."""
    return "\n".join(decode_text(data) for name, data in tree.items() if LOGS.match(inside(name)))
