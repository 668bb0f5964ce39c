"""The guard of a lock: a program through which the run that holds the lock runs others on the host, and which refuses
all others.

It also refuses them in a boot that the run did not request: its earlier work may be half done, and its knowledge wrong.

Every module of the playbook goes through it, as the interpreter that Ansible is configured to use: a run that lost the
lock while it slept is refused at its next step, whatever the module. A running module is recognised by its mark when
the lock is taken over.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import sys

from . import lock
from .fence import Owner
from .locked import BOOTED, LOST
from .marked import MARK

# Number of guards of earlier tokens that stay, and refuse.
GUARDS = 4
# Permissions that let users other than root reach a file below a folder.
THROUGH = 0o011
GUARD = f"""#!/bin/sh
# Runs a program for the run of gpuprov that holds this host, and for no other. Made with the lock: @TOKEN@.
token= taker= user= host= since= name= up= ended= boot= first= line= asked= why= fix='let the other run end'
{{ read -r token taker user host since name; }} 2>/dev/null <@KEPT@/fence
{{ read -r boot; }} 2>/dev/null </proc/sys/kernel/random/boot_id
{{ read -r line; }} 2>/dev/null </proc/1/stat
{{ read -r asked; }} 2>/dev/null <@KEPT@/reboot
when() {{ [ $# -lt 20 ] || {{ shift 19; first=$1; }}; }}
when ${{line##*) }}
same() {{ [ -z "$1" ] || [ -z "$2" ] || [ "$1" = "$2" ]; }}
if [ "$token" = @TOKEN@ ] && [ "$asked" != @TOKEN@ ] && ! {{ same "$boot" '@BOOT@' && same "$first" '@FIRST@'; }}; then
  why='the host {BOOTED}' fix='see who rebooted it (last -x, journalctl --list-boots)'
elif [ "$token" = @TOKEN@ ]; then
  {{ read -r up ended </proc/uptime && echo "${{up%%.*}}" >@LOCK@/renewed; }} 2>/dev/null
  {MARK}=@RUN@
  export {MARK}
  if [ "$1" = --reboot ]; then
    shift && echo @TOKEN@ >@KEPT@/reboot || exit 1
    "$@"
    ended=$?
    [ $ended -eq 0 ] || [ $ended -gt 128 ] || rm -f @KEPT@/reboot
    exit $ended
  fi
  [ "$1" = -- ] && shift && exec "$@"
  exec @PYTHON@ "$@"
fi
[ $# -gt 0 ] || cat >/dev/null
if [ -n "$why" ]; then :
elif [ -n "$since" ]; then
  why="this run was taken over by $user on $host at $since (run $taker, lock $token; this run had @TOKEN@)"
else
  why='@KEPT@/fence is damaged or gone, so that nobody knows whether this run still holds the host'
fi
printf '{{"failed": true, "msg": "%s. {LOST}. Fix: %s, then apply again"}}\\n' "$why" "$fix"
exit 1
"""


def identify_boot() -> tuple[str, str]:
    """Return the boot, and the start time of the first process, which differs in a restarted container
    (proc_pid_stat(5))."""
    stat_ = (lock.read("/proc/1/stat") or "").rpartition(")")[2].split()
    return (lock.read("/proc/sys/kernel/random/boot_id") or "").strip(), stat_[19] if len(stat_) > 19 else ""


def write_guard(owner: Owner, token: str) -> str:
    """Write the program through which the owner runs others; those of the latest tokens stay, since they refuse."""
    path = f"{lock.KEPT}/guards/{token}"
    python = sys.executable or "/usr/bin/python3"
    boot, first = identify_boot()
    values = {"@TOKEN@": token, "@KEPT@": lock.KEPT, "@LOCK@": lock.LOCK, "@BOOT@": boot, "@FIRST@": first}
    values.update({"@RUN@": shlex.quote(str(owner["run"])), "@PYTHON@": shlex.quote(python)})
    text = GUARD
    for name, value in values.items():
        text = text.replace(name, value)
    if lock.read(path) != text:
        lock.write_whole(path, text, 0o755)
    with contextlib.suppress(FileNotFoundError):  # the run has seen the boot that it asked for
        os.unlink(f"{lock.KEPT}/reboot")
    for folder in (os.path.dirname(lock.KEPT), lock.KEPT, os.path.dirname(path)):
        mode = stat.S_IMODE(os.stat(folder).st_mode)
        if mode | THROUGH != mode:  # who logs in goes through the guard, too
            os.chmod(folder, mode | THROUGH)
    old = [name for name in os.listdir(f"{lock.KEPT}/guards") if lock.TOKEN.fullmatch(name)]
    for name in sorted(old, key=lambda name: int(name.partition("-")[0]))[: -1 - GUARDS]:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{lock.KEPT}/guards/{name}")
    return path
