"""Files that gpuprov writes, as they are on a host: kind, mode, owner, checksum; their units as loaded by systemd; and
what running units have read and has another content now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from gpuprov.core.sanitize import fold_paths
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host import house
from gpuprov.host_code import lines, reads
from gpuprov.host_code.unit_files import KINDS, SHOW, Loaded, parse_show

# Largest file that is checksummed, in KiB: none of gpuprov's is nearly as large.
LARGEST = 4096


class Entry(msgspec.Struct, frozen=True):
    """A file. `kind` is find's %y: f, l, d ...; `mode` in octal; `sum` is its sha256, empty if none was computed."""

    kind: str
    mode: int
    owner: int
    group: int
    sum: str = ""


class Contents(msgspec.Struct, frozen=True):
    """All files and units. `entries` by path; `missing`: paths that do not exist; `units` by name; `drop_ins`: text by
    path, also of the units that have some, `texts`: text of files in which lines are set. `pythons`: by unit file the
    interpreters of its commands; `sound`: interpreters that root alone can change. `ends`: by failed unit, how its run
    ended, and the last output of its program. `unmet`: conditions that drop-ins set and that are not met, by path.
    `rivals`: by unit those that cannot run beside it, by the files of either; `others`: the states of these.
    `unmasking`: units whose masks come from the removal of a package by dpkg, and go when it is installed."""

    entries: Mapping[str, Entry]
    missing: frozenset[str]
    units: Mapping[str, Loaded]
    drop_ins: Mapping[str, str]
    texts: Mapping[str, str]
    pythons: Mapping[str, tuple[str, ...]]
    sound: frozenset[str]
    ends: Mapping[str, str]
    unmet: Mapping[str, tuple[str, ...]] = {}
    rivals: Mapping[str, tuple[str, ...]] = {}
    others: Mapping[str, Loaded] = {}
    unmasking: frozenset[str] = frozenset()


def parse(output: Output) -> Contents:
    texts: dict[str, dict[str, str]] = {"dropin": {}, "lines": {}}
    rows: defaultdict[str, list[str]] = defaultdict(list)
    current, into = "", texts["lines"]
    for line in output.text.split("\n"):
        kind, _, rest = line.partition("|")
        if kind in texts:
            current, into = rest, texts[kind]
            into[current] = ""
        elif kind == "text" and current:
            into[current] += f"{rest}\n"
        else:
            rows[kind].append(rest)
    units = parse_show("\n".join(rows["unit"]))
    sums = {path: digest for digest, _, path in (row.partition("  ") for row in rows["sum"])}
    return Contents(
        {
            path: Entry(kind, int(mode, 8), int(owner), int(group), sums.get(path, ""))
            for kind, mode, owner, group, path in (row.split("|", 4) for row in rows["entry"])
        },
        frozenset(rows["none"]),
        units,
        texts["dropin"],
        texts["lines"],
        _group_by_path(rows["python"]),
        frozenset(
            path
            for mode, owner, path in (row.split("|", 2) for row in rows["sound"])
            if int(owner) == 0 and not int(mode, 8) & 0o022
        ),
        dict(_describe_ends(units, rows["said"])),
        _group_by_path(rows["unmet"]),
        dict(_list_rivals(rows["unit"])),
        parse_show("\n".join(rows["other"])),
        frozenset(rows["dpkg"]),
    )


def _describe_ends(units: Mapping[str, Loaded], said: Iterable[str]) -> Iterator[tuple[str, str]]:
    messages: dict[str, str] = {}
    for name, _, text in (row.partition("|") for row in said):
        messages[name] = text.strip() or messages.get(name, "")
    for name, unit in units.items():
        if unit.active == "failed":
            quoted = f'"{messages[name][:200]}"' if messages.get(name) else ""
            yield name, ": ".join(filter(None, (RESULTS.get(unit.result, ""), quoted)))


def _group_by_path(rows: Iterable[str]) -> dict[str, tuple[str, ...]]:
    groups: dict[str, tuple[str, ...]] = {}
    for path, _, text in (row.partition("|") for row in rows):
        groups[path] = tuple(dict.fromkeys((*groups.get(path, ()), text)))
    return groups


def _list_rivals(rows: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for block in "\n".join(rows).split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        rivals = dict.fromkeys(name for key in RIVALS for name in values.get(key, "").split() if name.endswith(KINDS))
        if "Id" in values and rivals:
            yield values["Id"], tuple(rivals)


# A sed expression that extracts the interpreter of a gpuprov command.
EXEC = r"s#^Exec[A-Za-z]*=[-@:+!]*(/[^ ]+) -B .*#\1#p"
# A sed expression that extracts the drop-ins of units, the files of the units that have some, and files of the site's.
DROP_INS = "/^FragmentPath=/{s///;h;/^\\/\\(etc\\|run\\)\\//p};/^DropInPaths=./{s/^DropInPaths=//;G;p}"
# Ends of a unit's run that its program may not have printed a line about: systemd.exec(5), $SERVICE_RESULT.
RESULTS = {
    "signal": "killed by a signal",
    "core-dump": "crashed",
    "oom-kill": "killed, as memory ran out",
    "timeout": "timed out",
    "watchdog": "missed its watchdog's deadline",
    "start-limit-hit": "started too often",
}
# Properties that name the units of which systemd runs none beside this one: systemd.unit(5).
RIVALS = ("Conflicts", "ConflictedBy")
SHOW_ALL = (*SHOW[:-1], *(word for name in RIVALS for word in ("-p", name)), "--")
# Lists the instances of gpuprov's templates that have drop-ins of their own.
INSTANCES = (
    "find /etc/systemd /run/systemd -mindepth 2 -maxdepth 2 -name 'gpuprov-*@?*.service.d' | sed 's#.*/##; s/\\.d$//'"
)
# Where deb-systemd-helper notes the units that it has masked: deb-systemd-helper(1p).
MASKS = "/var/lib/systemd/deb-systemd-helper-masked"
# Journal lines of a unit's own processes, without systemd's about them.
JOURNAL = "journalctl -q --no-pager -o cat -n 8"
# Reads $paths and everything in $folders, the texts of $lines, and systemd's state of $units; also the paths in the
# receipt. With _SYSTEMD_UNIT the journal shows only the output of a unit's own programs: systemd.journal-fields(7).
CONTENTS: Probe[Contents] = Probe(
    "contents",
    f"""IFS='
'
set -f
echo '@contents'
listed() {{ sed -n 's/^ *"'"$1"'",\\{{0,1\\}}$/\\1/p' {house.RECEIPT_FILE}; }}
paths=$({{ echo "$paths"; listed 'file [0-9a-f]*  *\\(\\/[^"]*\\)'; }} 2>/dev/null | sort -u | sed '/^$/d')
units=$({{ echo "$units"; listed 'unit \\([A-Za-z0-9][^"]*\\)'; {INSTANCES}; }} 2>/dev/null | sort -u | sed '/^$/d')
show() {{
find "$@" -xdev -printf 'entry|%y|%m|%U|%G|%p\\n'
find "$@" -xdev -type f -size -{LARGEST + 1}k -exec sha256sum -- {{}} + | sed 's/^/sum|/'
}}
met() {{
systemd-analyze condition ConditionPathExists=/ >/dev/null && {{ systemd-analyze condition "$1" >/dev/null; return; }}
case $1 in *PathExists=!*) [ ! -e "${{1#*=!}}" ] ;; *PathExists=*) [ -e "${{1#*=}}" ] ;; esac
}}
{{
for p in $paths; do [ -e "$p" ] || [ -L "$p" ] || echo "none|$p"; done
[ -z "$paths" ] || show $paths -maxdepth 0
[ -z "$folders" ] || show $folders
[ -z "$lines" ] || for p in $(find $lines -maxdepth 0 -type f -readable -size -{lines.LARGEST + 1}k); do
echo "lines|$p"; head -c {lines.LARGEST << 10} -- "$p" | sed 's/^/text|/'; echo
done
for p in $paths; do case $p in *.service) [ -L "$p" ] || [ ! -f "$p" ] || for y in $(sed -nE '{EXEC}' "$p" |
  sort -u); do
echo "python|$p|$y"; find -L "$y" -maxdepth 0 -type f -perm -0100 -printf 'sound|%m|%U|%p\\n'; done ;; esac; done
[ -z "$units" ] || {{
s=$(systemctl {" ".join(SHOW_ALL)} $units)
echo "$s" | sed 's/^/unit|/'
o=$(echo "$s" | sed -nE 's/^({"|".join(RIVALS)})=(.)/\\2/p' | tr ' ' '\\n' |
  grep -E '[.](service|timer|path|socket|mount)$' | sort -u)
[ -z "$o" ] || systemctl {" ".join(SHOW)} $o | sed 's/^/other|/'
ls {MASKS} | sed 's/^/dpkg|/'
for d in $(echo "$s" | sed -n '{DROP_INS}' | tr ' ' '\\n' | sort -u); do
[ ! -f "$d" ] || {{ echo "dropin|$d"; head -c 65536 -- "$d" | sed 's/^/text|/'; echo; }}
case $d in *.conf|/etc/*|/run/*) sed -nE 's/^((Condition|Assert)[A-Za-z]+=[^|%].*)/\\1/p' "$d" | while read -r c; do
met "$c" || echo "unmet|$d|$c"; done ;; esac
done
for l in $s; do case $l in
Id=*) u=${{l#Id=}} ;;
ActiveState=failed) {JOURNAL} "_SYSTEMD_UNIT=$u" | sed "s/eyJ[A-Za-z0-9_.-]*/(token)/g; s#^#said|$u|#" ;;
esac; done
}}
}} 2>/dev/null
true""",
    parse,
    "ls -lR /usr/local/lib/gpuprov /etc/gpuprov; systemctl cat 'gpuprov-*'",
    speaks=True,
    blank="@contents",
)


# By running unit, the files and folders that it has read and whose content is newer than its start.
Newer = Mapping[str, tuple[str, ...]]


def parse_reads(output: Output) -> Newer:
    starts: dict[str, float] = {}
    changed: dict[str, list[reads.Found]] = {}
    notes: list[str] = []
    for line in output.text.split("\n"):
        kind, _, rest = line.partition("|")
        if kind == "start":
            unit, _, at = rest.partition("|")
            starts[unit] = float(at)
        elif kind == "changed":
            unit, at, digest, path = rest.split("|", 3)
            changed.setdefault(unit, []).append(reads.Found(path, float(at), digest))
        elif kind == "note":
            notes.append(rest)
    known = reads.parse_notes("\n".join(notes))
    newer = {unit: tuple(reads.select_newer(files, starts[unit], known)) for unit, files in changed.items()}
    return {unit: paths for unit, paths in newer.items() if paths}


def explain_age(unit: str, newer: Newer) -> str:
    """Return what a running unit is older than; empty if it has read everything as it is."""
    return f"older than {', '.join(fold_paths(newer[unit]))}" if newer.get(unit) else ""


# Of $reads, UNIT|PATH for each file or folder that a unit reads; NAME@*.service for all units of a template.
READS: Probe[Newer] = Probe(
    "unit_reads",
    f"""IFS='
'
set -f
echo '@reads'
s=$(echo "$reads" | cut -d'|' -f1 | sort -u | sed '/^$/d')
[ -z "$s" ] || {{
for l in $(systemctl show -p Id -p MainPID -p ActiveState -p ExecMainStartTimestampMonotonic -- $s |
awk -v now="$(date +%s.%N)" -v up="$(cut -d' ' -f1 /proc/uptime)" 'BEGIN {{ RS = ""; FS = "\\n" }} {{
for (i = 1; i <= NF; i++) {{ n = index($i, "="); k[substr($i, 1, n - 1)] = substr($i, n + 1) }}
if (k["ExecMainStartTimestampMonotonic"] > 0 && k["ActiveState"] ~ /^(active|reloading)$/)
printf "%s|%s|%.2f\\n", k["Id"], k["MainPID"], now - up + k["ExecMainStartTimestampMonotonic"] / 1000000 + {reads.LATE}
split("", k) }}'); do
u=${{l%%|*}}; t=${{l##*|}}; x=${{l#*|}}; x=$(readlink "/proc/${{x%|*}}/exe")
p=$(echo "$reads" | awk -F'|' -v u="$u" -v w="${{u%%@*}}@*.${{u##*.}}" '$1 == u || $1 == w {{ print $2 }}')
echo "start|$u|$t"
find $p $(readlink -f $p) -newerct "@$t" -printf '%y|%C@|%p\\n' | sort -u | while IFS='|' read -r y c p; do
[ "$p" = "$x" ] && continue
h=; [ "$y" = f ] && h=$(sha256sum < "$p")
echo "changed|$u|$c|${{h%% *}}|$p"
done
done
[ ! -r {reads.NOTES} ] || sed 's/^/note|/' {reads.NOTES}
}} 2>/dev/null
true""",
    parse_reads,
    "systemctl show -p ExecMainStartTimestamp 'nvidia*'; ls -l --time=ctime --full-time PATH; sha256sum PATH",
    speaks=True,
    blank="@reads",
)
