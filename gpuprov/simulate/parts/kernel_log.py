"""The kernel log of a simulated container, which has no kernel of its own: a file that faults append to and journalctl
shows."""

from __future__ import annotations

from pathlib import Path

from gpuprov.simulate.description import Description
from gpuprov.simulate.parts.base import STATE, File, Part

FOLDER = Path(__file__).parent / "kernel_log_files"
LOG = f"{STATE}/kernel.log"
# A log that begins with the boot of the kernel.
BEGIN = f"""mkdir -p {STATE}
[ -e {LOG} ] || printf '%s.000000 %s kernel: Linux version (simulated)\\n' "$(awk '$1 == "btime" {{ print $2 }}' /proc/stat)" \
  "$(hostname)" > {LOG}"""


def part(_name: str, description: Description) -> Part:
    """Return a replacement for journalctl when kernel messages are requested; nothing for a machine, which has a
    kernel."""
    if description.kind == "machine" or description.gpu is None:
        return Part()
    return Part(files={"/usr/local/bin/journalctl": File(FOLDER / "journalctl", 0o755)}, script=BEGIN)
