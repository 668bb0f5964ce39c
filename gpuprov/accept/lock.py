"""Each host's lock, the same one that apply takes, and a keeper that releases it if nobody does.

Beside the lock a process on the host waits for a deadline that every step puts off. When it has passed, the machine
that ran the acceptance is gone or cannot reach the host: the process ends what was started and releases the lock.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping

from gpuprov import __version__
from gpuprov.accept.model import Ran, Runner, Step
from gpuprov.accept.remote import AT_A_TIME
from gpuprov.core import safe_parse
from gpuprov.core.errors import UnreachableError
from gpuprov.host_code import process
from gpuprov.host_code.json_members import Json
from gpuprov.host_code.lock import LOCK
from gpuprov.host_code.locked import explain_refusal
from gpuprov.plan.host_lock import command

FOLDER = "/run/gpuprov/accept"
# Seconds beyond a step's own limit until the host releases its lock by itself.
PUT_OFF = 180
# Exit status of a step whose lock is gone.
LOST = 97
# Shell: signals the recorded process groups, unless a number is another process's by now (proc_pid_stat(5), field 22).
_STOP = """stop() {
  hit=1
  for f in "$d"/*.pid; do
    [ -e "$f" ] || continue
    read -r p s <"$f"
    [ "$(sed 's/.*) //' "/proc/$p/stat" 2>/dev/null | cut -d' ' -f20)" = "$s" ] && kill "-$1" "-$p" 2>/dev/null && hit=0
  done
  return $hit
}"""


class Lock:
    """The lock of one run on many hosts. `held`: hosts that have it; `away`: those that had it when they were last
    reached."""

    def __init__(self, runner: Runner, run: str, at_a_time: int = AT_A_TIME) -> None:
        self._at_a_time = at_a_time
        self._runner, self._owner = runner, process.describe(run, __version__)
        self._run = run
        self.held: dict[str, None] = {}
        self.away: dict[str, None] = {}

    def take(self, hosts: Iterable[str], *, broken: Collection[str] = ()) -> dict[str, str | UnreachableError]:
        """Take each host's lock. Returns the reason for those where it could not be taken.

        A dead run's lock, and one whose id is in `broken`, is taken over.
        """
        refused: dict[str, str | UnreachableError] = {}
        again: list[Step] = []
        named = sorted({*broken} - {""})
        steps = [Step(host=host, script=self._taking(host, broken=named)) for host in hosts]
        for host, ran in self._tried(steps).items():
            answer, why = _parse_answer(ran)
            if why:
                refused[host] = why
            elif answer.get("taken"):
                self.held[host] = None
            elif process.is_dead(_parse_mapping(answer.get("holder")), self._owner):
                again.append(Step(host=host, script=self._taking(host, stale=str(answer.get("text", "")))))
            else:
                refused[host] = ": ".join(explain_refusal(answer, named, "accept with"))
        for host, ran in self._tried(again).items() if again else ():
            answer, why = _parse_answer(ran)
            if answer.get("taken"):
                self.held[host] = None
            else:
                refused[host] = why or "somebody else took its lock at this moment"
        return refused

    def _tried(self, steps: list[Step]) -> dict[str, Ran]:
        """Run the steps; after an exception nobody knows which locks were taken, and all of them are to be released."""
        try:
            return self._runner(steps)
        except BaseException:
            self.held |= dict.fromkeys(step.host for step in steps)
            raise

    def step(self, host: str, script: str, limit: float, phase: float = 0.0) -> Step:
        """Make a step that runs only while the lock is held, and puts off its end by the time that the whole phase may
        take."""
        return Step(host=host, script=self._guarded(host, max(limit, phase)) + script, limit=limit)

    def phase(self, steps: Mapping[str, tuple[str, float]]) -> dict[str, Ran]:
        """Run scripts (with the seconds each may take) on their hosts; put off the lock's end on the others."""
        # Hosts beyond those at a time wait for the first: their locks hold until all have had their turn.
        waves = -(-max(len(steps), len(self.held)) // self._at_a_time)
        longest = max((limit for _, limit in steps.values()), default=0.0) * max(waves, 1)
        if waves > 1:
            self._runner([self.step(host, ":", 30.0, longest) for host in self.held])
        made = [self.step(host, script, limit, longest) for host, (script, limit) in steps.items()]
        idle = [self.step(host, ":", 30.0, longest) for host in self.held if host not in steps]
        ran = self._runner([*made, *idle])
        for host, result in ran.items():
            if result.lost:
                self.away[host] = None
            if result.lost or result.status == LOST:
                self.held.pop(host, None)
        return {host: result for host, result in ran.items() if host in steps or result.lost or result.status == LOST}

    def release(self, hosts: Iterable[str] | None = None) -> dict[str, str]:
        """End running tests and release the locks. Returns the hosts that could not be reached for it, with the
        reason."""
        names = list({**self.held, **self.away} if hosts is None else hosts)
        if not names:
            return {}
        ran = self._runner([Step(host=host, script=f"d={FOLDER}\n{self._end(host)}", limit=90.0) for host in names])
        for host in names:
            self.held.pop(host, None)
            self.away.pop(host, None)
        return {host: why for host in names if (why := _explain_unreleased(ran[host]))}

    def _request(self, action: str, host: str, **more: object) -> str:
        return command(action, self._owner, host, **more)

    def _taking(self, host: str, **more: object) -> str:
        keeper = f"""d={FOLDER}
while sleep 5; do
  [ "$(cat "$d/run" 2>/dev/null)" = {self._whose(host)} ] || exit 0
  read -r now _ </proc/uptime; read -r until <"$d/until" || exit 0
  [ "${{now%%.*}}" -lt "$until" ] || break
done
{self._end(host)}"""
        return f"""[ "$(id -u)" = 0 ] || {{ echo 'not root'; exit 3; }}
answer=$({self._request("take", host, **more)}) || exit
case $answer in *'"taken": true'*)
  d={FOLDER}
  {_STOP}
  stop TERM; rm -rf "$d"; mkdir -m 700 -p "$d"; echo {self._whose(host)} >"$d/run"
  {_extend_script(PUT_OFF)}
  setsid sh -c {shlex.quote(keeper)} </dev/null >/dev/null 2>&1 &
esac
echo "$answer"
"""

    def _whose(self, host: str) -> str:
        """A shell word for this run and this name of the host: another name of the same host ends nothing, and runs
        nothing."""
        return shlex.quote(f"{self._run} {host}")

    def _guarded(self, host: str, limit: float) -> str:
        return f"""d={FOLDER}
[ "$(cat "$d/run" 2>/dev/null)" = {self._whose(host)} ] && grep -q '"run": "{self._run}"' {LOCK}/owner.json || {{
  echo 'the lock of this acceptance is gone'; exit {LOST}; }}
{_extend_script(int(limit) + PUT_OFF)}
"""

    def _end(self, host: str) -> str:
        return f"""[ "$(cat "$d/run" 2>/dev/null)" = {self._whose(host)} ] || exit 0
{_STOP}
stop TERM && sleep 1 && stop KILL
rm -rf "$d"
{self._request("release", host)} >/dev/null"""


def _extend_script(seconds: int) -> str:
    """Return shell code that puts the end off. The keeper never sees a half-written file."""
    put = f"echo $((${{now%%.*}} + {seconds}))"
    return f'read -r now _ </proc/uptime; {put} >"$d/until.new" && mv -f "$d/until.new" "$d/until"'


def _explain_unreleased(ran: Ran) -> str:
    """Explain why a host did not release its lock; empty if it did."""
    if ran.lost:
        return ran.lost.message
    return (" ".join(ran.text.split())[-200:] or f"exit status {ran.status}") if ran.status else ""


def _parse_answer(ran: Ran) -> tuple[dict[str, Json], str | UnreachableError]:
    """Parse the answer of the lock's program, or explain why there is none."""
    if ran.lost:
        return {}, ran.lost
    if ran.status == 3:
        return {}, "acceptance tests need root on the host: set ansible_become, or log in as root"
    if ran.status == 127:
        return {}, "acceptance tests need Python 3 on the host"
    try:
        answer = safe_parse.parse_json(ran.text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        return {}, f"its lock cannot be taken: {' '.join(ran.text.split())[-200:] or f'exit status {ran.status}'}"
    return answer, ""


def _parse_mapping(value: object) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}
