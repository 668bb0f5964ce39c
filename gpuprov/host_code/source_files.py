"""Reader of a host's package sources and their trusted keys; `sources.parse` parses its output."""

from __future__ import annotations

import re
from typing import Iterable, Mapping, NamedTuple, Sequence

# Environment variable of a run that sees package sources still to be added (`ahead`): a file with lines about them, as
# below.
AHEAD = "GPUPROV_SOURCES"
# User names and passwords in URLs stay on the host. Keys that Debian and Ubuntu ship in trusted.gpg.d are not read.
_MASKED = "sed -e 's#//[^/@ ]*@#//***@#g'"
_FILES = rf"""for f in %s; do
  [ -f "$f" ] || continue
  t=$({_MASKED} -e 's/^/ /' "$f") && printf '@file %%s\n%%s\n' "$f" "$t" || echo "@unread $f"
done
"""
_DEBIAN = (
    _FILES % "/etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources "
    "/etc/apt/keyrings/gpuprov-*.asc"
    + r"""for f in /etc/apt/trusted.gpg /etc/apt/trusted.gpg.d/*.gpg /etc/apt/trusted.gpg.d/*.asc; do
  case "$f" in */debian-archive-*|*/ubuntu-keyring-*) continue ;; esac
  [ -s "$f" ] || continue
  t=$(base64 "$f" | tr -d '\n') && [ -n "$t" ] && echo "@key $f $t" || echo "@unread $f"
done
echo "@arch $(dpkg --print-architecture)"
"""
)
_RPM = r"""for k in $(rpm -q gpg-pubkey 2>/dev/null | grep '^gpg-pubkey-'); do
  echo "@rpmkey ${k#gpg-pubkey-} $(rpm -q --qf '%{DESCRIPTION}' "$k" 2>/dev/null | base64 | tr -d '\n')"
done
echo "@machine $(uname -m)"
echo "@release $(. /etc/os-release; echo "${VERSION_ID%%.*}")"
"""
_REDHAT = (
    _FILES % "/etc/yum.repos.d/*.repo /etc/pki/rpm-gpg/RPM-GPG-KEY-gpuprov-*"
    + _RPM
    + "sed -n 's/^gpgcheck *= */@gpgcheck /p' /etc/dnf/dnf.conf 2>/dev/null\n"
)
_SUSE = (
    _FILES % "/etc/zypp/repos.d/*.repo /etc/zypp/gpuprov-*.asc"
    + _RPM
    + "grep -qsE '^[[:space:]]*gpgcheck[[:space:]]*=[[:space:]]*(0|no|false|off)' /etc/zypp/zypp.conf || echo "
    "'@gpgcheck 1'\n"
)

# Shell, by family. An unreadable file gives a line `@unread FILE`.
SCRIPTS = {"debian": _DEBIAN, "redhat": _REDHAT, "suse": _SUSE}
# Shell: reports sources still to be added, and marks the answer as complete.
END = f"""
[ -z "${{{AHEAD}:-}}" ] || [ ! -e "${AHEAD}" ] || {_MASKED} "${AHEAD}" || echo "@unread ${AHEAD}"
echo @end"""


def find_missing_part(text: str) -> str:
    """Return the part of the answer that is missing; "" if it is complete."""
    lines = text.splitlines()
    lost = [line[len("@unread ") :] for line in lines if line.startswith("@unread ")]
    return ", ".join(lost) or ("" if "@end" in lines else "the host gave no whole answer")


YES = ("1", "yes", "true", "on", "enabled", "with", "enable")
UNSAFE = ("trusted", "allow-insecure", "allow-weak", "allow-downgrade-to-insecure")
ONE_LINE = re.compile(r"^\s*deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<components>[^#]*)")


class Row(NamedTuple):
    """A source in a file of the host, for one URL and suite."""

    file: str
    url: str = ""
    suite: str = ""
    id: str = ""
    enabled: bool = True
    signed_by: str = ""
    # The option that trusts it without a key.
    trusted: str = ""
    gpgcheck: bool = True
    repo_gpgcheck: bool = False
    components: Sequence[str] = ()


def parse_rows(name: str, body: str, gpgcheck: str) -> Iterable[Row]:
    if name.endswith(".repo"):
        return _parse_repo(name, body, gpgcheck)
    return (
        _parse_deb822(name, body)
        if name.endswith(".sources")
        else _parse_list(name, body)
        if name.endswith(".list")
        else ()
    )


def _parse_list(name: str, body: str) -> Iterable[Row]:
    """Parse the one-line style, sources.list(5)."""
    for line in body.splitlines():
        match = ONE_LINE.match(line)
        if match:
            options = dict(part.partition("=")[::2] for part in (match["options"] or "").split())
            options = {key.rstrip("+-").casefold(): value for key, value in options.items()}
            trust = next((f"{key}={options[key]}" for key in UNSAFE if options.get(key, "").casefold() in YES), "")
            words = match["components"].split()
            signed = options.get("signed-by", "")
            yield Row(name, match["uri"], match["suite"], signed_by=signed, trusted=trust, components=words)


def _parse_deb822(name: str, body: str) -> Iterable[Row]:
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
        row = Row(
            name,
            enabled=fields.get("enabled", "yes").casefold() in YES,
            signed_by="a key inside the file" if "BEGIN PGP" in signed else " ".join(signed.split()),
            trusted=trust,
            components=fields.get("components", "").split(),
        )
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield row._replace(url=uri, suite=suite)


def _parse_repo(name: str, body: str, default: str) -> Iterable[Row]:
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


def parse_repository(name: str, section: str, fields: Mapping[str, str], gpgcheck: str) -> Iterable[Row]:
    def yes(key: str, default: str) -> bool:
        return fields.get(key, default).casefold() in YES

    row = Row(
        name,
        id=section,
        enabled=yes("enabled", "1"),
        signed_by=" ".join(re.split(r"[\s,]+", fields.get("gpgkey", ""))),
        gpgcheck=yes("gpgcheck", gpgcheck),
        repo_gpgcheck=yes("repo_gpgcheck", "0"),
    )
    urls = re.split(r"[\s,]+", fields.get("baseurl", "") or fields.get("mirrorlist", "") or fields.get("metalink", ""))
    yield from (row._replace(url=url) for url in urls)
