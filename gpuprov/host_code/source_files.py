"""Reader of a host's package sources and their trusted keys; `sources.parse` parses its output."""

from __future__ import annotations

AHEAD = "GPUPROV_SOURCES"
"""Environment variable of a run that sees package sources still to be added (`ahead`): a file with lines about them, as
below."""
# User names and passwords in URLs stay on the host. Keys that Debian and Ubuntu ship in trusted.gpg.d are not read.
_MASKED = "sed -e 's#//[^/@ ]*@#//***@#g'"
_FILES = rf"""for f in %s; do
  [ -f "$f" ] || continue
  t=$({_MASKED} -e 's/^/ /' "$f") && printf '@file %%s\n%%s\n' "$f" "$t" || echo "@unread $f"
done
"""
_DEBIAN = (
    _FILES
    % "/etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources /etc/apt/keyrings/gpuprov-*.asc"
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
    + "grep -qsE '^[[:space:]]*gpgcheck[[:space:]]*=[[:space:]]*(0|no|false|off)' /etc/zypp/zypp.conf || echo '@gpgcheck 1'\n"
)

SCRIPTS = {"debian": _DEBIAN, "redhat": _REDHAT, "suse": _SUSE}
"""Shell, by family. An unreadable file gives a line `@unread FILE`."""
END = f"""
[ -z "${{{AHEAD}:-}}" ] || [ ! -e "${AHEAD}" ] || {_MASKED} "${AHEAD}" || echo "@unread ${AHEAD}"
echo @end"""
"""Shell: reports sources still to be added, and marks the answer as complete."""


def find_missing_part(text: str) -> str:
    """Return the part of the answer that is missing; "" if it is complete."""
    lines = text.splitlines()
    lost = [line[len("@unread ") :] for line in lines if line.startswith("@unread ")]
    return ", ".join(lost) or ("" if "@end" in lines else "the host gave no whole answer")
