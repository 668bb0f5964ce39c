"""Rules for the scratch file system that hold on any host."""

from collections.abc import Iterable
from pathlib import PurePosixPath

from gpuprov.capabilities.scratch.fragment import Scratch
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Problem, report_under

problem = report_under("scratch")
SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib64", "proc", "root", "run", "sbin", "sys", "usr")
HELD = ("/home", "/opt", "/srv", "/tmp", "/var", "/var/lib", "/var/log", "/var/tmp", "/mnt", "/media")


def rules(host: HostSpec, block: Scratch) -> Iterable[Problem]:
    parts = PurePosixPath(block.mount).parts
    if parts[1] in SYSTEM or block.mount in HELD or ".." in parts:
        yield problem("mount", f"is {block.mount}, a folder of the system's", "mount: /scratch, or /mnt/scratch")
    gds = host.capabilities.get("gds")
    if getattr(gds, "path", "") == "p2pdma" and block.count != 1:
        message = "may be RAID 0, and GPUDirect Storage by PCI P2PDMA (gds.path) reads no RAID 0"
        yield problem("", message, "scratch: {count: 1}, with one disk; or gds: {path: nvidia-fs}", warning=True)
