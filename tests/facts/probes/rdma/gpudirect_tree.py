"""A host's file tree for the probes of GPUDirect RDMA: modules that a compiler made (ELF objects), and stubs of
programs."""

from __future__ import annotations

import lzma
import os
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.rdma.gpudirect import GPUDIRECT, Gpudirect, KernelState, parse

K = "6.1.0-47-amd64"
USES = "void *ib_register_peer_memory_client(void *); void *init(void) { return ib_register_peer_memory_client(0); }"
ALONE = "int init(void) { return -22; }"
CORE = 'char a[] __asm__("__ksymtab_ib_register_peer_memory_client") = "x";'
UVERBS = 'char a[] __asm__("__ksymtab_ib_umem_dmabuf_get_pinned") = "x";'
SYMVERS = "".join(
    f"{crc}\tib_{word}register_peer_memory_client\t/x/ib_core\tEXPORT_SYMBOL\n"
    for crc, word in (("0x{0}", ""), ("0x2", "un"))
)
MODINFO = r"""#!/bin/sh
k='' f='' n=
while [ $# -gt 1 ]; do case $1 in -k) k=$2; shift 2 ;; -F) f=$2; shift 2 ;; -n) n=1; shift ;; *) shift ;; esac; done
case $1 in /*) file=$1 ;; *) file=$(ls ROOT/lib/modules/$k/updates/$1.ko* 2>/dev/null | grep -v '\.info$' | head -n 1)
  [ -z "$file" ] && [ "$1" = ib_core ] && [ -e ROOT/builtin ] && { echo '(builtin)'; exit 0; } ;; esac
[ -n "$file" ] || exit 1
[ -n "$n" ] && { echo "$file"; exit 0; }
sed -n "s/^$f: //p" "$file.info" 2>/dev/null; true
"""


@cache
def compiled(source: str) -> bytes:
    """A relocatable ELF object."""
    with TemporaryDirectory() as folder:
        made = Path(folder) / "made.ko"
        command = ["gcc", "-x", "c", "-c", "-o", str(made), "-"]
        subprocess.run(command, input=source, text=True, check=True, timeout=20)
        return made.read_bytes()


class Host:
    """A host's file tree below a folder, and the programs that the scripts call."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.programs = root / "bin"
        self.programs.mkdir()
        self.program("modinfo", MODINFO.replace("ROOT", str(root)))
        self.program("modprobe", '#!/bin/sh\n[ -f "$2.crc" ] && cat "$2.crc"\n')
        for name in ("systemctl", "journalctl", "dmesg", "ofed_info"):
            self.program(name, "#!/bin/sh\nexit 1\n")
        self.program("uname", f'#!/bin/sh\n[ "$1" = -m ] && echo x86_64 || echo {K}\n')
        self.text(
            "proc/modules",
            "nvidia 1 1 nvidia_peermem, Live 0x0\nib_core 1 2 ib_uverbs,nvidia_peermem, Live 0x0\nnvidia_peermem "
            "16384 0 - Live 0x0\n",
        )
        self.text("proc/kallsyms", "0 T ib_register_peer_memory_client\t[ib_core]\n")
        self.text("proc/devices", "Character devices:\n195 nvidia\n237 gdrdrv\n")
        self.kernel(K)

    def program(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def text(self, path: str, text: str) -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def kernel(
        self, release: str, options: str = "CONFIG_DMA_SHARED_BUFFER=y\nCONFIG_INFINIBAND_ON_DEMAND_PAGING=y\n"
    ) -> None:
        self.text(f"boot/vmlinuz-{release}", "")
        self.text(f"boot/config-{release}", options)
        self.text(f"lib/modules/{release}/build/Makefile", "")
        self.module("nvidia-current", ALONE, release, info="version: 535.261.03\nlicense: NVIDIA\n")

    def module(
        self, name: str, source: str, release: str = K, *, info: str = "", pack: str = "", crc: str = ""
    ) -> Path:
        """An ELF object of this source where modprobe looks, compressed if asked for."""
        place = self.text(f"lib/modules/{release}/updates/{name}.ko", "")
        place.write_bytes(compiled(source))
        if pack == "xz":
            place.with_suffix(".ko.xz").write_bytes(lzma.compress(place.read_bytes()))
        elif pack == "zst":
            subprocess.run(["zstd", "-q", "--rm", str(place)], check=True, timeout=20)
        if pack == "xz":
            place.unlink()
        place = place.with_suffix(f".ko.{pack}") if pack else place
        Path(f"{place}.info").write_text(info)
        if crc:
            Path(f"{place}.crc").write_text(f"{crc}\tib_register_peer_memory_client\n")
        return place

    def run(self, script: str, path: str = "/usr/bin:/bin") -> Output:
        for folder in (
            "/lib/modules",
            "/boot/",
            "/usr/src/ofa_kernel",
            "/var/lib/dkms",
            "/sys/module",
            "/proc/",
            "/etc/systemd",
            "/dev/gdrdrv",
        ):
            script = script.replace(folder, f"{self.root}{folder}")
        env = {**os.environ, "PATH": f"{self.programs}:{path}"}
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, timeout=20, env=env)
        assert not done.stderr, done.stderr
        return Output(done.stdout)

    def read(self, path: str = "/usr/bin:/bin") -> Gpudirect:
        return parse(self.run(GPUDIRECT.script, path))

    def only(self) -> KernelState:
        (state,) = self.read().kernels
        return state
