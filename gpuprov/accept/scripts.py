"""Shell code of a test on a host: a server that is ready when the step ends, a client, and the server's end.

Each program gets a process group of its own, recorded with its start time in the lock's folder, so that the lock's end
finds it.
"""

import shlex
from collections.abc import Mapping, Sequence

from gpuprov.accept.commands import PORT

# Exit status of `timeout` from coreutils for a command that it ended.
TIMED_OUT = 124
# Exit status for a command that it had to kill.
KILLED = 137
# Bytes of a program's output that are read; of a longer output whole lines of its beginning and its end, where the
# figures are.
LONGEST = 4_000_000
# Seconds that a server may take until it listens.
READY = 20
_START = """p=$!
[ -e "/proc/$p" ] && echo "$p $(sed 's/.*) //' "/proc/$p/stat" | cut -d' ' -f20)" >"$d/NAME.pid"
"""
# Between 20000 and 28000: below the range of outgoing connections (ip_local_port_range), and clear of erdma's 30608 to
# 30623.
_CHOOSE = r"""port=$((20000 + $(od -An -N2 -tu2 /dev/urandom) % 8000))
while grep -qsi "$(printf ':%04X ' "$port")" /proc/net/tcp /proc/net/tcp6; do port=$((port + 1)); done
"""


def _quote_all(words: Sequence[str]) -> str:
    return shlex.join(words).replace(PORT, '"$port"')


def _format_environment(more: Mapping[str, str]) -> str:
    """Format the environment."""
    # With GPU memory, completions must not scatter data (https://github.com/linux-rdma/perftest); GPUs are numbered by
    # PCI address.
    plain = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "MLX5_SCATTER_TO_CQE": "0"}
    return shlex.join(["env", *(f"{key}={value}" for key, value in {**plain, **more}.items())])


def serve(words: Sequence[str], *, listens: bool, limit: float) -> str:
    """Start a server, wait until it is ready and print the port. Fails, with the server's output, if it does not come
    up."""
    ready = (
        """  grep -qsi "$(printf ':%04X [0-9A-F]*:0000 0A' "$port")" /proc/net/tcp /proc/net/tcp6 && break"""
        if listens
        else '  [ "$n" -ge 5 ] && break'
    )
    return f"""{_CHOOSE}
setsid timeout -k 5 {int(limit)} {_format_environment({})} {_quote_all(words)} </dev/null >"$d/server.log" 2>&1 &
{_START.replace("NAME", "server")}n=0
while :; do
  case $(sed 's/.*) //;s/ .*//' "/proc/$p/stat" 2>/dev/null) in ''|Z) cat "$d/server.log"; rm -f "$d/server.pid"
    exit 1 ;; esac
{ready}
  n=$((n + 1)); [ "$n" -ge {READY * 5} ] && {{ cat "$d/server.log"; echo 'it does not listen after {READY} s'; exit 1
    }}
  sleep 0.2
done
echo "port $port"
"""


def ask(words: Sequence[str], *, port: int = 0, limit: float, more: Mapping[str, str] | None = None) -> str:
    """Run a client, or a program of one host, to its end or for `limit` seconds; print its output and end with its
    status."""
    return f"""port={port}
setsid timeout -k 5 {int(limit)} {_format_environment(more or {})} {_quote_all(words)} </dev/null >"$d/client.log" 2>&1 &
{_START.replace("NAME", "client")}wait "$p"; s=$?
rm -f "$d/client.pid"
if [ "$(wc -c <"$d/client.log")" -le {LONGEST} ]; then
  cat "$d/client.log"
else
  head -c {LONGEST // 2} "$d/client.log" | sed '$d'
  tail -c {LONGEST // 2} "$d/client.log" | sed 1d
fi
exit "$s"
"""


# Ends the server, if it has not ended by itself, and prints the end of its output.
STOP = """f=$d/server.pid
if [ -e "$f" ]; then
  read -r p s <"$f"
  for n in 1 2 3 4 5 6 7 8 9 10; do
    [ "$(sed 's/.*) //' "/proc/$p/stat" 2>/dev/null | cut -d' ' -f20)" = "$s" ] || break
    case $n in 3) kill -TERM "-$p" ;; 8) kill -KILL "-$p" ;; esac
    sleep 0.2
  done
  rm -f "$f"
fi
tail -c 2000 "$d/server.log" 2>/dev/null
true
"""


def write(path: str, text: str) -> str:
    """Replace a file in one step."""
    folder = path.rpartition("/")[0]
    return f"""mkdir -p {shlex.quote(folder)} && umask 022 &&
printf '%s\\n' {shlex.quote(text)} >{shlex.quote(path)}.new && mv {shlex.quote(path)}.new {shlex.quote(path)}"""
