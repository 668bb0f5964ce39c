"""Logs of DKMS builds of the NVIDIA driver on a host: the kernel of each, and its first line about a failure.

DKMS keeps build/make.log after a failed build, and moves it to KERNEL/ARCH/log/make.log after a successful one
(https://github.com/dell/dkms/blob/master/dkms.in).
"""

import re

import msgspec

from gpuprov.facts.probes.base import Output, Probe

FIRST = re.compile(r"(?:DKMS(?: \(dkms-[\w.~+-]+\))? )?make\.log for \S+ for kernel (\S+)")
"""The first line, of DKMS 2.8 and of 3."""


class BuildLog(msgspec.Struct, frozen=True):
    """A build log. `kernel`: the kernel release of the build; `complaint`: the first line that reports a failure,
    empty if none does."""

    path: str
    kernel: str
    complaint: str = ""


def parse(output: Output) -> tuple[BuildLog, ...]:
    logs: list[BuildLog] = []
    path, kernel = "", ""
    for line in output.text.splitlines():
        if line.startswith("@log "):
            path, kernel = line.removeprefix("@log "), ""
        elif path and not kernel:
            kernel = first[1] if (first := FIRST.match(line)) else "?"
            logs.append(BuildLog(path, kernel))
        elif path and logs and not logs[-1].complaint:
            logs[-1] = msgspec.structs.replace(logs[-1], complaint=" ".join(line.split())[:200])
    return tuple(logs)


DKMS_LOGS = Probe(
    "dkms_failed_builds",
    r"""for f in /var/lib/dkms/nvidia*/*/build/make.log; do
  [ -f "$f" ] || continue
  echo "@log $f"; head -n 1 "$f"
  grep -m 1 -E 'command not found|[Ee]rror[: ]|No such file or directory|Stop\.' "$f"
done; true""",
    parse,
    "tail /var/lib/dkms/nvidia*/*/build/make.log",
)
NO_AUTOINSTALL = Probe(
    "dkms_no_autoinstall",
    "[ -e /etc/dkms/no-autoinstall ] && echo 1; true",
    lambda output: output.text.strip() == "1",
    "ls /etc/dkms/no-autoinstall",
)
"""True if DKMS is configured not to build by itself; a package's postinst then leaves a host without modules and
reports success."""
