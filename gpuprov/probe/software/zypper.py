"""zypper without zypper's writes: what its repositories offer, from what the host has fetched, and what its locks hold."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

LOCKS = "echo 'suse|'; sed 's/^/lock|/' /etc/zypp/locks 2>/dev/null"
"""Shell: libzypp's file of locks, each line behind `lock|`, and a word that says whose it is."""
LOCKING = r"""echo 'suse|'
w='s/^[[:space:]]*locksfile[.]apply[[:space:]]*=[[:space:]]*\([^[:space:]]*\).*/apply|\1/p'
for f in /etc/zypp/zypp.conf /usr/etc/zypp/zypp.conf; do [ -e "$f" ] && { sed -n "$w" "$f"; break; }; done
sed -n "$w" /usr/etc/zypp/zypp.conf.d/*.conf /etc/zypp/zypp.conf.d/*.conf 2>/dev/null; true"""
"""Shell: whether libzypp heeds its locks, the last word as `apply|WORD`."""
NAMED = {"type", "match_type", "case_sensitive", "solvable_name"}
"""What a lock of a name alone says. A lock may be of one version, one architecture or one repository, too."""

_SEARCH = r"""set --
for d in "${GPUPROV_BUNDLE:-/var/cache/zypp}"/solv/*/solv; do
  a=${d%%/solv}; a=${a##*/}
  awk -v a="[$a]" 'function done() { if (mine && on) found = 1 }
    /^\[/ { done(); mine = $0 == a; on = 1 } /^enabled *= *(0|no|false|off)/ { on = 0 }
    END { done(); exit !found }' "${GPUPROV_BUNDLE:-/etc/zypp}"/repos.d/*.repo 2>/dev/null && set -- "$@" -r "$a"
done
[ $# = 0 ] || ZYPP_READONLY_HACK=1 zypper --xmlout --non-interactive --no-refresh search -s -t package "$@" %s 2>&1 |
  awk -F '"' -v arch="$(uname -m)" '
    /<message type="error">/ { sub(/.*<message type="error">/, ""); sub(/<.*/, ""); print > "/dev/stderr" }
    /<solvable / {
      delete f; for (i = 1; i < NF; i += 2) { k = $i; sub(/.*[ <]/, "", k); sub(/=$/, "", k); f[k] = $(i + 1) }
      if (f["kind"] != "package" || f["repository"] == "(System Packages)" || (f["arch"] != arch && f["arch"] != "noarch")) next
      e = "0"; v = f["edition"]; if (v ~ /^[0-9]+:/) { e = v; sub(/:.*/, "", e); sub(/^[0-9]+:/, "", v) }
      r = v; sub(/.*-/, "", r); sub(/-[^-]*$/, "", v)
      print "rpm|" f["name"] "|" e "|" v "|" r "|" f["arch"]
    }'"""


def search(*patterns: str) -> str:
    """Shell: `rpm|NAME|EPOCH|VERSION|RELEASE|ARCHITECTURE` of every version that the enabled repositories offer of these patterns.

    Repositories that were never fetched are left out: zypper would fetch them, whatever --no-refresh says. It waits for no lock:
    https://github.com/openSUSE/libzypp/blob/master/zypp/ZYppFactory.cc
    """
    return _SEARCH % " ".join(f"'{pattern}'" for pattern in patterns)


def parse_locks(lines: list[str]) -> list[dict[str, str]]:
    """The blocks of libzypp's file of locks."""
    blocks = re.split(r"\n\s*\n", "\n".join(line for line in lines if not line.lstrip().startswith("#")))
    pairs = ((line.partition(":") for line in block.splitlines() if ":" in line) for block in blocks)
    return [{key.strip(): value.strip() for key, _, value in block} for block in pairs]


def held(locks: list[dict[str, str]], name: str) -> bool:
    """Whether a lock holds the package, whatever its version: it is then neither moved nor removed."""
    return any(
        _holds(lock, name) for lock in locks if lock.keys() <= NAMED and lock.get("type", "package") == "package"
    )


def _holds(lock: dict[str, str], name: str) -> bool:
    wanted, how = lock.get("solvable_name", ""), lock.get("match_type", "glob")
    if lock.get("case_sensitive", "on") not in ("on", "true", "1"):
        wanted, name = wanted.casefold(), name.casefold()
    if how == "regex":
        try:
            return re.search(wanted, name) is not None
        except re.error:
            return False
    return bool(wanted) and (fnmatchcase(name, wanted) if how == "glob" else how == "exact" and name == wanted)
