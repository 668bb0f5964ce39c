"""Package sources of a host: the contents of its files, the text of a wanted one, and other files with the same source.

Standard library only: used by checks, and by the module that writes sources. `wanted` is a mapping with `name`, `url`,
`suite`, `components` (apt), `signed` (dnf), and the key's fields, which are judged elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

FOLDERS = {"debian": "/etc/apt/sources.list.d/gpuprov-{}.sources", "redhat": "/etc/yum.repos.d/gpuprov-{}.repo"}
FOLDERS["suse"] = "/etc/zypp/repos.d/gpuprov-{}.repo"
KEYS = {
    "debian": "/etc/apt/keyrings/gpuprov-{}.asc",
    "redhat": "/etc/pki/rpm-gpg/RPM-GPG-KEY-gpuprov-{}",
    "suse": "/etc/zypp/gpuprov-{}.asc",
}
HEAD = "# Managed by gpuprov: changes are overwritten\n"
OWN = re.compile(r"/etc/(?:apt/sources\.list\.d|yum\.repos\.d|zypp/repos\.d)/gpuprov-(.+)\.(?:sources|repo)\Z")
YES = ("1", "yes", "true", "on", "enabled", "with", "enable")
UNSAFE = ("trusted", "allow-insecure", "allow-weak", "allow-downgrade-to-insecure")
ONE_LINE = re.compile(r"^\s*deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<components>[^#]*)")


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


def format_text(desired: Mapping[str, Any], family: str) -> str:
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


def check_signatures(desired: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether packages, and whether the index, carry signatures that are checked; at least one of them always
    does."""
    return desired["signed"] != "index", desired["signed"] in ("index", "both")


def parse(output: str) -> dict[str, Any]:
    """Parse the probe's output: `files` {path: text}, `keys` {path: base64}, `rpm_keys`, and `sources`, one row for
    each URL and suite."""
    result: dict[str, Any] = {
        "files": {},
        "keys": {},
        "rpm_keys": [],
        "machine": "",
        "arch": "",
        "release": "",
        "gpgcheck": "0",
    }
    section: list[str] | None = None
    lines: dict[str, list[str]] = {}
    for line in output.splitlines():
        word, _, rest = line.partition(" ")
        if line.startswith(" ") and section is not None:
            section.append(line[1:])
        elif word == "@file":
            section = lines[rest] = []  # what is still to be written there is told last
        elif word == "@key":
            name, _, data = rest.rpartition(" ")
            result["keys"][name] = data
        elif word == "@rpmkey":
            result["rpm_keys"].append(rest.casefold())
        elif word in ("@machine", "@arch", "@release", "@gpgcheck"):
            result[word[1:]] = rest
    result["files"] = {name: "\n".join(body) + "\n" for name, body in lines.items()}
    rows = (row for name, body in result["files"].items() for row in parse_rows(name, body, result["gpgcheck"]))
    result["sources"] = [row for row in rows if row["enabled"]]
    return result


def parse_url(url: str, host: Mapping[str, Any]) -> tuple[str, str]:
    """Return the host and path of a URL with its variables substituted, whatever its scheme."""
    parts = urlsplit(simplify_url(url, host))
    return (parts.hostname or "", parts.path.rstrip("/"))


def find_others(output: str | Mapping[str, Any], desired: Mapping[str, Any], family: str) -> list[dict[str, Any]]:
    """Return enabled sources of the same packages in files other than the wanted source's own."""
    host = parse(output) if isinstance(output, str) else output
    own_path = derive_path(desired["name"], family)
    suite = (desired["suite"] or "/").rstrip("/") or "/"
    rows = []
    for row in host["sources"]:
        if row["file"] == own_path:
            continue
        same_place = parse_url(row["url"], host) == parse_url(desired["url"], host)
        same_suite = family != "debian" or (row["suite"].rstrip("/") or "/") == suite
        if (same_place and same_suite) or (family != "debian" and row["id"] == f"gpuprov-{desired['name']}"):
            rows.append(row)
    return rows


def find_conflict(output: str | Mapping[str, Any], desired: Mapping[str, Any], family: str) -> dict[str, str]:
    """Return `problem` and `hint` if another file has the same source: apt would read no list at all, others choose
    between two."""
    for row in find_others(output, desired, family):
        trust = f"trusted by {row['signed_by']}" if row["signed_by"] else "without a key of its own"
        what = f"{row['file']} has {row['url']} already, {trust}"
        if family == "debian":
            what += '; with two keys for one source apt stops with "Conflicting values set for option Signed-By"'
        return {"problem": what, "hint": f"remove it from {row['file']}{find_owner(row['file'])}, then apply again"}
    return {"problem": "", "hint": ""}


def list_weaknesses(row: Mapping[str, Any]) -> list[str]:
    """List the reasons why content of this source is not proven to be its owner's."""
    reasons = []
    if row["trusted"]:
        reasons.append(row["trusted"])
    if row["id"] and not row["gpgcheck"] and not row["repo_gpgcheck"]:
        reasons.append("gpgcheck=0")
    reasons += [
        f"key over plain http ({key})" for key in row["signed_by"].split() if key.startswith(("http://", "ftp://"))
    ]
    return reasons


def find_standing(host: Mapping[str, Any], desired: Mapping[str, Any], key: str, family: str) -> Mapping[str, Any]:
    """Return `wanted` under its present name on the host: two capabilities with one repository share its file."""
    for row in find_others(host, desired, family):
        name, files = derive_own_name(row["file"]), host["files"]
        same = {**desired, "name": name}
        if name and files[row["file"]] == format_text(same, family) and files.get(get_key_path(name, family)) == key:
            return same
    return desired


def plan(output: str, desired: Mapping[str, Any], key: str, fingerprints: Iterable[str], family: str) -> dict[str, Any]:
    """Return what to write, and what is in the way.

    `source` and `key`, each {path, text, before (None: no such file)}; `imports`, whether rpm's database lacks a key;
    `right`, if nothing is to be done; `problem` and `hint`, if the source is somebody else's.
    """
    host = parse(output)
    desired = find_standing(host, desired, key, family)
    files = {}
    for kind, place, body in (
        ("source", derive_path(desired["name"], family), format_text(desired, family)),
        ("key", get_key_path(desired["name"], family), key),
    ):
        files[kind] = {"path": place, "text": body, "before": host["files"].get(place)}
    imports = family != "debian" and not all(has_key(host, fingerprint) for fingerprint in fingerprints)
    right = not imports and all(file["text"] == file["before"] for file in files.values())
    problem = find_conflict(host, desired, family)
    return {**files, **problem, "name": desired["name"], "imports": imports, "right": right}


def has_key(output: str | Mapping[str, Any], fingerprint: str) -> bool:
    """Return whether rpm's database has the key. If the host reported only the last eight digits of a key, these
    decide."""
    host = parse(output) if isinstance(output, str) else output
    expected = fingerprint.casefold()
    return any(version in (expected, expected[-8:]) for version in (row.split("-")[0] for row in host["rpm_keys"]))


def simplify_url(url: str, host: Mapping[str, Any]) -> str:
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


def parse_rows(name: str, body: str, gpgcheck: str) -> Iterable[dict[str, Any]]:
    if name.endswith(".repo"):
        return _repo(name, body, gpgcheck)
    return _deb822(name, body) if name.endswith(".sources") else _list(name, body) if name.endswith(".list") else ()


def build_row(name: str, url: str, suite: str = "", **more: Any) -> dict[str, Any]:
    base = {
        "id": "",
        "enabled": True,
        "signed_by": "",
        "trusted": "",
        "gpgcheck": True,
        "repo_gpgcheck": False,
        "components": [],
    }
    return {"file": name, "url": url, "suite": suite, **base, **more}


def _list(name: str, body: str) -> Iterable[dict[str, Any]]:
    """Parse the one-line style, sources.list(5)."""
    for line in body.splitlines():
        match = ONE_LINE.match(line)
        if match:
            options = dict(part.partition("=")[::2] for part in (match["options"] or "").split())
            options = {key.rstrip("+-").casefold(): value for key, value in options.items()}
            trust = next((f"{key}={options[key]}" for key in UNSAFE if options.get(key, "").casefold() in YES), "")
            words = match["components"].split()
            yield build_row(
                name,
                match["uri"],
                match["suite"],
                signed_by=options.get("signed-by", ""),
                trusted=trust,
                components=words,
            )


def _deb822(name: str, body: str) -> Iterable[dict[str, Any]]:
    for stanza in re.split(r"\n\s*\n", "\n".join(line for line in body.splitlines() if not line.startswith("#"))):
        fields: dict[str, str] = {}
        last = ""
        for line in stanza.splitlines():
            if line[:1].isspace() and last:
                fields[last] += "\n" + line.strip()
            elif ":" in line:
                last, _, value = line.partition(":")
                last = last.strip().casefold()
                fields[last] = value.strip()
        if "deb" not in fields.get("types", "").split():
            continue
        signed = fields.get("signed-by", "")
        trust = next(
            (f"{key.capitalize()}: {fields[key]}" for key in UNSAFE if fields.get(key, "").casefold() in YES), ""
        )
        more = {
            "enabled": fields.get("enabled", "yes").casefold() in YES,
            "signed_by": "a key inside the file" if "BEGIN PGP" in signed else " ".join(signed.split()),
            "trusted": trust,
            "components": fields.get("components", "").split(),
        }
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield build_row(name, uri, suite, **more)


def _repo(name: str, body: str, default: str) -> Iterable[dict[str, Any]]:
    section, last = "", ""
    fields: dict[str, str] = {}
    for line in [*body.splitlines(), "[]"]:
        head = re.match(r"\[(.*)\]\s*\Z", line)
        if head:
            if section and section != "main":
                yield from parse_repository(name, section, fields, default)
            section, fields, last = head[1], {}, ""
        elif line[:1].isspace() and last and line.strip():
            fields[last] += " " + line.strip()
        elif "=" in line and not line.lstrip().startswith(("#", ";")):
            last, _, value = line.partition("=")
            last = last.strip().casefold()
            fields[last] = value.strip()


def parse_repository(name: str, section: str, fields: Mapping[str, str], gpgcheck: str) -> Iterable[dict[str, Any]]:
    def yes(key: str, default: str) -> bool:
        return fields.get(key, default).casefold() in YES

    more: dict[str, Any] = {
        "id": section,
        "enabled": yes("enabled", "1"),
        "signed_by": " ".join(re.split(r"[\s,]+", fields.get("gpgkey", ""))),
        "gpgcheck": yes("gpgcheck", gpgcheck),
        "repo_gpgcheck": yes("repo_gpgcheck", "0"),
    }
    urls = re.split(r"[\s,]+", fields.get("baseurl", "") or fields.get("mirrorlist", "") or fields.get("metalink", ""))
    for url in urls or [""]:
        yield build_row(name, url, **more)
