"""Package sources of a host: the contents of its files, the text of a wanted one, and other files with the same source.

Standard library only: used by checks, and by the module that writes sources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypedDict
from urllib.parse import urlsplit

from .source_files import Row, parse_rows

FOLDERS = {"debian": "/etc/apt/sources.list.d/gpuprov-{}.sources", "redhat": "/etc/yum.repos.d/gpuprov-{}.repo"}
FOLDERS["suse"] = "/etc/zypp/repos.d/gpuprov-{}.repo"
KEYS = {
    "debian": "/etc/apt/keyrings/gpuprov-{}.asc",
    "redhat": "/etc/pki/rpm-gpg/RPM-GPG-KEY-gpuprov-{}",
    "suse": "/etc/zypp/gpuprov-{}.asc",
}
HEAD = "# Managed by gpuprov: changes are overwritten\n"
OWN = re.compile(r"/etc/(?:apt/sources\.list\.d|yum\.repos\.d|zypp/repos\.d)/gpuprov-(.+)\.(?:sources|repo)\Z")


class Source(TypedDict, total=False):
    """A package source of the spec; `of`: the place in the spec, `key`: what `key_file` or `key_url` hold, in base64.
    `files`: texts by path, of an apt source without a key from gpuprov."""

    name: str
    of: str
    url: str
    suite: str
    components: Sequence[str]
    signed: str
    fingerprint: str
    key_file: str
    key_url: str
    key: str
    files: Mapping[str, str]


class Host(TypedDict):
    """The package sources of a host: `files` {path: text}, `keys` {path: base64}."""

    files: dict[str, str]
    keys: dict[str, str]
    rpm_keys: list[str]
    machine: str
    arch: str
    release: str
    gpgcheck: str
    sources: list[Row]


class File(TypedDict):
    """A file to write. `before`: its present text; None: no such file."""

    path: str
    text: str
    before: str | None


class Plan(TypedDict):
    """Files to write."""

    source: File
    key: File
    name: str
    fingerprints: list[str]
    # Whether rpm's database lacks a key.
    imports: bool
    # Nothing is to be done.
    right: bool
    # `problem` and `fix`: the source is somebody else's.
    problem: str
    fix: str


def derive_path(name: str, family: str) -> str:
    """Return the file of the source with this name."""
    return FOLDERS[family].format(name)


def get_key_path(name: str, family: str) -> str:
    """Return the file of its key."""
    return KEYS[family].format(name)


def derive_own_name(file: str) -> str:
    """Return gpuprov's name of the source in this file; "" for somebody else's."""
    match = OWN.match(file)
    return match[1] if match else ""


def format_text(desired: Source, family: str) -> str:
    """Return the text of the source's file."""
    name, head = desired["name"], HEAD
    key = get_key_path(name, family)
    if family == "debian":
        lines = ["Types: deb", f"URIs: {desired['url']}", f"Suites: {desired['suite'] or '/'}"]
        lines += [f"Components: {' '.join(desired['components'])}"] if desired["components"] else []
        return head + "\n".join([*lines, f"Signed-By: {key}", ""])
    # https://dnf.readthedocs.io/en/latest/conf_ref.html#repo-options; zypper's gpgcheck alone takes a signed index for
    # the packages' proof: https://github.com/openSUSE/libzypp/blob/master/zypp/RepoInfo.h
    packages, index = check_signatures(desired)
    lines = [f"[gpuprov-{name}]", f"name={name}, put there by gpuprov", f"baseurl={desired['url']}", "enabled=1"]
    lines += [f"gpgcheck={int(packages)}", f"repo_gpgcheck={int(index)}", f"gpgkey=file://{key}"]
    of_zypper = ["autorefresh=1", f"pkg_gpgcheck={int(packages)}"]
    return head + "\n".join([*lines, *(of_zypper if family == "suse" else ["skip_if_unavailable=0"]), ""])


def check_signatures(desired: Source) -> tuple[bool, bool]:
    """Return whether packages, and whether the index, carry signatures that are checked; at least one of them always
    does."""
    return desired["signed"] != "index", desired["signed"] in ("index", "both")


def parse(output: str) -> Host:
    """Parse the probe's output."""
    values = {"machine": "", "arch": "", "release": "", "gpgcheck": "0"}
    keys: dict[str, str] = {}
    rpm_keys: list[str] = []
    section: list[str] | None = None
    lines: dict[str, list[str]] = {}
    for line in output.splitlines():
        word, _, rest = line.partition(" ")
        if line.startswith(" ") and section is not None:
            section.append(line[1:])
        elif word == "@file":
            section = lines[rest] = []  # what is still to be written there comes last
        elif word == "@key":
            name, _, data = rest.rpartition(" ")
            keys[name] = data
        elif word == "@rpmkey":
            rpm_keys.append(rest.casefold())
        elif word[1:] in values and word[:1] == "@":
            values[word[1:]] = rest
    files = {name: "\n".join(body) + "\n" for name, body in lines.items()}
    rows = (row for name, body in files.items() for row in parse_rows(name, body, values["gpgcheck"]))
    return {
        "files": files,
        "keys": keys,
        "rpm_keys": rpm_keys,
        "machine": values["machine"],
        "arch": values["arch"],
        "release": values["release"],
        "gpgcheck": values["gpgcheck"],
        "sources": [row for row in rows if row.enabled],
    }


def parse_url(url: str, host: Host) -> tuple[str, str]:
    """Return the host and path of a URL with its variables substituted, whatever its scheme."""
    parts = urlsplit(simplify_url(url, host))
    return (parts.hostname or "", parts.path.rstrip("/"))


def find_others(host: Host, desired: Source, family: str) -> list[Row]:
    """Return enabled sources of the same packages in files other than the wanted source's own."""
    own_path = derive_path(desired["name"], family)
    suite = (desired["suite"] or "/").rstrip("/") or "/"
    rows = []
    for row in host["sources"]:
        if row.file == own_path:
            continue
        same_place = parse_url(row.url, host) == parse_url(desired["url"], host)
        same_suite = family != "debian" or (row.suite.rstrip("/") or "/") == suite
        if (same_place and same_suite) or (family != "debian" and row.id == f"gpuprov-{desired['name']}"):
            rows.append(row)
    return rows


def find_conflict(host: Host, desired: Source, family: str) -> tuple[str, str]:
    """Return the problem and its fix if another file has the same source: apt would read no list at all, others choose
    between two."""
    for row in find_others(host, desired, family):
        trust = f"trusted by {row.signed_by}" if row.signed_by else "without a key of its own"
        what = f"{row.file} has {row.url} already, {trust}"
        if family == "debian":
            what += '; with two keys for one source apt stops with "Conflicting values set for option Signed-By"'
        return what, f"remove it from {row.file}{find_owner(row.file)}, then apply again"
    return "", ""


def list_weaknesses(row: Row) -> list[str]:
    """List the reasons why content of this source is not proven to be its owner's."""
    reasons = []
    if row.trusted:
        reasons.append(row.trusted)
    if row.id and not row.gpgcheck and not row.repo_gpgcheck:
        reasons.append("gpgcheck=0")
    reasons += [
        f"key over plain http ({key})" for key in row.signed_by.split() if key.startswith(("http://", "ftp://"))
    ]
    return reasons


def find_standing(host: Host, desired: Source, key: str, family: str) -> Source:
    """Return `wanted` under its present name on the host: two capabilities with one repository share its file."""
    for row in find_others(host, desired, family):
        name, files = derive_own_name(row.file), host["files"]
        same: Source = {**desired, "name": name}
        if name and files[row.file] == format_text(same, family) and files.get(get_key_path(name, family)) == key:
            return same
    return desired


def plan(output: str, desired: Source, key: str, fingerprints: list[str], family: str) -> Plan:
    """Return what to write, and what is in the way."""
    host = parse(output)
    desired = find_standing(host, desired, key, family)
    name = desired["name"]
    place, key_place = derive_path(name, family), get_key_path(name, family)
    source: File = {"path": place, "text": format_text(desired, family), "before": host["files"].get(place)}
    key_file: File = {"path": key_place, "text": key, "before": host["files"].get(key_place)}
    imports = family != "debian" and not all(has_key(host, fingerprint) for fingerprint in fingerprints)
    problem, fix = find_conflict(host, desired, family)
    return {
        "source": source,
        "key": key_file,
        "name": name,
        "fingerprints": fingerprints,
        "imports": imports,
        "right": not imports and all(file["text"] == file["before"] for file in (source, key_file)),
        "problem": problem,
        "fix": fix,
    }


def has_key(host: Host, fingerprint: str) -> bool:
    """Return whether rpm's database has the key. If the host reported only the last eight digits of a key, these
    decide."""
    expected = fingerprint.casefold()
    return any(version in (expected, expected[-8:]) for version in (row.split("-")[0] for row in host["rpm_keys"]))


def simplify_url(url: str, host: Host) -> str:
    values = {
        "$(ARCH)": host["arch"],
        "$basearch": host["machine"],
        "$arch": host["machine"],
        "$releasever": host["release"],
    }
    for name, value in values.items():
        url = url.replace(name, value) if value else url
    return url.rstrip("/")


def find_owner(name: str) -> str:
    """Return NVIDIA's own package that contains the file, if that owns it."""
    return " (apt-get purge cuda-keyring)" if re.search(r"/cuda-[a-z]+\d+-[a-z0-9_]+\.list\Z", name) else ""
