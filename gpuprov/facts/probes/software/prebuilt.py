"""Packages of kernel modules that another host built: whether their files are unchanged, and the build host's record of
them."""

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.host_code.driver.prebuilt import FOLDER, SUFFIX

__all__ = ["FOLDER", "PREBUILT", "SUFFIX", "Prebuilt", "parse_prebuilt"]


class Prebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """`sums`: SHA-256 of the list of checksums in the package; `recorded`: the one that the build host recorded.
    `files`: each module's path, and whether its checksum matches the list."""

    package: str
    sums: str = ""
    recorded: str = ""
    files: dict[str, bool] = {}

    def kernels(self) -> set[str]:
        """The kernels that it has modules for."""
        return {path.split("/")[2] for path in self.files if path.count("/") > 2}


def parse_prebuilt(output: Output) -> tuple[Prebuilt, ...]:
    packages: list[Prebuilt] = []
    for line in output.text.splitlines():
        cells = line.split("|")
        if cells[0] == "package" and len(cells) == 4:
            packages.append(Prebuilt(package=cells[1], sums=cells[2], recorded=cells[3], files={}))
        elif cells[0] == "file" and packages:
            path, _, state = cells[1].rpartition(": ")
            packages[-1].files[path] = state == "OK"
    return tuple(packages)


PREBUILT = Probe(
    "prebuilt_modules",
    rf"""cd / || exit 1
for f in usr/share/*{SUFFIX}/SHA256SUMS; do
  [ -e "$f" ] || continue
  p=${{f%/*}}; p=${{p##*/}}; s=$(sha256sum < "$f")
  echo "package|$p|${{s%% *}}|$(sed -n 's/.*"sums": "\([0-9a-f]*\)".*/\1/p' {FOLDER}/$p.json 2>/dev/null)"
  LC_ALL=C sha256sum -c "$f" 2>/dev/null | sed 's/^/file|/'
done
true""",
    parse_prebuilt,
    f"cd / && sha256sum -c /usr/share/*{SUFFIX}/SHA256SUMS; dpkg -S /lib/modules/*/updates/dkms/nvidia*",
)
