"""The packages themselves: resolved and fetched by a host's own apt, from its own signed sources, in a folder of its own."""

from __future__ import annotations

import hashlib
import re
import shlex
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpuprov.errors import GpuprovError
from gpuprov.offline import transfer
from gpuprov.offline.licences import licence
from gpuprov.offline.model import Package
from gpuprov.offline.wanted import Wanted
from gpuprov.onhost.packages import apt_settings
from gpuprov.onhost.packages.model import Pin
from gpuprov.reading.archives import Member
from gpuprov.spec.model import RawHost

SCRIPT = r"""set -eu
d=$(mktemp -d /var/tmp/gpuprov-bundle.XXXXXX)
trap 'rm -rf "$d"' EXIT
chmod 755 "$d"
mkdir -p "$d/archives/partial"
: > "$d/status"
printf '%s' @PREFERENCES@ > "$d/preferences"
cat /etc/apt/preferences >> "$d/preferences" 2>/dev/null || :
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
apt-get -qq -o APT::Update::Error-Mode=any -o DPkg::Lock::Timeout=300 update >&2
# As on a host without a package: then nothing is left out because this one has it.
apt-get -y -qq --download-only --no-install-recommends -o Dir::State::status="$d/status" \
  -o Dir::State::extended_states="$d/extended" \
  -o Dir::Etc::preferences="$d/preferences" -o Dir::Cache::archives="$d/archives" \
  -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
  -o APT::Sandbox::User=root -o APT::Keep-Downloaded-Packages=true install @NAMES@ >&2
cd "$d/archives"
for f in *.deb; do
  n=$(printf %s "$f" | sed 's/%3a/-/')
  [ "$n" = "$f" ] || mv "$f" "$n"
  sum=$(sha256sum < "$n" | cut -d ' ' -f 1)
  { dpkg-deb -f "$n"; printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$n" "$(stat -c %s "$n")" "$sum"; } >> Packages
done
tar -cf - Packages *.deb
"""
NAME = re.compile(r"[a-z0-9][A-Za-z0-9.+~_-]*\.deb")
MOST = 16 << 30
"""Bytes that one host may hand over."""
INDEX = "Packages"


def fetched(raw: RawHost, wanted: Wanted, folder: Path) -> None:
    """Add what this host resolves to the packages in the folder, and their stanzas to its index. Raises GpuprovError."""
    pin = Pin(str(wanted.pin["version"]), tuple(wanted.pin["patterns"])) if wanted.pin.get("patterns") else None
    script = SCRIPT.replace("@PREFERENCES@", shlex.quote(apt_settings.records(pin) + "\n" if pin else ""))
    script = script.replace("@NAMES@", shlex.join(wanted.packages))
    with tempfile.TemporaryDirectory(prefix=".gpuprov-", dir=folder.parent) as scratch:
        kept = Path(scratch) / "archives.tar"
        transfer.run(raw, script, kept=kept)
        try:
            with tarfile.open(kept, "r:", tarinfo=Member) as archive:
                index = _unpacked(archive, folder)
        except (tarfile.TarError, UnicodeDecodeError, EOFError) as error:
            raise GpuprovError(f"{raw.name}: what it handed over is no archive of packages: {error}") from error
    known = {stanza["Filename"]: stanza for stanza in stanzas(_text(folder / INDEX))}
    fresh = {stanza["Filename"]: stanza for stanza in stanzas(index)}
    for name, stanza in fresh.items():
        file = folder / name.removeprefix("./")
        if not file.is_file() or file.stat().st_size != int(stanza["Size"]) or sha256(file) != stanza["SHA256"]:
            raise GpuprovError(f"{raw.name}: {name} is not what the host's index says of it", "make the bundle again")
        if name in known and known[name]["SHA256"] != stanza["SHA256"]:
            raise GpuprovError(
                f"{raw.name}: {name} is another file than on a host before it, at the same version",
                "have all hosts of a release take it from the same sources",
            )
    known |= fresh
    (folder / INDEX).write_text("".join(known[name][""] + "\n" for name in sorted(known)), encoding="utf-8")


def _unpacked(archive: tarfile.TarFile, folder: Path) -> str:
    index, total = "", 0
    for member in archive:
        total += member.size
        if not member.isreg() or total > MOST or not (member.name == INDEX or NAME.fullmatch(member.name)):
            raise tarfile.TarError(f"unexpected {member.name[:80]!r}")
        data = archive.extractfile(member)
        assert data is not None
        if member.name == INDEX:
            index = data.read().decode()
            continue
        with (folder / member.name).open("wb") as file:
            while block := data.read(1 << 20):
                file.write(block)
    return index


def packages(folder: Path) -> tuple[Package, ...]:
    """The packages of a repository, by its index."""
    return tuple(
        sorted(
            Package(
                name=one["Package"],
                version=one["Version"],
                architecture=one["Architecture"],
                file=one["Filename"].removeprefix("./"),
                section=one.get("Section", ""),
                sha256=one["SHA256"],
                licence=licence(one["Package"], one.get("Section", "")).key,
            )
            for one in stanzas(_text(folder / INDEX))
        )
    )


def stanzas(text: str) -> Iterator[dict[str, str]]:
    """Fields of each package in an index; its whole text under the empty name. What continues a field is left out."""
    for stanza in re.split(r"\n{2,}", text.strip("\n")):
        rows = (line.partition(":") for line in stanza.splitlines() if line[:1] not in (" ", "\t", ""))
        fields = {name: value.strip() for name, _, value in rows}
        if fields:
            yield {**fields, "": stanza + "\n"}


def sha256(file: Path) -> str:
    """Of the file's bytes."""
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""
