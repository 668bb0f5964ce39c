"""A host made of the pieces that a capture holds, so that a probe's own script can be run over it.

Files lie below a folder, and the script's paths are written to begin there. Programs print what the capture holds and
know nothing else; of this machine's own only those are there that read no system (sed, awk, stat ...). What a capture
does not hold is missing, as it is missing on a host.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from gpuprov.facts.probes.base import Output, Probe

PLAIN = (
    "awk base64 basename bash cat cmp cpio cut date dirname env expr false find gawk getconf grep gzip head ls mawk "
    "mkdir mktemp od paste "
    "printf readlink rm rmdir sed seq setpriv sh sha256sum sort tail tee test timeout touch tr true uniq wc xargs "
    "xz xzcat zcat id"
).split()
"""Programs of this machine that say nothing of it; the system's kernel, packages and units are told by the capture
alone."""
PLACES = re.compile(
    r"(?<![\w.*}~$)\]])/(sys|proc|etc|lib|usr|boot|var|dev|run|opt|root)(?=/)(?!/(?:null|tcp|stdin|\$\$))"
)


class Tree:
    """`kernel` is the running release, where the capture tells it: it was booted, so its image is there."""

    def __init__(self, folder: Path, kernel: str = "") -> None:
        self.root, self.bin, self.texts = folder / "root", folder / "bin", folder / "texts"
        for made in (self.root, self.bin, self.texts):
            made.mkdir(parents=True)
        self.kernel = kernel
        self.nodes: dict[str, tuple[int, int, str, str, str]] = {}
        (self.texts / "nodes").touch()
        self.program("stat", _STAT.format(real=shutil.which("stat"), nodes=self.texts / "nodes"))
        if kernel:
            self.file(f"/boot/vmlinuz-{kernel}")
            self.folder(f"/lib/modules/{kernel}")
        machine, release = "aarch64" if "aarch64" in kernel else "x86_64", kernel or "unknown"
        self.program(
            "uname", f"case $1 in -r) echo {release};; -m) echo {machine};; *) echo Linux {release} {machine};; esac"
        )

    def file(self, path: str, text: str | bytes = "") -> Path:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_symlink():
            place.unlink()
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
        return place

    def folder(self, path: str) -> Path:
        place = self.root / path.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        return place

    def link(self, path: str, target: str) -> None:
        """A symbolic link; an absolute target is one of the host's."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.is_symlink():
            place.symlink_to(f"{self.root}{target}" if target.startswith("/") else target)

    def node(self, path: str, major: int, minor: int, mode: str, user: str = "root", group: str = "root") -> None:
        """A character device, which only root can make: one of this machine's that everybody may have, with the numbers
        told apart."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to("/dev/null")
        self.nodes[path] = (major, minor, mode, user, group)
        rows = (f"{self.root}{name} {a:x} {b:x} {m} {u} {g}\n" for name, (a, b, m, u, g) in self.nodes.items())
        (self.texts / "nodes").write_text("".join(rows))

    def program(self, name: str, body: str) -> None:
        place = self.bin / name
        place.unlink(missing_ok=True)
        place.write_text(f"#!/bin/sh\n{body}\n")
        place.chmod(0o755)

    def prints(self, name: str, text: str, status: int = 0, when: str = "*") -> None:
        """A program that prints this for words that match a pattern of the shell; it may be told several."""
        count = len(list(self.texts.iterdir()))
        told = self.texts / f"{name}.{count}"
        told.write_text(text)
        rows = self.texts / f"{name}.cases"
        with rows.open("a") as file:
            file.write(f"{when}) cat {told}; exit {status};;\n")
        self.program(name, f'case "$*" in\n{rows.read_text()}esac\nexit 1')

    def run(self, probe: Probe[Any]) -> Output:
        """What the probe's script prints on this host, with the host's own paths."""
        script = PLACES.sub(lambda match: f"{self.root}{match[0]}", probe.script)
        path = f"{self.bin}:{_plain().name}:{self.root}/usr/bin:{self.root}/usr/sbin"
        env = {"PATH": path, "LC_ALL": "C.UTF-8", "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
        done = subprocess.run(
            [_shell(), "-c", script],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=env,
            stdin=subprocess.DEVNULL,
        )
        root = str(self.root)
        return Output(done.stdout.replace(root, ""), done.returncode, done.stderr.replace(root, ""))


@cache
def _plain() -> tempfile.TemporaryDirectory[str]:
    """A folder of the programs that say nothing of a system, which all hosts share."""
    folder = tempfile.TemporaryDirectory(prefix="gpuprov-")
    for name in PLAIN:
        if place := shutil.which(name):
            Path(folder.name, name).symlink_to(place)
    return folder


@cache
def _shell() -> str:
    found = shutil.which("dash") or shutil.which("sh")
    assert found
    return found


_STAT = r"""f=; L=; p=
for w in "$@"; do
  case $w in -L) L=-L ;; -c) ;; *%*) f=$w ;; *) p=$w ;; esac
done
r=$(while read -r n a b m u g; do [ "$n" = "$p" ] && echo "$a $b $m $u $g"; done < {nodes} 2>/dev/null)
[ -n "$r" ] || exec {real} $L -c "$f" "$p"
set -- $r
printf '%s\n' "$f" | sed "s/%t/$1/g; s/%T/$2/g; s/%a/$3/g; s/%U/$4/g; s/%G/$5/g"
"""
