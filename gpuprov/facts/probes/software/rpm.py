"""rpm, dnf and zypper without side effects: versions that repositories offer, by the metadata that the host has
fetched; comparison of versions, and effects of locks."""

import re
from fnmatch import fnmatchcase
from functools import cmp_to_key
from itertools import zip_longest

import msgspec


class Nevra(msgspec.Struct, frozen=True):
    """A package's name, epoch ("0" where it has none), version, release and architecture."""

    name: str
    epoch: str
    version: str
    release: str
    arch: str

    @property
    def evr(self) -> str:
        """`[epoch:]version-release`; epoch 0 is left out."""
        return f"{'' if self.epoch == '0' else self.epoch + ':'}{self.version}-{self.release}"


def compare(this: str, other: str) -> int:
    """Compare versions as rpmvercmp does: -1, 0 or 1. Digits beat letters, a tilde is older than nothing, a caret newer
    than nothing."""
    parts = re.compile(r"[0-9]+|[A-Za-z]+|~|\^")
    for a, b in zip_longest(parts.findall(this), parts.findall(other), fillvalue=""):
        if a == b:
            continue
        if "~" in (a, b):
            return -1 if a == "~" else 1
        if "^" in (a, b):
            return (-1 if b else 1) if a == "^" else (1 if a else -1)
        if not (a and b):
            return 1 if a else -1
        if a.isdigit() != b.isdigit():
            return 1 if a.isdigit() else -1
        left, right = (_get_size(a), _get_size(b)) if a.isdigit() else (a, b)
        if left != right:
            return 1 if left > right else -1  # type: ignore[operator]
    return 0


def _get_size(digits: str) -> tuple[int, str]:
    """Return the sort key of a number of any length, as rpm compares them: without leading zeros, by length and then by
    digit."""
    bare = digits.lstrip("0")
    return len(bare), bare


def compare_evr(this: Nevra, other: Nevra) -> int:
    """Compare two packages by epoch, then version, then release."""
    pairs = ((this.epoch, other.epoch), (this.version, other.version), (this.release, other.release))
    return next((order for pair in pairs if (order := compare(*pair))), 0)


# Sort key of packages of one name: oldest first.
by_age = cmp_to_key(compare_evr)

# The forms that the plugin tries, in its order, as libdnf reads them:
# https://github.com/rpm-software-management/libdnf/blob/dnf-4-master/libdnf/nevra.cpp
# https://github.com/rpm-software-management/dnf-plugins-core/blob/master/plugins/versionlock.py
_NAME, _EPOCH, _PART = r"(?P<name>[^:(/=<> ]+)", r"(?:(?P<epoch>[0-9]+):)?", r"[^-:(/=<> ]+"
_FORMS = tuple(
    re.compile(form)
    for form in (
        rf"{_NAME}-{_EPOCH}(?P<version>{_PART})-(?P<release>{_PART})\.(?P<arch>[^-:.(/=<> ]+)",
        rf"{_NAME}-{_EPOCH}(?P<version>{_PART})-(?P<release>{_PART})",
        rf"{_NAME}-{_EPOCH}(?P<version>{_PART})",
        rf"{_NAME}\.(?P<arch>[^-:.(/=<> ]+)",
        _NAME,
    )
)


def _parse_lock(line: str, package: Nevra) -> dict[str, str] | None:
    """Parse a line of the lock list for a package: the parts that it names; None if it is about other packages."""
    matches = (match for form in _FORMS if (match := form.fullmatch(line)))
    named = [m.groupdict() for m in matches if fnmatchcase(package.name, m["name"])]
    meanings = [{key: cell for key, cell in cells.items() if cell is not None} for cells in named]
    fitting = (m for m in meanings if all(fnmatchcase(getattr(package, key), cell) for key, cell in m.items()))
    return next(fitting, meanings[0] if meanings else None)


def is_held(locks: list[str], package: Nevra, *, beside: bool = False) -> bool:
    """Return whether dnf cannot replace the package by another version: every lock of its name means this one version.
    A lock without a version, with a pattern, or of other versions allows upgrades; so does `!` (never that one).
    `beside`: the newest of a package whose versions are kept in parallel, like kernels: dnf cannot add a newer one, as
    locks of it and older ones allow no other
    (https://github.com/rpm-software-management/dnf-plugins-core/blob/master/plugins/versionlock.py)."""
    meanings = [_parse_lock(line, package) for line in locks if line.strip() and line[0] not in "#!"]
    about = [meaning for meaning in meanings if meaning is not None]
    this = [meaning for meaning in about if _matches_lock(meaning, package, older=beside)]
    return bool(about) and len(this) == len(about)


def _matches_lock(meaning: dict[str, str], package: Nevra, *, older: bool) -> bool:
    """Return whether a lock means this very version, or with `older` also an older one."""
    version, release = meaning.get("version", ""), meaning.get("release", "")
    epoch = meaning.get("epoch", package.epoch)
    if older and version and release and not re.search(r"[*?[]", version + release):
        return compare_evr(Nevra(package.name, epoch, version, release, package.arch), package) <= 0
    return (epoch, version, release) == (package.epoch, package.version, package.release)


NEVRA = "rpm|%{name}|%{epoch}|%{version}|%{release}|%{arch}"


def search(*patterns: str, form: str = NEVRA, streams: bool = False) -> str:
    """Return shell that prints a line in this form, `rpm|NAME|EPOCH|VERSION|RELEASE|ARCHITECTURE`, of every version
    that the enabled repositories offer of these patterns. `streams`: also of module streams that are not enabled; dnf
    installs nothing from those until they are. It waits for no lock and uses no network, and a repository that was
    never fetched does not hide the others."""
    quoted = " ".join(f"'{pattern}'" for pattern in patterns)
    whatever = "--disable-modular-filtering " if streams else ""
    return (
        'dnf ${GPUPROV_AHEAD:+--config="$GPUPROV_AHEAD/dnf.conf"} '
        "-q -C --setopt=exit_on_lock=True --setopt='*.skip_if_unavailable=True' --disableplugin=versionlock \\\n"
        f"""  repoquery --available --showduplicates {whatever}--arch "$(uname -m),noarch" --qf '{form}' {quoted}"""
    )
