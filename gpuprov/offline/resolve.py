"""The packages themselves: resolved and fetched by a host's own apt, from its own signed sources, in a folder of its own."""

from __future__ import annotations

import hashlib
import re
import shlex
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpuprov import reading
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
LARGEST = 64 << 20
"""Bytes of an index."""
NEEDED = ("Package", "Version", "Architecture", "Filename", "Size", "SHA256")


def fetched(raw: RawHost, wanted: Wanted, folder: Path) -> None:
    """Add what this host resolves to the packages in the folder, and their stanzas to its index. Raises GpuprovError."""
    pin = Pin(str(wanted.pin["version"]), tuple(wanted.pin["patterns"])) if wanted.pin.get("patterns") else None
    script = SCRIPT.replace("@PREFERENCES@", shlex.quote(apt_settings.records(pin) + "\n" if pin else ""))
    script = script.replace("@NAMES@", shlex.join(wanted.packages))
    with tempfile.TemporaryDirectory(prefix=".gpuprov-", dir=folder.parent) as scratch:
        kept = Path(scratch) / "archives.tar"
        transfer.run(raw, script, kept=kept, most=MOST)
        try:
            with tarfile.open(kept, "r:", tarinfo=Member) as archive:
                index, files = _unpacked(archive, folder)
            fresh = judged(index, files)
        except (tarfile.TarError, ValueError, EOFError) as error:
            raise GpuprovError(f"{raw.name}: what it handed over is no archive of packages: {error}") from error
    known = {stanza["Filename"]: stanza for stanza in stanzas(_text(folder / INDEX))}
    for name, stanza in fresh.items():
        file = folder / name.removeprefix("./")
        if file.stat().st_size != int(stanza["Size"]) or sha256(file) != stanza["SHA256"]:
            raise GpuprovError(f"{raw.name}: {name} is not what the host's index says of it", "make the bundle again")
        if name in known and known[name]["SHA256"] != stanza["SHA256"]:
            raise GpuprovError(
                f"{raw.name}: {name} is another file than on a host before it, at the same version",
                "have all hosts of a release take it from the same sources",
            )
    known |= fresh
    (folder / INDEX).write_text("".join(known[name][""] + "\n" for name in sorted(known)), encoding="utf-8")


def _unpacked(archive: tarfile.TarFile, folder: Path) -> tuple[str, set[str]]:
    """The index, and the names of the packages, which are in the folder then."""
    index, total, files = "", 0, set[str]()
    for member in archive:
        total += member.size
        if not member.isreg() or total > MOST or not (member.name == INDEX or NAME.fullmatch(member.name)):
            raise tarfile.TarError(f"unexpected {member.name[:80]!r}")
        data = archive.extractfile(member)
        assert data is not None
        if member.name == INDEX:
            if member.size > LARGEST:
                raise tarfile.TarError(f"its index has more than {LARGEST >> 20} MiB")
            index = data.read().decode()
            continue
        files.add(member.name)
        with (folder / member.name).open("wb") as file:
            while block := data.read(1 << 20):
                file.write(block)
    return index, files


def judged(index: str, files: set[str]) -> dict[str, dict[str, str]]:
    """The stanzas of an index by file: one for each package that came with it, and no field twice, of which apt reads the other one.

    Raises ValueError."""
    if re.search(r"[\x00\r]|^[ \t]+$", index, re.MULTILINE):
        raise ValueError("its index has a line that readers take for an end, and others not")
    found: dict[str, dict[str, str]] = {}
    for stanza in stanzas(index):
        name = stanza.get("Filename", "")
        missing = [field for field in NEEDED if not stanza.get(field)]
        names = [line.partition(":")[0].casefold() for line in stanza[""].split("\n") if line[:1] not in (" ", "\t")]
        if missing or len(names) != len({*names}) or name in found or not reading.is_whole(stanza["Size"]):
            raise ValueError(
                f"its index says of {name[:80]!r} something twice, or not {', '.join(missing) or 'its size'}"
            )
        found[name] = stanza
    if strange := {name.removeprefix("./") for name in found} ^ files:
        raise ValueError(f"its index and its packages differ in {min(strange)[:80]!r}")
    return found


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
        rows = (line.partition(":") for line in stanza.split("\n") if line[:1] not in (" ", "\t", ""))
        fields = {name: value.strip() for name, _, value in rows}
        if fields:
            yield {**fields, "": stanza + "\n"}


def sha256(file: Path) -> str:
    """Of the file's bytes."""
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""
