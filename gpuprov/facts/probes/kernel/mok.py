"""Requests to shim: certificates that wait for a person at the console to enroll them, and what is needed to ask."""

from typing import Literal

import msgspec

from gpuprov.facts.probes.base import Output, Probe

VARIABLES = "/sys/firmware/efi/efivars"


class MokState(msgspec.Struct, frozen=True, kw_only=True):
    """`efi`: the machine booted by EFI; `variables`: how its variables are mounted, empty if they are not; `tool`:
    mokutil is installed; `pending`: SHA-1 fingerprints of certificates that MokManager asks about at the next boot, or
    their beginnings (`signing.SHORT`)."""

    efi: bool = False
    variables: Literal["", "ro", "rw"] = ""
    tool: bool = False
    pending: frozenset[str] = frozenset()


def parse(output: Output) -> MokState:
    rows = [line.strip().partition("|")[::2] for line in output.text.splitlines()]
    values = dict(rows)
    mounted: Literal["", "ro", "rw"] = (
        "ro" if values.get("variables") == "ro" else "rw" if "variables" in values else ""
    )
    return MokState(
        efi="efi" in values,
        variables=mounted,
        tool="tool" in values,
        # SHA1 Fingerprint: 76:A0:92:06:58:00:BF:37:69:01:C3:72:CD:55:A9:0E:1F:DE:D2:E0
        # 2bb010e24d fedoraca     (the short list of mokutil 0.7.1)
        pending=frozenset(value.replace(":", "").strip().lower() for key, value in rows if key == "new"),
    )


# The request is shim's variable MokNew. MokManager deletes it when it starts, whether or not somebody then answers it
# (check_mok_request in https://github.com/rhboot/shim/blob/main/MokManager.c).
MOK_STATE = Probe(
    "mok_state",
    rf"""echo 'looked|1'
[ ! -d /sys/firmware/efi ] || echo 'efi|1'
while read -r a b c o x; do
  [ "$b" = {VARIABLES} ] || continue
  case ",$o," in *,ro,*) echo 'variables|ro' ;; *) echo 'variables|rw' ;; esac
done </proc/mounts
command -v mokutil >/dev/null || exit 0
echo 'tool|1'
o=$(LC_ALL=C mokutil --list-new 2>/dev/null)
case $o in *'SHA1 Fingerprint'* | '') ;; *) v=$(LC_ALL=C mokutil --verbose-listing --list-new 2>/dev/null)
  o=${{v:-$o}} ;; esac
printf '%s\n' "$o" | sed -n 's/^SHA1 Fingerprint: */new|/p; s/^\([0-9a-f]\{{10\}}\) .*/new|\1/p'""",
    parse,
    f"mokutil --list-new; grep {VARIABLES} /proc/mounts",
    speaks=True,
    blank=r"looked\|",
)
