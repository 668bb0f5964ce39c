"""Local NVMe disks and what is on them, and the unit that makes a scratch file system of them at each boot."""

from dataclasses import dataclass

from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.host_code.at_boot import scratch as onhost
from gpuprov.host_code.at_boot import scratch_state
from gpuprov.host_code.at_boot.scratch_state import State

DROP_IN = "gpuprov-scratch.conf"


@dataclass(frozen=True)
class Scratch:
    """`config`: the lines of the unit's configuration; empty: no such file. `required_by`: units that have its
    drop-in."""

    state: State
    config: tuple[str, ...] = ()
    required_by: tuple[str, ...] = ()


def parse(output: Output) -> Scratch:
    rows = output.rows()
    try:
        state = scratch_state.parse(output.text)
    except (ValueError, LookupError) as error:
        raise ProbeFailed(f"the disks cannot be read: {error}") from error
    return Scratch(state, tuple(rows.get("config", ())), tuple(sorted(rows.get("required", ()))))


SCRATCH = Probe(
    "scratch",
    f"""{scratch_state.READER}sed -n 's/^[a-z]/config|&/p' {onhost.CONFIG} 2>/dev/null
for f in /etc/systemd/system/*.service.d/{DROP_IN}; do
  [ -e "$f" ] && f=${{f%.service.d/*}} && echo "required|${{f##*/}}"
done; true""",
    parse,
    "lsblk -f; lsblk -d -o +MODEL,SERIAL,TRAN; ls -l /dev/disk/by-id",
    asks=lambda host: {"mount": host.capabilities["scratch"].mount},
    speaks=True,
)
