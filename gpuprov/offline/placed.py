"""A bundle's packages on a host: carried there over the connection itself, proven there, and the only source that apt sees."""

from __future__ import annotations

import shlex
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from gpuprov.errors import GpuprovError
from gpuprov.offline import transfer
from gpuprov.offline.model import KEY, Manifest, Repository
from gpuprov.offline.wanted import Pair
from gpuprov.spec.model import PACKAGE_BUNDLE, RawHost

PLACE = "/var/lib/gpuprov/bundle"
AT_A_TIME = 8
CONFIG = """Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "@/sources";
Dir::State::lists "@/lists";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Acquire::Languages "none";
"""
SOURCE = """Types: deb
URIs: file:@/packages
Suites: ./
Signed-By: @/key.asc
"""
# `ready` comes last: what a cut left half there is never used. Another bundle may be another run's: it goes a day after its last use.
SCRIPT = r"""set -eu
umask 022
d=@PLACE@/@ID@
if [ "@CARRIED@" = no ]; then
  if [ -f "$d/ready" ]; then touch "$d"; echo there; else echo absent; fi
  exit 0
fi
mkdir -p @PLACE@
chmod 755 @PLACE@
n=$(mktemp -d @PLACE@/.new.XXXXXX)
trap 'rm -rf "$n"' EXIT
chmod 755 "$n"
tar -xf - --no-same-owner --no-same-permissions -C "$n"
(cd "$n" && sha256sum --quiet --strict -c SHA256SUMS) >&2
mkdir -p "$n/lists/partial"
mv "$n/config" "$n/apt.conf"
rm -rf "$d"
mv "$n" "$d"
APT_CONFIG="$d/apt.conf" apt-get -qq -o APT::Update::Error-Mode=any -o APT::Sandbox::User=root update >&2 || { rm -rf "$d"; exit 1; }
touch "$d/ready"
find @PLACE@ -mindepth 1 -maxdepth 1 ! -name @ID@ -mmin +1440 -exec rm -rf {} +
echo there
"""


def place(
    folder: Path, manifest: Manifest, pairs: Sequence[Pair], repositories: Mapping[str, Repository]
) -> tuple[tuple[Pair, ...], dict[str, GpuprovError]]:
    """Have each host's packages on it. The hosts with the place that apt takes them from, and why a host does not have them: it is
    not among the others then. Raises GpuprovError."""
    refused: dict[str, GpuprovError] = {}
    number = identifier(manifest)
    with tempfile.TemporaryDirectory(prefix="gpuprov-bundle-") as scratch:
        archives = {
            one.folder: packed(folder, manifest, one, number, Path(scratch))
            for one in {x.folder: x for x in repositories.values()}.values()
        }

        def carry(raw: RawHost) -> None:
            one = repositories[raw.name]
            try:
                if transfer.run(raw, script(number, carried=False)).strip() != "there":
                    transfer.run(raw, script(number, carried=True), given=archives[one.folder])
            except GpuprovError as error:
                refused[raw.name] = error

        with ThreadPoolExecutor(AT_A_TIME) as pool:
            for _ in pool.map(carry, [raw for raw, _ in pairs if raw.name in repositories]):
                pass
    placed = tuple(
        (msgspec.structs.replace(raw, connection={**raw.connection, PACKAGE_BUNDLE: f"{PLACE}/{number}"}), spec)
        for raw, spec in pairs
        if raw.name not in refused
    )
    return placed, refused


def identifier(manifest: Manifest) -> str:
    """The bundle's name on hosts: of its key, which no other bundle has."""
    if not manifest.key.isalnum():
        raise GpuprovError("the bundle's manifest names no key", "make it again")
    return manifest.key[-16:].lower()


def script(number: str, *, carried: bool) -> str:
    """What runs on the host: asks whether the packages are there, or takes them from its standard input."""
    told = {"@PLACE@": shlex.quote(PLACE), "@ID@": number, "@CARRIED@": "yes" if carried else "no"}
    text = SCRIPT
    for mark, value in told.items():
        text = text.replace(mark, value)
    return text


def packed(folder: Path, manifest: Manifest, one: Repository, number: str, scratch: Path) -> Path:
    """The archive that hosts of this release get."""
    made = scratch / f"{one.folder}.tar"
    here = f"{PLACE}/{number}"
    names = [name for name in manifest.files if name.startswith(f"{one.folder}/")]
    sums = "".join(f"{manifest.files[name].sha256}  packages/{name.partition('/')[2]}\n" for name in names)
    sums += f"{manifest.files[KEY].sha256}  {KEY}\n"
    texts = {"config": CONFIG, "sources/gpuprov.sources": SOURCE, "SHA256SUMS": sums}
    with tarfile.open(made, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, text in texts.items():
            file = scratch / "text"
            file.write_text(text.replace("@", here), encoding="utf-8")
            archive.add(file, arcname=name, filter=_plain)
        archive.add(folder / KEY, arcname=KEY, filter=_plain)
        for name in names:
            archive.add(folder / name, arcname=f"packages/{name.partition('/')[2]}", filter=_plain, recursive=False)
    return made


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mode = 0o644
    return member
