"""zypper without side effects: versions that its repositories offer, from the metadata that the host has fetched, and
its locks."""


def _build_setting(key: str, word: str) -> str:
    """Return shell that prints a setting of zypp.conf as `WORD|VALUE`; the last line is in force. Files beside it count
    by their names, whatever their folders; of one name that in /etc."""
    edit = rf"s/^[[:space:]]*{key}[[:space:]]*=[[:space:]]*\([^[:space:]]*\).*/{word}|\1/p"
    return f"""w='{edit}'
for f in /etc/zypp/zypp.conf /usr/etc/zypp/zypp.conf; do [ -e "$f" ] && {{ sed -n "$w" "$f"; break; }}; done
for f in /etc/zypp/zypp.conf.d/*.conf /usr/etc/zypp/zypp.conf.d/*.conf; do [ -e "$f" ] && echo "${{f##*/}}|$f"; done |
LC_ALL=C sort -s -u -t'|' -k1,1 | while IFS='|' read -r n f; do sed -n "$w" "$f"; done 2>/dev/null; true"""


# Shell: prints libzypp's file of locks, each line after `lock|`, and a word that identifies the family.
LOCKS = f"""echo 'suse|'; l=$({_build_setting("locksfile[.]path", "path")})
l=${{l##*|}}; sed 's/^/lock|/' "${{l:-/etc/zypp/locks}}" 2>/dev/null"""
# Shell: prints whether libzypp honours its locks, the last word as `apply|WORD`.
LOCKING = f"echo 'suse|'\n{_build_setting('locksfile[.]apply', 'apply')}"

_SEARCH = r"""set --
for d in "${GPUPROV_AHEAD:-${GPUPROV_BUNDLE:-/var/cache/zypp}}"/solv/*/solv; do
  a=${d%%/solv}; a=${a##*/}
  awk -v a="[$a]" 'function done() { if (mine && on) found = 1 }
    /^\[/ { done(); mine = $0 == a; on = 1 } /^enabled *= *(0|no|false|off)/ { on = 0 }
    END { done(); exit !found }' "${GPUPROV_AHEAD:-${GPUPROV_BUNDLE:-/etc/zypp}}"/repos.d/*.repo 2>/dev/null &&
      set -- "$@" -r "$a"
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
    """Return shell that prints `rpm|NAME|EPOCH|VERSION|RELEASE|ARCHITECTURE` of every version that the enabled
    repositories offer of these patterns."""
    # Repositories that were never fetched are left out: zypper would fetch them in spite of --no-refresh.
    # It waits for no lock: https://github.com/openSUSE/libzypp/blob/master/zypp/ZYppFactory.cc
    return _SEARCH % " ".join(f"'{pattern}'" for pattern in patterns)
