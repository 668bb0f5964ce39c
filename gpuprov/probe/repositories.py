"""Package sources of a host, the keys that they are trusted by, and keys that are trusted for every source."""

from __future__ import annotations

from typing import Any

from gpuprov import openpgp, sources
from gpuprov.probe.base import Output, Probe, ProbeFailed
from gpuprov.probe.family import by_family

# User names and passwords in URLs stay on the host. Keys that Debian and Ubuntu ship in trusted.gpg.d are not read.
_FILES = r"""for f in %s; do
  [ -f "$f" ] || continue
  t=$(sed -e 's#//[^/@ ]*@#//***@#g' -e 's/^/ /' "$f") && printf '@file %%s\n%%s\n' "$f" "$t" || echo "@unread $f"
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


def parse(output: Output) -> dict[str, Any]:
    """What `sources.parse` tells, if all of it was read: no sources at all are an answer, no answer is none."""
    lines = output.text.splitlines()
    unread = [line.removeprefix("@unread ") for line in lines if line.startswith("@unread ")]
    if unread or "@end" not in lines:
        what = ", ".join(unread) or " ".join(output.error.split())[:200] or "the host gave no whole answer"
        raise ProbeFailed(f"the package sources could not be read: {what}")
    return sources.parse(openpgp.rpm_keys(output.text))


REPOSITORIES: Probe[dict[str, Any]] = Probe(
    "repositories",
    by_family(_DEBIAN, _REDHAT, _SUSE) + "\necho @end",
    parse,
    "cat /etc/apt/sources.list.d/* /etc/yum.repos.d/* /etc/zypp/repos.d/*; "
    "ls /etc/apt/keyrings /etc/apt/trusted.gpg.d /etc/pki/rpm-gpg",
)
"""What `sources.parse` tells: files, sources, and the keys trusted for all."""
