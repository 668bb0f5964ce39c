"""What running units have read and has another content now: files that changed after the unit was started."""

from __future__ import annotations

from collections.abc import Mapping

from gpuprov.core.sanitize import fold_paths
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.host_code import reads

# By running unit, the files and folders that it has read and whose content is newer than its start.
Newer = Mapping[str, tuple[str, ...]]


def parse(output: Output) -> Newer:
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
    parse,
    "systemctl show -p ExecMainStartTimestamp 'nvidia*'; ls -l --time=ctime --full-time PATH; sha256sum PATH",
    speaks=True,
    blank="@reads",
)
