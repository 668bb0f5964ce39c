"""The files that decide limits at a login and at a boot, beside limits.conf: PAM, sshd, and systemd's own files."""

from collections.abc import Mapping

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.kernel.boot import list_assignments


class LimitSources(msgspec.Struct, frozen=True):
    """`services`: the last value of each DefaultLimit of systemd's files, with the file; `without`: ways to log in
    whose PAM stack does not read limits.conf; `no_pam`: sshd does without PAM. `read`: all of it was read."""

    services: Mapping[str, tuple[str, str]] = {}
    without: tuple[str, ...] = ()
    no_pam: bool = False
    read: bool = False


def parse(output: Output) -> LimitSources:
    services: dict[str, tuple[str, str]] = {}
    for path, key, value in list_assignments(output):
        if value:
            services[key] = (value, path)
        else:
            services.pop(key, None)
    rows = [line.partition("|")[::2] for line in output.text.splitlines()]
    return LimitSources(
        services,
        without=tuple(rest for kind, rest in rows if kind == "without"),
        no_pam=("pam", "no") in [(kind, rest.lower()) for kind, rest in rows],
        read=any(kind == "read" for kind, _ in rows),
    )


# pam_limits(8): with conf= it reads that file alone. Of systemd's files the last by name wins:
# systemd-system.conf(5).
LIMIT_SOURCES = Probe(
    "limit_sources",
    r"""for p in cat grep head sed sort tail; do command -v $p >/dev/null || exit 127; done
{
for f in /usr/lib/systemd/system.conf /etc/systemd/system.conf; do [ -e "$f" ] && echo "|$f"; done | tail -n 1
for f in /etc/systemd /usr/local/lib/systemd /usr/lib/systemd; do
  for f in "$f"/system.conf.d/*.conf; do [ -e "$f" ] && echo "${f##*/}|$f"; done
done | LC_ALL=C sort -s -u -t'|' -k1,1
} | { IFS='
'; set -f; grep '^[[:space:]]*DefaultLimit[A-Z]*[[:space:]]*=' /dev/null $(cut -d'|' -f2-) 2>/dev/null; } |
  sed 's/^\([^:]*\):/file|\1\
line|/'
reads() {
  f=/etc/pam.d/$1; [ -f "$f" ] || f=/usr/lib/pam.d/$1; [ -f "$f" ] || return 1
  case " $seen " in *" $1 "*) return 1 ;; esac; seen="$seen $1"
  grep -E '^[[:space:]]*-?session[[:space:]].*pam_limits\.so' "$f" | grep -qvE 'conf=' && return
  for i in $(sed -nE 's/^[[:space:]]*@include[[:space:]]+([^[:space:]]+).*/\1/p
s/^[[:space:]]*-?session[[:space:]]+(include|substack)[[:space:]]+([^[:space:]]+).*/\2/p' "$f"); do reads "$i" &&
  return; done
  return 1
}
for s in sshd login; do
  [ -f /etc/pam.d/$s ] || [ -f /usr/lib/pam.d/$s ] || continue; seen=; reads $s || echo "without|$s"
done
cat /etc/ssh/sshd_config.d/*.conf /etc/ssh/sshd_config 2>/dev/null |
  sed -nE 's/^[[:space:]]*[Uu][Ss][Ee][Pp][Aa][Mm][[:space:]=]+"?([A-Za-z]+).*/pam|\1/p' | head -n 1
echo 'read|'""",
    parse,
    "grep -r pam_limits /etc/pam.d; systemd-analyze cat-config systemd/system.conf",
    speaks=True,
    blank=r"read\|$",
)
