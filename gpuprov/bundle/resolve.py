"""The packages themselves: resolved and fetched by a host's own package manager, from its own signed sources, in a
folder of its own.

Each script gets on its standard input what a previous bundle has, and returns a tar archive: new packages; `kept`, the
names of those that are not new; and for apt their index.
"""

import json
import os
import re
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpuprov.bundle import transfer
from gpuprov.bundle.needs import HostNeeds
from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse.archives import MEMBERS
from gpuprov.core.safe_parse.tar_headers import Member
from gpuprov.facts.probes.host.family import Family
from gpuprov.host_code.files import compute_digest
from gpuprov.host_code.packages import apt_settings, dnf
from gpuprov.host_code.packages.model import Pin
from gpuprov.spec.model import RawHost

BEGIN = r"""set -eu
d=$(mktemp -d /var/tmp/gpuprov-bundle.XXXXXX)
trap 'rm -rf "$d"' EXIT
chmod 755 "$d"
mkdir "$d/new"
cat > "$d/known"
export LC_ALL=C
"""
APT = r"""mkdir -p "$d/archives/partial"
: > "$d/status"
printf '%s' @PREFERENCES@ > "$d/preferences"
cat /etc/apt/preferences >> "$d/preferences" 2>/dev/null || :
export DEBIAN_FRONTEND=noninteractive
# DPkg::Lock::Timeout is not of the lists' lock.
n=0
until apt-get -qq -o APT::Update::Error-Mode=any update > "$d/said" 2>&1; do
  grep -qF 'Could not get lock' "$d/said" && [ "$n" -lt 150 ] || { cat "$d/said" >&2; exit 1; }
  n=$((n + 1))
  sleep 2
done
cat "$d/said" >&2
# As on a host without a package: then nothing is left out because this one has it.
resolve() {
  apt-get -y -qq --no-install-recommends -o Dir::State::status="$d/status" -o Dir::State::extended_states="$d/extended" \
    -o Dir::Etc::preferences="$d/preferences" -o Dir::Cache::archives="$d/archives" -o Dir::Cache::pkgcache= \
    -o Dir::Cache::srcpkgcache= -o Acquire::ForceHash=SHA256 -o APT::Sandbox::User=root "$@"
}
resolve --print-uris install @NAMES@ > "$d/uris"
cd "$d/new"
: > kept; : > Packages
sed -n "s/^'[^']*' \([^ ]*\) \([0-9]*\) SHA256:\([0-9a-f]*\).*/\1 \3/p" "$d/uris" > "$d/list"
[ "$(wc -l < "$d/list")" = "$(grep -c "^'" "$d/uris")" ] || { echo 'apt-get gives no SHA-256 of a package' >&2; exit 1; }
while read -r f sum; do
  n=$(printf %s "$f" | sed 's/%3a/-/')
  if grep -qxF "$sum  $n" "$d/known"; then echo "$n" >> kept; continue; fi
  p=${f%%_*} v=${f#*_} a=${f##*_}
  v=$(printf %s "${v%_*}" | sed 's/%3a/:/')
  printf '%s %s %s %s\n' "$p:${a%.deb}=$v" "$f" "$n" "$sum" >> "$d/lacking"
done < "$d/list"
[ ! -s "$d/lacking" ] || cut -d ' ' -f 1 "$d/lacking" |
  xargs apt-get -qq -o APT::Sandbox::User=root -o Acquire::ForceHash=SHA256 download >&2
[ ! -s "$d/lacking" ] || while read -r p f n sum; do
  [ -e "$f" ] || f=$(printf '%s_*_%s' "${f%%_*}" "${f##*_}")
  [ "$f" = "$n" ] || mv $f "$n"
  echo "$sum  $n" | sha256sum --quiet --strict -c - >&2
  { dpkg-deb -f "$n"; printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$n" "$(stat -c %s "$n")" "$sum"; } >> Packages
done < "$d/lacking"
"""
# dnf's own Python module, by the program that applies with it: what it would do on a host without a package.
DNF = r"""p=/usr/libexec/platform-python
[ -x "$p" ] || p=/usr/bin/python3
cd "$d/new"
"$p" -c @PROGRAM@ < "$d/known" > "$d/answer"
"$p" - "$d/answer" <<'END'
import json, sys
told = json.load(open(sys.argv[1]))
if told["problem"]:
    sys.exit(told["problem"])
open("kept", "w").write("".join(name + "\n" for name in told["kept"]))
open("modules.yaml", "w").write(told["modules"])
END
"""
ZYPPER = r"""cd "$d/new"
: > kept
mkdir -p "$d/packages"
z() { zypper --non-interactive --xmlout --pkg-cache-dir "$d/packages" "$@"; }
failed() { sed -n 's/.*<message type="error">//; s/<[^>]*>//g; /./p' "$1" | tail -n 20 >&2; exit 1; }
z refresh > "$d/said" || failed "$d/said"
# As on a host without a package: a root of its own, with this host's repositories.
z --no-refresh --installroot "$d/root" install --dry-run --no-recommends --auto-agree-with-licenses -- @NAMES@ > "$d/said" ||
  failed "$d/said"
sed -n '/<to-install/,/<\/to-install/s/.*<solvable type="package"//p' "$d/said" | while read -r row; do
  field() { printf %s "$row" | sed -n "s/.* $1=\"\([^\"]*\)\".*/\1/p"; }
  row=" $row"
  n=$(field name) v=$(field edition) a=$(field arch)
  f="$n-$(printf %s "$v" | sed 's/^[0-9]*://').$a.rpm"
  if grep -qF "  $f" "$d/known"; then echo "$f" >> kept; else echo "$n.$a=$v" >> "$d/lacking"; fi
done
if [ -s "$d/lacking" ]; then
  xargs zypper --non-interactive --no-refresh --pkg-cache-dir "$d/packages" download < "$d/lacking" >&2
  find "$d/packages" -name '*.rpm' -exec mv {} . \;
fi
touch "$d/lacking"
if [ "$(wc -l < "$d/lacking")" != "$(ls | grep -c 'rpm$')" ]; then
  echo 'zypper did not download all that it resolved' >&2
  exit 1
fi
"""
END = "tar -cf - *\n"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~^_-]*\.(deb|rpm)")
# Bytes that one host may return.
MOST = 64 << 30
INDEX = "Packages"
TEXTS = (INDEX, "kept", "modules.yaml")
# Largest size, in bytes, of a text such as an index.
LARGEST = 64 << 20
NEEDED = ("Package", "Version", "Architecture", "Filename", "Size", "SHA256")
# In a line that neither begins nor continues a field. apt takes more for a field (white space before the colon, a
# colon of a later line), and others more for an end.
ODD = re.compile(r"[\x00\r]|^[ \t]+$|(?:\A|\n\n)[ \t]|^(?!$|[ \t]|(?![#-])[!-9;-~]+:)", re.MULTILINE)
# Fields of one word: apt reads a value to the end of the lines that continue it.
WORDS = re.compile(rf"^({'|'.join(NEEDED)}):[ \t]*([!-~]+)[ \t]*$(?!\n[ \t])", re.MULTILINE)


def make_script(need: HostNeeds) -> str:
    """Make the host's script."""
    pin = Pin(str(need.pin["version"]), tuple(need.pin["patterns"])) if need.pin.get("patterns") else None
    values = {
        "@PREFERENCES@": shlex.quote(apt_settings.format_records(pin) + "\n" if pin else ""),
        "@NAMES@": shlex.join(need.packages),
        "@PROGRAM@": shlex.quote(dnf.BEGIN),
    }
    bodies: dict[Family, str] = {"debian": APT, "redhat": DNF, "suse": ZYPPER}
    text = BEGIN + bodies[need.family] + END
    for mark, value in values.items():
        text = text.replace(mark, value)
    return text


def make_input(need: HostNeeds, known: Mapping[str, str]) -> str:
    """Make the script's input: packages that are here already, by name with their SHA-256; for dnf its whole
    request."""
    if need.family != "redhat":
        return "".join(f"{digest}  {name}\n" for name, digest in known.items())
    pin = {"version": need.pin["version"], "patterns": list(need.pin["patterns"])} if need.pin else {}
    request = {"action": "collect", "timeout": 300, "install": list(need.packages), "remove": [], "pin": pin}
    return json.dumps(
        {"program": dnf.list_program(), "request": {**request, "module": need.stream, "known": dict(known)}}
    )


def fetch_packages(raw: RawHost, need: HostNeeds, folder: Path, before: Path | None, known: Mapping[str, str]) -> None:
    """Add what this host resolves to the packages in the folder, with their entries of its index. `before`: the same
    folder of an older bundle, whose files are `known`. Raises GpuprovError."""
    with tempfile.TemporaryDirectory(prefix=".gpuprov-", dir=folder.parent) as scratch:
        given, kept = Path(scratch) / "known", Path(scratch) / "archives.tar"
        given.write_text(make_input(need, known), encoding="utf-8")
        transfer.run(raw, make_script(need), given=given, kept=kept, most=MOST)
        try:
            with tarfile.open(kept, "r:", tarinfo=Member) as archive:
                texts, files = _unpack_archive(archive, folder, raw.name)
            if strange := [name for name in files if name.endswith(".deb") != (need.family == "debian")]:
                raise tarfile.TarError(f"unexpected {min(strange)[:80]!r}")
            fresh = judged(texts.get(INDEX, ""), files) if need.family == "debian" else {}
        except (tarfile.TarError, ValueError, EOFError, OverflowError, RecursionError) as error:
            raise GpuprovError(f"{raw.name}: what it sent is not an archive of packages: {error}") from error
    again = texts.get("kept", "").splitlines()
    for name in again:
        if before is None or name not in known:
            raise GpuprovError(f"{raw.name}: it left out {name[:80]!r}, which is missing here", "make the bundle again")
        if not (folder / name).exists():
            link(before / name, folder / name)
    if texts.get("modules.yaml"):
        (folder / "modules.yaml").write_text(texts["modules.yaml"], encoding="utf-8")
    if need.family == "debian":
        old = {f"./{name}" for name in again}
        stood = {stanza["Filename"]: stanza for stanza in read_stanzas(_read_text(before / INDEX) if before else "")}
        _extend_index(raw.name, folder, {name: stood[name] for name in old if name in stood} | fresh)


def _extend_index(host: str, folder: Path, fresh: Mapping[str, dict[str, str]]) -> None:
    """Add the entries of these packages in apt's index to the folder's index."""
    for name, stanza in fresh.items():
        file = folder / name.removeprefix("./")
        if file.stat().st_size != int(stanza["Size"]) or compute_digest(str(file)) != stanza["SHA256"]:
            raise GpuprovError(f"{host}: {name} is not what the host's index says of it", "make the bundle again")
    merged = {stanza["Filename"]: stanza for stanza in read_stanzas(_read_text(folder / INDEX))} | dict(fresh)
    (folder / INDEX).write_text("".join(merged[name][""] + "\n" for name in sorted(merged)), encoding="utf-8")


def _unpack_archive(archive: tarfile.TarFile, folder: Path, host: str) -> tuple[dict[str, str], set[str]]:
    """Unpack the archive into the folder. Returns the texts, and the names of the packages."""
    texts: dict[str, str] = {}
    files = set[str]()
    total = 0
    for count, member in enumerate(iter(archive.next, None)):
        archive.members.clear()  # type: ignore[attr-defined]  # tarfile keeps all that it has read
        text = member.name in TEXTS
        total += member.size
        # A sparse file is as large as its header says, and the archive is not.
        if (
            not member.isreg()
            or member.sparse is not None
            or member.size < 0
            or not (text or NAME.fullmatch(member.name))
        ):
            raise tarfile.TarError(f"unexpected {member.name[:80]!r}")
        if count >= MEMBERS or total > MOST:
            raise tarfile.TarError(f"more than {MEMBERS} files or {MOST >> 30} GiB")
        if member.name in files or member.name in texts:
            raise tarfile.TarError(f"{member.name[:80]!r} twice")
        data = archive.extractfile(member)
        assert data is not None
        if text:
            if member.size > LARGEST:
                raise tarfile.TarError(f"its index has more than {LARGEST >> 20} MiB")
            texts[member.name] = data.read().decode()
            continue
        files.add(member.name)
        aside, target = folder / f".{member.name}", folder / member.name
        with aside.open("wb") as file:
            shutil.copyfileobj(data, file, 1 << 20)
        if target.exists() and compute_digest(str(target)) != compute_digest(str(aside)):
            raise GpuprovError(
                f"{host}: {member.name} is another file than on a host before it, at the same version",
                "have all hosts of a release take it from the same sources",
            )
        aside.replace(target)
    return texts, files


def judged(index: str, files: set[str]) -> dict[str, dict[str, str]]:
    """Check the stanzas of an index and return them by file: one for each package that came with it. apt must read them
    as they are read here, so no field may appear twice.

    Raises ValueError.
    """
    if odd := ODD.search(index):
        number = index.count("\n", 0, odd.end()) + 1
        raise ValueError(f"its index has in line {number} what apt may read as something else")
    by_file: dict[str, dict[str, str]] = {}
    for stanza in read_stanzas(index):
        name = stanza.get("Filename", "")
        words = dict(WORDS.findall(stanza[""]))
        missing = [field for field in NEEDED if field not in words]
        names = [line.partition(":")[0].casefold() for line in stanza[""].split("\n") if line[:1] not in (" ", "\t")]
        if missing or len(names) != len({*names}) or name in by_file or not safe_parse.is_whole(stanza["Size"]):
            raise ValueError(
                f"its index says of {name[:80]!r} something twice, or not {', '.join(missing) or 'its size'}"
            )
        by_file[name] = stanza
    if strange := {name.removeprefix("./") for name in by_file} ^ files:
        raise ValueError(f"its index and its packages differ in {min(strange)[:80]!r}")
    return by_file


def link(source: Path, target: Path) -> None:
    """Link a file of an older bundle into this one."""
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)


def read_stanzas(text: str) -> Iterator[dict[str, str]]:
    """Yield the fields of each package in an index; its whole text under the empty name. Continuation lines are left
    out."""
    for stanza in re.split(r"\n{2,}", text.strip("\n")):
        rows = (line.partition(":") for line in stanza.split("\n") if line[:1] not in (" ", "\t", ""))
        fields = {name: value.strip() for name, _, value in rows}
        if fields:
            yield {**fields, "": stanza + "\n"}


def _read_text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""
