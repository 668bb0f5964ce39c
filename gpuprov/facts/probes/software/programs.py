"""The programs and units of the packages that make GPUs work, compared with what their packages brought: their content,
and programs of the same name that come before them."""

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host.family import by_family

# Folders of programs and units. Libraries, of which a driver has 500 MB, would take seconds.
PLACES = r"(usr/)?(s?bin|lib/systemd/system)/"
# Programs of Debian's driver, to which links in /usr/bin lead by way of /etc/alternatives.
ALTERNATIVES = "usr/lib/nvidia/[^/]+/[a-z0-9-]+$"
NAMES = r"^(.*nvidia.*|datacenter-gpu-manager.*|nvlink.*|nvlsm|rdma-core|ofed-scripts|mlnx-tools)(:[a-z0-9]+)?$"


class Program(msgspec.Struct, frozen=True):
    """A program or unit that is not as its package brought it."""

    path: str
    package: str


class Programs(msgspec.Struct, frozen=True, kw_only=True):
    """All of them."""

    # Of those compared.
    count: int = 0
    changed: tuple[Program, ...] = ()
    # By path of a program, another one that comes before it on the PATH of systemd or of a container engine, with
    # another content.
    shadows: dict[str, str] = {}


def parse(output: Output) -> Programs:
    rows = output.cells()
    return Programs(
        count=int(rows.get("count", [["0"]])[0][0]),
        changed=tuple(Program(f"/{path}", package) for package, path in rows.get("changed", ())),
        shadows={path: other for other, path in rows.get("shadow", ())},
    )


_DEBIAN = rf"""cd /var/lib/dpkg/info || exit 0
d=$(awk 'NR % 3 == 1 {{ p = $0 }} NR % 3 == 0 && $0 != ":" {{ print p }}' /var/lib/dpkg/diversions 2>/dev/null)
grep -E '^[0-9a-f]{{32}}  ({PLACES}|{ALTERNATIVES})' /dev/null $(ls | sed -n 's/\.md5sums$//p' | grep -E '{NAMES}' |
  sed 's/$/.md5sums/') |
  sed -nE 's/^([^:]+)(:[a-z0-9]+)?\.md5sums:([0-9a-f]+)  (.*)$/\1|md5sum|\3|\4/p' | D=$d awk -F'|' '
    BEGIN {{ n = split(ENVIRON["D"], a, "\n"); for (i = 1; i <= n; i++) gone[a[i]] = 1 }} !(("/" $4) in gone)'"""
_RPM = rf"""n=$(rpm -qa --qf '%{{NAME}}\n' | grep -E '{NAMES}' | sort -u)
[ -z "$n" ] || rpm -q --qf '[%{{=NAME}}|%{{=FILEDIGESTALGO}}|%{{FILEFLAGS:fflags}}|%{{FILEDIGESTS}}|%{{FILENAMES}}\n]' $n 2>/dev/null |
  awk -F'|' '$5 ~ "^/{PLACES}" && $4 != "" && $3 !~ /[cg]/ {{
    print $1 "|" ($2 == 8 ? "sha256sum" : "md5sum") "|" $4 "|" substr($5, 2) }}'"""
_COMPARE = r"""t=$(listed)
echo "count|$(printf '%s' "$t" | grep -c '|')"
cd / || exit 0
for s in md5sum sha256sum; do
  case $t in *"|$s|"*) ;; *) continue ;; esac
  printf '%s\n' "$t" | sed -n "s/^[^|]*|$s|\([^|]*\)|/\1  /p" | LC_ALL=C $s -c 2>/dev/null |
    sed -n 's/: FAILED.*$//p' | while IFS= read -r p; do
      echo "changed|$(printf '%s\n' "$t" | awk -F'|' -v p="$p" '$4 == p { print $1; exit }')|$p"; done
done
f=$(for d in /usr/local/sbin /usr/local/bin $(for p in $(pidof dockerd containerd crio 2>/dev/null); do
  tr '\0' '\n' <"/proc/$p/environ" | sed -n 's/^PATH=//p' | tr : '\n'; done 2>/dev/null); do
  case $d in /usr/sbin | /usr/bin | /sbin | /bin) ;; /*) echo "$d" ;; esac; done | sort -u)
set -f
printf '%s\n' "$t" | sed -n 's#^.*|\(\(usr/\)\{0,1\}s\{0,1\}bin/[^/]*\)$#\1#p
s#^.*|usr/lib/nvidia/[^/]*/\([^/]*\)$#usr/bin/\1#p' | while IFS= read -r p; do
  [ -e "/$p" ] || continue
  for d in $f; do o=$d/${p##*/}
    [ -x "$o" ] && ! cmp -s "$o" "/$p" && echo "shadow|$o|/$p" && break; done
done; true"""
# The sums are those of dpkg -V and rpm -V, of these files alone; what another package diverts is not compared, and
# what the site diverts is: dpkg-divert(1).
PROGRAMS = Probe(
    "programs",
    by_family(*(f"listed() {{ ({script}\n)\n}}\n{_COMPARE}" for script in (_DEBIAN, _RPM, _RPM))),
    parse,
    "dpkg -V nvidia-container-toolkit-base; rpm -V nvidia-container-toolkit-base; type -a nvidia-container-runtime",
    blank=r"count\|",
)
