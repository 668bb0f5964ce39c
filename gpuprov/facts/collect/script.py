"""One POSIX sh script for many probes, and the parser of its outputs. Nothing is written on the host.

Each snippet runs in a subshell of its own, standard input from /dev/null; standard output and standard error go
straight to the two streams of the exec, between frames. A frame's marker is a number that the host draws (the kernel's
random uuid) when the script starts and that only the script's shell knows: it is in no argument list, no environment
and not in the script, so nothing a snippet prints can forge a frame.

A snippet that does not end is killed with its children after PROBE_LIMIT seconds and gets status TIMED_OUT; one that
cannot be killed (uninterruptible sleep in a driver) is left behind at the next tick; one that can be is waited for, or
bash would report its end in the next frame. `timeout` from coreutils would wait for such a process for ever, and costs
two forks and execs per probe; the one ticker costs two per host and one a second.
"""

import re
import secrets
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.host_code import bundle

# Maximum seconds for one snippet; nvidia-smi on eight GPUs without persistence needs over ten.
PROBE_LIMIT = 30
# Status of a snippet that timed out; no program can have it.
TIMED_OUT = -1
ERROR_LENGTH = 2000
# Name of an output that exists without a probe: the user id that the snippets ran with.
UID = "effective_uid"

_HEAD = r"""LC_ALL=C PATH="$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
export LC_ALL PATH
unset LANGUAGE CDPATH ENV
cd /
n= u=
read -r n </proc/sys/kernel/random/uuid || n=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
while read -r k v w; do case $k in Uid:) set -- $w; u=$1; break;; esac; done </proc/self/status || u=$(id -u)
printf 'gpuprov-begin %s %s %s\n' RUN "$n" "$u"
printf 'gpuprov-begin %s %s %s\n' RUN "$n" "$u" >&2
t=0
trap 't=$((t+1))' USR1
(while sleep 1; do kill -USR1 $$ || exit; done) </dev/null >/dev/null 2>&1 &
w=$!
kill_tree() {
  for c in $(cat "/proc/$1/task/"*/children 2>/dev/null); do kill_tree "$c"; done
  kill -9 "$1" 2>/dev/null
}
probe() {
  printf '%s>%s\n' "$n" "$1"
  printf '%s!%s\n' "$n" "$1" >&2
  t=0
  (trap - USR1; eval "$2") </dev/null &
  p=$!
  while wait "$p" 2>/dev/null; s=$?; [ "$s" -gt 128 ] && kill -0 "$p" 2>/dev/null; do
    if [ "$t" -ge LIMIT ]; then kill_tree "$p"; wait "$p" 2>/dev/null; s=TIMED_OUT; break; fi
  done
  printf '%s<%s\n' "$n" "$s"
}
"""
_TAIL = r"""kill "$w" 2>/dev/null
printf '%s.\n' "$n" >&2
printf '%s.\n' "$n"
"""

# A random mark of this process, so that output of the login before the script cannot be taken for the script's
# beginning.
_RUN = secrets.token_hex(8)
_BEGIN = re.compile(rb"gpuprov-begin %b ([0-9a-f-]{20,64}) (\d*)\r?\n" % _RUN.encode())
_STATUS = re.compile(rb"-?[0-9]{1,6}\r?\Z")


def compose(probes: Iterable[Probe[Any]], limit: int = PROBE_LIMIT) -> str:
    """Compose one script for these probes, in order, identical ones once. In one process, equal probes give an
    identical script, byte for byte."""
    scripts: dict[str, str] = {}
    for probe in probes:
        if "\n" in probe.name or scripts.setdefault(probe.name, probe.script) != probe.script:
            raise ValueError(f"two probes are called {probe.name!r}, or the name has a line break")
    head = bundle.REQUIRED + _HEAD.replace("RUN", _RUN, 2).replace("LIMIT", str(limit), 1).replace(
        "TIMED_OUT", str(TIMED_OUT)
    )
    calls = "".join(f"probe {shlex.quote(name)} {shlex.quote(script)}\n" for name, script in scripts.items())
    return head + calls + _TAIL


def compose_one(name: str, script: str, limit: float) -> str:
    """Compose a script for one snippet, whose output is taken as it is."""
    return compose((Probe(name, script, lambda output: output.text),), int(limit))


def with_environment(script: str, environment: Mapping[str, str]) -> str:
    """Return the script with additional environment for its snippets, and a bundle's own programs first in PATH."""
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in environment.items()]
    if bundle.VARIABLE in environment:
        lines.append(f'export PATH="${bundle.VARIABLE}/bin:$PATH"\n')
    return "".join(lines) + script


def complete(stream: bytes | bytearray) -> bool:
    """Return whether this stream (standard output or standard error of the exec) is complete."""
    begin = _BEGIN.search(stream)
    return bool(begin and begin[1] + b"." in stream)


def begun(data: bytes) -> bool:
    """Return whether the script started on the host at all."""
    return bool(_BEGIN.search(data))


def split(data: bytes) -> dict[str, Output] | None:
    """Split both streams, one after the other, into outputs by probe name; None if the script did not run to its end.
    An invalid frame, such as one with a status that no program can have, is not an end either."""
    begin = _BEGIN.search(data)
    if begin is None or begin[1] + b"." not in data:
        return None
    texts: dict[str, str] = {}
    errors: dict[str, str] = {}
    statuses: dict[str, int] = {}
    name = ""
    for piece in data.split(begin[1])[1:]:
        tag, (line, _, body) = piece[:1], piece[1:].partition(b"\n")
        if tag == b">":
            name = line.decode(errors="replace")
            texts[name] = body.decode(errors="replace")
        elif tag == b"<":
            if not _STATUS.match(line):
                return None
            statuses[name] = int(line)
        elif tag == b"!":
            errors[line.decode(errors="replace")] = body.decode(errors="replace")[:ERROR_LENGTH]
    outputs = {key: Output(text, statuses.get(key, TIMED_OUT), errors.get(key, "")) for key, text in texts.items()}
    outputs.setdefault(UID, Output(begin[2].decode() + "\n"))
    return outputs
