"""A driver installed by NVIDIA's .run file: the installer's record, and the modules on disk."""

import re

import msgspec

from gpuprov.core import safe_parse
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.host_code.packages.other_driver import PROGRAMS, RECORD

# https://github.com/NVIDIA/nvidia-installer: backup.c (the record's first line is like "1.0-5809505 (580.95.05)"),
# nvidia-installer.c
OURS = "/var/lib/gpuprov/runfile.json"


class Runfile(msgspec.Struct, frozen=True):
    """The installation."""

    # Of the installed driver, empty if there is none.
    version: str = ""
    # Programs that only such an installation has.
    programs: tuple[str, ...] = ()
    # Whether the modules on disk are open, by kernel.
    open: dict[str, bool] = {}
    # No permission to read the record.
    unreadable: bool = False
    # gpuprov's record of the file that it installed: its url or file, and its sha256.
    ours: dict[str, str] = {}


def parse(output: Output) -> Runfile:
    rows = [line.split("|") for line in output.text.splitlines()]
    record = next((row[1] for row in rows if row[0] == "record"), "")
    # 1.0-5809505 (580.95.05)
    match = re.search(r"(\d{3}\.[\d.]*\d)\)?\Z", record.strip())
    return Runfile(
        version=match[1] if match else "",
        programs=tuple(row[1] for row in rows if row[0] == "program"),
        open={row[1]: "GPL" in row[2] for row in rows if row[0] == "module" and len(row) == 3},
        unreadable=any(row[0] == "unreadable" for row in rows),
        ours=_parse_ours(output.text),
    )


def _parse_ours(text: str) -> dict[str, str]:
    row = next((line.partition("|")[2] for line in text.splitlines() if line.startswith("ours|")), "")
    try:
        record = safe_parse.parse_json(row or "{}")
    except ValueError:
        return {}
    return {key: value for key, value in record.items() if isinstance(value, str)} if isinstance(record, dict) else {}


RUNFILE = Probe(
    "runfile",
    f"""for p in {" ".join(PROGRAMS)}; do [ -e $p ] && echo "program|$p"; done
if [ -r {RECORD} ]; then echo "record|$(head -n 1 {RECORD})"
elif [ -d /var/lib/nvidia ] && ! [ -x /var/lib/nvidia ]; then echo 'unreadable|'; fi
[ -r {OURS} ] && echo "ours|$(cat {OURS})"
for d in /lib/modules/*; do
  k=${{d##*/}}; l=$(modinfo -k "$k" -F license nvidia 2>/dev/null) && echo "module|$k|$l"
done
true""",
    parse,
    f"head -n 2 {RECORD}; ls {' '.join(PROGRAMS)}; modinfo -F license nvidia",
)
