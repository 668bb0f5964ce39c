"""Bug reports and sosreports put together from real outputs, in the form of the programs that make them.

The frame of a bug report is that of nvidia-bug-report.sh of driver 550 (Debian's package), names of sosreport's files
those of sos 4.0 and 4.9 on Debian. What stands in the sections are captures of tests/real, and one composed `nvidia-smi
-q` around a real block.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

REAL = Path(__file__).parents[2] / "real"
RULE = "____________________________________________"
UNAME = "Linux gpu017 5.14.0-570.el9.x86_64 #1 SMP PREEMPT_DYNAMIC Thu Nov 6 2025 x86_64 GNU/Linux"


def real(capture: str, file: str) -> str:
    """An output of a capture."""
    return (REAL / capture / file).read_text(encoding="utf-8")


SWITCHES = "".join(
    f"0{bus}:00.0 Bridge [0680]: NVIDIA Corporation GH100 [H100 NVSwitch] [10de:22a3] (rev a1)\n" for bus in "5678"
)
"""Composed: the capture of the H200 lists its GPUs alone."""


def smi_q() -> str:
    """`nvidia-smi -q` of the H200 whose block Fabric was published; the lines around it are composed."""
    block = real("h200-fabric-unhealthy", "nvidia-smi-q-block.txt")
    gpus = [line.split()[0] for line in real("h200-lspci", "lspci-nn.txt").splitlines()]
    text = (
        "==============NVSMI LOG==============\n\nDriver Version                            : "
        "580.95.05\n\nAttached GPUs : 8\n"
    )
    for number, bus in enumerate(gpus):
        state = block if number == 0 else block.replace("Unhealthy", "Healthy")
        text += (
            f"GPU 00000000:{bus.upper()}\n    Product Name                          : NVIDIA H200\n"
            f"    Persistence Mode                      : Enabled\n"
            f"    GPU UUID                              : GPU-0000000{number}-0000-0000-0000-000000000000\n"
            f"    GSP Firmware Version                  : 580.95.05\n{state}    Processes                           "
            "  : None\n"
        )
    return text


def bug_report(kernel_log: str = "", name: str = "gpu017") -> str:
    """A whole report."""
    sections = [
        "Start of NVIDIA bug report log file.  Please include this file, along\nwith a detailed description of your "
        "problem, when\n"
        "reporting a graphics driver bug\n\nnvidia-bug-report.sh Version: 35801008\n\nDate: Thu Nov 19 14:06:53 UTC "
        f"2026\nuname: {UNAME.replace('gpu017', name)}\ncommand line flags: \n",
        "*** /etc/issue\n*** ls: -rw-r--r-- 1 root root 27 2026-07-02 19:05:00.000000000 +0000 /etc/issue\n\\S\n",
        f"/usr/sbin/lspci -nn\n\n{SWITCHES}{real('h200-lspci', 'lspci-nn.txt')}",
        f"Scanning kernel log files for NVIDIA kernel messages:\n\n  journalctl -b -0:\n{kernel_log}",
        "*** /proc/cmdline\n*** ls: -r--r--r-- 1 root root 0 2026-11-19 14:06:53.000000000 +0000 /proc/cmdline\n"
        "BOOT_IMAGE=(hd0,gpt2)/vmlinuz-5.14.0-570.el9.x86_64 root=/dev/sda2 ro rd.driver.blacklist=nouveau iommu=pt\n",
        "*** /proc/driver/nvidia/./version\n*** ls: -r--r--r-- 1 root root 0 2026-11-19 /proc/driver/nvidia/./version\n"
        + real("version-580-open", "proc-driver-nvidia-version.txt"),
        "*** /proc/driver/nvidia/./registry does not exist\n",
        f"/usr/bin/nvidia-smi --query\n\n{smi_q()}\n\n/usr/bin/nvidia-smi --query --unit\n\nNo units found\n",
        "End of NVIDIA bug report log file.\n",
    ]
    return "".join(f"{RULE}\n\n{section}\n" for section in sections)


def sosreport() -> dict[str, str]:
    """The members of an sosreport, without the folder that sos puts them into."""
    shown = "".join(
        f"Id={name}\nNames={name}\nLoadState=loaded\nActiveState={active}\nSubState=running\nUnitFileState=enabled\n\n"
        for name, active in (("nvidia-persistenced.service", "active"), ("sshd.service", "active"))
    )
    return {
        "hostname": "gpu017.dc1.example.com\n",
        "etc/os-release": 'ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\nPRETTY_NAME="Debian GNU/Linux 12 '
        '(bookworm)"\n',
        "proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz root=/dev/sda2 ro iommu=pt\n",
        "proc/driver/nvidia/version": real("version-580-open", "proc-driver-nvidia-version.txt"),
        "sos_commands/host/hostname": "gpu017.dc1.example.com\n",
        "sos_commands/kernel/uname_-a": UNAME + "\n",
        "sos_commands/kernel/dmesg": "[   12.1] " + real("row-remap-xid63", "dmesg.txt"),
        "sos_commands/kernel/lsmod": "Module                  Size  Used by\nnvidia              56823808  12 "
        "nvidia_uvm\n",
        "sos_commands/kernel/sysctl_-a": "vm.swappiness = 10\nkernel.numa_balancing = 0\n",
        "sos_commands/pci/lspci_-nnvv": real("h200-lspci", "lspci-nn.txt").replace(
            "(rev a1)\n",
            "(rev a1)\n\tSubsystem: NVIDIA Corporation Device [10de:18be]\n\tKernel driver in use: nvidia\n",
        ),
        "sos_commands/dpkg/dpkg_-l": "ii  dpkg 1.21.22 amd64 Debian package management system\n"
        "hi  libnvidia-ml1:amd64 580.95.05-1 amd64 NVML\nhi  nvidia-smi 580.95.05-1 amd64 nvidia-smi\n",
        "sos_commands/systemd/systemctl_show_service_--all": shown,
        "sos_commands/systemd/systemctl_list-unit-files": "UNIT FILE STATE PRESET\nnvidia-persistenced.service "
        "enabled enabled\nnvidia-fabricmanager.service disabled enabled\n\n3 unit files listed.\n",
        "var/log/unrelated": "password: not read at all\n",
    }


def tarball(members: dict[str, str | bytes], mode: str = "w:gz", folder: str = "") -> bytes:
    """A tar archive of these members."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            data = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(folder + name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return file.getvalue()
