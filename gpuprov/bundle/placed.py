"""A bundle's packages on a host: carried over the connection, verified there, and the only ones its package manager
sees."""

import hashlib
import shlex
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from gpuprov.bundle import transfer
from gpuprov.bundle.model import FILES, KEY, Manifest, Repository
from gpuprov.bundle.needs import Pair, downloads
from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.probes.host.family import Family
from gpuprov.host_code.bundle import READY
from gpuprov.spec.model import PACKAGE_BUNDLE, HostSpec, RawHost

PLACE = "/var/lib/gpuprov/bundle"
AT_A_TIME = 8
BLOCK = 4096
# Bytes that stay free on the host beside the packages: package lists are made of them, and services go on writing.
MARGIN = 256 << 20
# Files of the folder on a host, by family. `@` is the folder.
TEXTS: dict[Family, dict[str, str]] = {
    "debian": {
        "apt.conf.new": """Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "@/sources";
Dir::State::lists "@/lists";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Acquire::Languages "none";
""",
        "sources/gpuprov.sources": """Types: deb
URIs: file:@/packages
Suites: ./
Signed-By: @/key.asc
""",
    },
    "redhat": {
        "repos.d/gpuprov.repo": """[gpuprov-bundle]
name=packages of a gpuprov bundle
baseurl=file://@/packages
enabled=1
gpgcheck=0
repo_gpgcheck=1
gpgkey=file://@/key.asc
""",
        "bin/dnf": '#!/bin/sh\nexec /usr/bin/dnf --config=@/dnf.conf "$@"\n',
    },
    # zypper knows no key but those in rpm's database, which is not a place for one of a single run: sha256sum has
    # proven the folder.
    "suse": {
        "repos.d/gpuprov.repo": """[gpuprov-bundle]
name=packages of a gpuprov bundle
baseurl=file://@/packages
enabled=1
autorefresh=0
gpgcheck=0
repo_gpgcheck=0
pkg_gpgcheck=0
"""
    },
}
# The host's own settings, but for where packages come from: of the section [main] alone, since others are repositories.
_OWN = r"""awk '/^\[/ { main = $0 ~ /^\[main\]/; next } main && !/^[[:space:]]*(@NAMES@)[[:space:]]*[=:]/'"""
# Shell: makes the family's package manager see the folder, once all of it is present.
PREPARE: dict[Family, str] = {
    "debian": r"""mv "$d/apt.conf.new" "$d/apt.conf"
mkdir -p "$d/lists/partial"
APT_CONFIG="$d/apt.conf" apt-get -qq -o APT::Update::Error-Mode=any -o APT::Sandbox::User=root update >&2""",
    "redhat": rf"""chmod 755 "$d/bin/dnf"
{{ echo '[main]'; {_OWN.replace("@NAMES@", "reposdir|cachedir|system_cachedir|pluginconfpath")} /etc/dnf/dnf.conf 2>/dev/null || :
  printf 'reposdir=%s/repos.d\ncachedir=%s/cache\nsystem_cachedir=%s/cache\n' "$d" "$d" "$d"; }} > "$d/dnf.conf"
"$d/bin/dnf" -q -y makecache >&2""",
    "suse": rf"""c=/etc/zypp/zypp.conf
[ -e "$c" ] || c=/usr/etc/zypp/zypp.conf
{{ echo '[main]'; {_OWN.replace("@NAMES@", "reposdir|cachedir|metadatadir|solvfilesdir|packagesdir|servicesdir")} "$c" 2>/dev/null || :
  printf 'reposdir = %s/repos.d\nmetadatadir = %s/raw\nsolvfilesdir = %s/solv\n' "$d" "$d" "$d"
  printf 'packagesdir = %s/cache\nservicesdir = %s/services.d\n' "$d" "$d"; }} > "$d/zypp.conf"
ZYPP_CONF="$d/zypp.conf" zypper --non-interactive --quiet refresh --force >&2""",
}
# `ready` comes last: what a cut left half there is never used. Another bundle may be another run's, which may last for
# days: it goes a week after its last use.
SCRIPT = r"""set -eu
umask 022
d=@PLACE@/@ID@
if [ "@CARRIED@" = no ]; then
  if [ "$(cat "$d/@READY@" 2>/dev/null)" = @MARK@ ]; then touch "$d"; echo there; exit 0; fi
  p=@PLACE@
  while [ ! -d "$p" ]; do p=$(dirname "$p"); done
  echo "absent $(df -Pk "$p" | awk 'END { print $4 }')"
  exit 0
fi
mkdir -p @PLACE@
chmod 755 @PLACE@
n=$(mktemp -d @PLACE@/.new.XXXXXX)
trap 'rm -rf "$n"' EXIT
chmod 755 "$n"
tar -xf - --no-same-owner --no-same-permissions -C "$n"
(cd "$n" && sha256sum --quiet --strict -c SHA256SUMS) >&2
rm -rf "$d"
mv "$n" "$d"
trap 'rm -rf "$d"' EXIT
@PREPARE@
echo @MARK@ > "$d/@READY@"
trap - EXIT
find @PLACE@ -mindepth 1 -maxdepth 1 ! -name @ID@ \( -name '.new.*' -mmin +1440 -o -mmin +10080 \) -exec rm -rf {} +
echo there
"""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Content for a host: the bundle's files by their place on it, their checksums, and their size in bytes.

    `mark` distinguishes it from any other.
    """

    family: Family
    names: dict[str, str]
    sums: str
    mark: str
    size: int


def place(
    folder: Path, manifest: Manifest, pairs: Sequence[Pair], repositories: Mapping[str, Repository]
) -> tuple[tuple[Pair, ...], dict[str, GpuprovError]]:
    """Copy each host's packages to it. Returns the hosts, with the place that apt takes them from, and the errors of
    those that do not have them: these are not among the others, nor is any without a repository. Raises GpuprovError.
    """
    refused: dict[str, GpuprovError] = {}
    number = identifier(manifest)
    left = [pair for pair in pairs if pair[0].name in repositories]
    loads = {raw.name: load(manifest, repositories[raw.name], spec) for raw, spec in left}
    with tempfile.TemporaryDirectory(prefix="gpuprov-bundle-") as scratch:
        archives = {
            host_load.mark: pack(folder, host_load, number, Path(scratch))
            for host_load in {x.mark: x for x in loads.values()}.values()
        }

        def carry(raw: RawHost) -> None:
            host_load = loads[raw.name]
            try:
                answer = transfer.run(raw, make_script(number, host_load.mark)).split()
                if answer != ["there"]:
                    _refuse_full(raw.name, host_load, answer)
                    transfer.run(
                        raw, make_script(number, host_load.mark, host_load.family), given=archives[host_load.mark]
                    )
            except GpuprovError as error:
                refused[raw.name] = error

        with ThreadPoolExecutor(AT_A_TIME) as pool:
            for _ in pool.map(carry, [raw for raw, _ in left]):
                pass
    placed = tuple(
        (msgspec.structs.replace(raw, connection={**raw.connection, PACKAGE_BUNDLE: f"{PLACE}/{number}"}), spec)
        for raw, spec in left
        if raw.name not in refused
    )
    return placed, refused


def load(manifest: Manifest, repository: Repository, spec: HostSpec) -> Load:
    """Select the packages of the host's release, and the files that its own spec names."""
    also = [KEY, *(f"{FILES}/{each.sha256}" for each in sorted(set(downloads(spec))))]
    names = {
        name: f"packages/{name.partition('/')[2]}"
        for name in manifest.files
        if name.startswith(f"{repository.folder}/")
    }
    names |= {name: name for name in also if name in manifest.files}
    sums = "".join(f"{manifest.files[name].sha256}  {at}\n" for name, at in names.items())
    mark = f"{repository.folder}-{hashlib.sha256(sums.encode()).hexdigest()}"
    size = sum(manifest.files[name].size // BLOCK * BLOCK + BLOCK for name in names)
    return Load(family=repository.family, names=names, sums=sums, mark=mark, size=size)


def _refuse_full(name: str, load: Load, answer: Sequence[str]) -> None:
    """Refuse a host that is too full. `answer`: that the packages are absent, and the free KiB. A host that reports
    none may try: it takes all or nothing."""
    free, needed = safe_parse.parse_whole(answer[-1]) if answer else None, load.size + MARGIN
    if free is not None and free * 1024 < needed:
        raise GpuprovError(
            f"{name} has {free * 1024 / 1e6:.0f} MB free for {PLACE}, and the bundle's packages need "
            f"{needed / 1e6:.0f} MB",
            f"make room there, or mount another file system at {PLACE}; nothing was carried",
        )


def identifier(manifest: Manifest) -> str:
    """Return the bundle's name on hosts: derived from its key, which no other bundle has."""
    if not manifest.key.isalnum():
        raise GpuprovError("the bundle's manifest names no key", "make it again")
    return manifest.key[-16:].lower()


def make_script(number: str, mark: str, family: Family | None = None) -> str:
    """Make the host's script: it checks whether the packages are present, or takes those of this family from its
    standard input."""
    values = {"@PREPARE@": PREPARE[family] if family else ":", "@CARRIED@": "yes" if family else "no"}
    values |= {"@PLACE@": shlex.quote(PLACE), "@ID@": number, "@MARK@": shlex.quote(mark), "@READY@": READY}
    text = SCRIPT
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def pack(folder: Path, load: Load, number: str, scratch: Path) -> Path:
    """Pack the archive for hosts that get the same part of the bundle."""
    made = scratch / f"{load.mark}.tar"
    here = f"{PLACE}/{number}"
    with tarfile.open(made, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, text in {**TEXTS[load.family], "SHA256SUMS": load.sums}.items():
            file = scratch / "text"
            file.write_text(text.replace("@/", f"{here}/"), encoding="utf-8")
            archive.add(file, arcname=name, filter=_strip_owner)
        for name, at in load.names.items():
            archive.add(folder / name, arcname=at, filter=_strip_owner, recursive=False)
    return made


def _strip_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mode = 0o644
    return member
