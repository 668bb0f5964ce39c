"""Logs of DKMS builds of the NVIDIA driver on a host: the kernel of each, and its first line about a failure.

DKMS keeps build/make.log after a failed build, and moves it to KERNEL/ARCH/log/make.log after a successful one
(https://github.com/dell/dkms/blob/master/dkms.in).
"""

import re
from typing import NamedTuple

import msgspec

from gpuprov.facts.probes.base import Output, Probe

# The first line, of DKMS 2.8 and of 3.
# DKMS (dkms-3.1.5) make.log for nvidia-open/570.86.15 for kernel 6.12.15-200.fc41.x86_64 (x86_64)
FIRST = re.compile(r"(?:DKMS(?: \(dkms-[\w.~+-]+\))? )?make\.log for \S+ for kernel (\S+)")


class BuildLog(msgspec.Struct, frozen=True):
    """A build log."""

    path: str
    # The kernel release of the build.
    kernel: str
    # The first line that reports a failure, empty if none does.
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


# Patterns (ERE) of lines about a failure: of compilers, modpost, the shell and make.
FAILURES = (
    r"(^|[^[:alnum:]_-])(error|Error|ERROR)[: ]",  # neither -Werror, which is in each line of flags, nor a file's name
    "command not found",
    "No such file or directory",
    r"make(\[[0-9]+\])?: \*\*\* ",  # no rule, no folder; or Killed, where memory ran out
)
DKMS_LOGS = Probe(
    "dkms_failed_builds",
    rf"""for f in /var/lib/dkms/nvidia*/*/build/make.log; do
  [ -f "$f" ] || continue
  echo "@log $f"; head -n 1 "$f"
  grep -m 1 -E '{"|".join(FAILURES)}' "$f"
done; true""",
    parse,
    "tail /var/lib/dkms/nvidia*/*/build/make.log",
)


class SwitchedOff(NamedTuple):
    """A reason for which DKMS builds nothing for a new kernel, and the fix."""

    message: str
    fix: str


def parse_autoinstall(output: Output) -> tuple[SwitchedOff, ...]:
    rows = output.rows(bare=True)
    switched_off = [SwitchedOff("/etc/dkms/no-autoinstall exists", "rm /etc/dkms/no-autoinstall; dkms autoinstall")] * (
        "1" in rows
    )
    for row in rows.get("conf", []):
        path, _, value = row.partition("|")
        message = f"{path} has AUTOINSTALL={value}" if value else f"{path} has no AUTOINSTALL"
        switched_off.append(SwitchedOff(message, f'AUTOINSTALL="yes" in {path}; dkms autoinstall'))
    for row in rows.get("lost", []):
        message = f"{row} leads to no dkms.conf: the driver's sources are gone"
        switched_off.append(SwitchedOff(message, "reinstall the package that dpkg -S or rpm -qf names for its target"))
    for row in rows.get("unknown", []):
        message = f"DKMS does not know the driver's sources in {row}: /var/lib/dkms has nothing of them"
        switched_off.append(SwitchedOff(message, f"dkms add {row}; dkms autoinstall"))
    hooks = [row.partition("|")[::2] for row in rows.get("hook", [])]
    if hooks and "service" not in rows and not any(state == "on" for state, _ in hooks):
        words = {"mode": "{} is not executable", "mask": "{} masks that of dkms"}
        fixes = {"mode": "chmod +x {}", "mask": "rm {}"}
        switched_off.append(
            SwitchedOff(
                "; ".join(words[state].format(path) for state, path in hooks),
                "; ".join(fixes[state].format(path) for state, path in hooks),
            )
        )
    return tuple(switched_off)


# Reasons for which DKMS builds nothing by itself: its settings, and hooks of kernel packages that do not run (run-parts
# leaves out what is not executable, kernel-install(8) what is masked); dkms.service builds at a boot in their place. A
# package's postinst then leaves a host without modules and reports success.
NO_AUTOINSTALL = Probe(
    "dkms_no_autoinstall",
    r"""[ -e /etc/dkms/no-autoinstall ] && echo 1
k=
for c in /var/lib/dkms/nvidia*/*/source; do
  case $c in */nvidia-fs/*) continue ;; esac
  [ -L "$c" ] || [ -e "$c" ] || continue
  k=1; [ -e "$c/dkms.conf" ] || echo "lost|$c"
done
[ -n "$k" ] || for c in /usr/src/nvidia-*/dkms.conf; do
  case $c in */nvidia-fs-*) continue ;; esac
  [ -e "$c" ] && echo "unknown|${c%/dkms.conf}"
done
for c in /var/lib/dkms/nvidia*/*/source/dkms.conf; do
  [ -e "$c" ] || continue
  v=${c%/source/dkms.conf}; m=${v%/*}; m=${m##*/}; v=${v##*/}; w='' p=$c
  for f in "$c" "/etc/dkms/$m.conf" "/etc/dkms/$m-$v.conf"; do
    [ -f "$f" ] || continue
    x=$(tr -d "\"'" 2>/dev/null <"$f" | sed -n 's/^[[:space:]]*AUTOINSTALL=\([A-Za-z0-9]*\).*/\1/p' | tail -n 1)
    [ -n "$x" ] && w=$x p=$f
  done
  case $w in [yY]*) ;; *) echo "conf|$p|$w" ;; esac
done
for f in /etc/kernel/postinst.d/dkms /etc/kernel/header_postinst.d/dkms /usr/lib/kernel/install.d/*dkms*.install; do
  [ -e "$f" ] || continue
  o=/etc/kernel/install.d/${f##*/} s=on
  case $f in /usr/*) [ -L "$o" ] && [ "$(readlink "$o")" = /dev/null ] && s=mask f=$o ;; esac
  [ $s = mask ] || [ -x "$f" ] || s=mode
  echo "hook|$s|$f"
done
[ "$(systemctl is-enabled dkms.service 2>/dev/null)" = enabled ] && echo service
true""",
    parse_autoinstall,
    "ls -l /etc/dkms/no-autoinstall /etc/kernel/*/*dkms*; grep AUTOINSTALL /var/lib/dkms/nvidia*/*/source/dkms.conf",
    blank=r"hook\||service$",
)
