"""Enrolment of the site's certificate for Secure Boot: who has it, who waits for the console, and requests for the
rest."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from gpuprov import __version__
from gpuprov.capabilities.nvidia_driver.enrolment import AT_CONSOLE, PROBES, judge, judge_off, list_others, prepares
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.core.errors import Code, GpuprovError, Outcome, UnreachableError
from gpuprov.facts.collect.children import run_all
from gpuprov.facts.collect.command import hides_script
from gpuprov.facts.collect.gather import gather_each
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.collect.script import TIMED_OUT, compose_one, split
from gpuprov.facts.collect.settings import Settings
from gpuprov.facts.collect.transport import Answer, job
from gpuprov.facts.probes.base import Facts, Output, ProbeFailed
from gpuprov.facts.probes.host import house, system
from gpuprov.facts.probes.kernel.signing import MOK_STATE, MokState
from gpuprov.fleet.enroll.script import BEGUN, LISTED, LOCKED, NO_WAIT, REFUSED, REPLACED, SKIPPED, compose_request
from gpuprov.rules import certificates
from gpuprov.spec.model import HostSpec, RawHost

Pairs = Sequence[tuple[RawHost, HostSpec]]
State = Literal[
    "enrolled", "waiting", "not needed", "not enrolled", "refused", "failed", "unknown", "locked", "unreachable"
]
OUTCOMES: dict[State, Outcome] = {
    "enrolled": "ok",
    "not needed": "ok",
    "waiting": "differs",
    "not enrolled": "differs",
    "refused": "failed",
    "failed": "failed",
    "unknown": "failed",
    "locked": "locked",
    "unreachable": "unreachable",
}
# Seconds for the request of one host; variables of some firmware are slow to write.
LIMIT = 60.0
HERE = "nvidia_driver"


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A host. `certificate`: its file on this machine; `requested`: this run has made the request, or will; `notes`:
    what a person at the console should know of this host."""

    host: str
    state: State
    certificate: str = ""
    message: str = ""
    fix: str = ""
    requested: bool = False
    notes: tuple[str, ...] = ()

    @property
    def at_console(self) -> bool:
        """Return whether a person may be asked about it at the console: also if nobody knows what became of the
        request."""
        return self.state == "waiting" or (self.requested and self.state in ("not enrolled", "unknown", "unreachable"))

    @property
    def outcome(self) -> Outcome:
        return OUTCOMES[self.state]


class Enrolled(msgspec.Struct, kw_only=True):
    """The document of --json."""

    gpuprov_enroll: Annotated[int, msgspec.Meta(description="Version of this format")] = 1
    gpuprov: str = __version__
    exit_code: Code
    hosts: tuple[Host, ...]


def list_signing(pairs: Pairs) -> list[tuple[RawHost, NvidiaDriver]]:
    """Return the hosts whose modules are signed with a certificate of the site."""
    drivers = ((raw, spec.capabilities.get(HERE)) for raw, spec in pairs)
    return [
        (raw, block) for raw, block in drivers if isinstance(block, NvidiaDriver) and block.signing.certificate_file
    ]


def read_hosts(hosts: Sequence[tuple[RawHost, NvidiaDriver]], *, again: bool, pace: Pace, timeout: float) -> list[Host]:
    """Read the hosts and decide which need a request. again: also those with a request, which is replaced."""
    known: dict[str, Host] = {}
    given = {raw.name: (raw, block) for raw, block in hosts}

    def note(name: str, facts: Facts | UnreachableError) -> None:
        raw, driver = given[name]
        host = judge_host(name, driver, facts, again=again)
        known[name] = _refuse_shown(host) if host.requested and not hides_script(Settings(raw)) else host

    gather_each([(raw, PROBES) for raw, _ in hosts], note, pace=pace, timeout=timeout)
    return [known[raw.name] for raw, _ in hosts]


def _refuse_shown(host: Host) -> Host:
    """Return the host without a request, since all its users could read the password's hash in a list of processes."""
    message = "its become password, or its connection by Ansible, puts the password's hash into argument lists"
    fix = "allow sudo without a password, or log in as root, by ssh"
    return msgspec.structs.replace(host, state="refused", message=message, fix=fix, requested=False)


def judge_host(name: str, driver: NvidiaDriver, facts: Facts | UnreachableError, *, again: bool) -> Host:
    """Return the state of a host, and whether a request is to be made there."""
    file = driver.signing.certificate_file
    host = Host(host=name, state="not needed", certificate=file)
    if isinstance(facts, UnreachableError):
        return msgspec.structs.replace(host, state="unreachable", message=facts.message, fix=facts.fix)
    try:
        if container := facts.get(system.CONTAINER):
            return msgspec.structs.replace(host, message=f"{container} container: the machine's kernel loads modules")
        if not facts.get(house.SECURE_BOOT):
            off = judge_off(facts)
            state: State = "not needed" if off.status == "pass" else "failed"
            return msgspec.structs.replace(host, state=state, message=off.found, fix=off.fix)
        enrolment = judge(facts, file, prepared=prepares(driver))
    except ProbeFailed as error:
        return msgspec.structs.replace(host, state="failed", message=str(error), fix=error.fix)
    if enrolment.state == "enrolled":
        return msgspec.structs.replace(host, state="enrolled")
    if enrolment.state == "waiting":
        host = msgspec.structs.replace(host, notes=describe_others(enrolment.others))
    texts = {"message": enrolment.message, "fix": enrolment.fix}
    if not prepares(driver):
        state = "waiting" if enrolment.state == "waiting" else "refused"
        fix = (
            texts["fix"]
            if state == "waiting"
            else f"nvidia_driver: {{signing: {{enroll: prepared}}}}, or {texts['fix']}"
        )
        return msgspec.structs.replace(host, state=state, message=enrolment.message, fix=fix)
    replaced = again and enrolment.state in ("waiting", "another waits")
    if enrolment.state == "waiting" and not replaced:
        return msgspec.structs.replace(host, state="waiting", message=AT_CONSOLE)
    if enrolment.obstacle and not replaced:
        return msgspec.structs.replace(host, state="refused", **texts)
    return msgspec.structs.replace(host, state="not enrolled", requested=True, notes=(), **texts)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is requested."""

    # Of the password, by host.
    hashes: Mapping[str, str]
    # In place of a request that waits.
    again: bool = False
    # Seconds that MokManager waits for a key at the next boot, -1 without an end, None as it does by itself.
    wait: int | None = None


def request(
    raw_hosts: Mapping[str, RawHost],
    hosts: Sequence[Host],
    requested: Request,
    at_a_time: int,
    tell: Callable[[str], None] = lambda host: None,
) -> list[Host]:
    """Make the requests, and return all hosts with what came of them."""
    done: dict[str, Host] = {}
    jobs = []
    for host in hosts:
        if not host.requested:
            continue
        der, password_hash = certificates.of_file(host.certificate)["der"], requested.hashes[host.host]
        script = compose_request(der, password_hash, again=requested.again, wait=requested.wait)
        try:
            jobs.append(
                job(
                    raw_hosts[host.host],
                    compose_one("request", script, LIMIT),
                    LIMIT,
                    _record(host, done, tell, requested.wait),
                )
            )
        except GpuprovError as error:
            done[host.host] = msgspec.structs.replace(host, state="unreachable", message=error.message, fix=error.fix)
    run_all(jobs, min(len(jobs), at_a_time) or 1)
    return [done.get(host.host, host) for host in hosts]


def _record(
    host: Host, done: dict[str, Host], tell: Callable[[str], None], wait: int | None
) -> Callable[[Answer], None]:
    def note(answer: Answer) -> None:
        tell(host.host)
        if isinstance(answer, UnreachableError):
            done[host.host] = msgspec.structs.replace(host, state="unreachable", message=answer.message, fix=answer.fix)
            return
        output = (split(answer) or {}).get("request", Output(BEGUN, TIMED_OUT))
        done[host.host] = judge_answer(host, output, wait)

    return note


def describe_others(pending: Sequence[str]) -> tuple[str, ...]:
    """Return the note about other certificates that MokManager asks about together with the site's."""
    if not pending:
        return ()
    return (f"MokManager asks about other certificates, too: {', '.join(pending)}; gpuprov enroll --again drops them",)


def judge_answer(host: Host, output: Output, wait: int | None = None) -> Host:
    """Return what came of a request: only a certificate that mokutil then lists waits. No request was made if mokutil
    refused it, was never run, or lists others. wait: what `Request` has."""
    fingerprint = certificates.of_file(host.certificate)["fingerprint"]
    lines = output.text.splitlines()
    if LOCKED in lines[:1]:
        message, fix = describe_lock(lines[1:])
        return msgspec.structs.replace(host, state="locked", message=message, fix=fix, requested=False)
    try:
        mok = MOK_STATE.parse(output)
    except ValueError:
        mok = MokState()
    others = list_others(mok.pending, fingerprint)
    if len(others) < len(mok.pending):
        notes = (*describe_wait(wait, failed=NO_WAIT in lines), *describe_others(others))
        if SKIPPED in lines or REPLACED in lines:
            when = "before this one" if SKIPPED in lines else "between"
            message = f"{AT_CONSOLE}, by a request that came {when}"
            return msgspec.structs.replace(host, state="waiting", message=message, fix="", requested=False, notes=notes)
        return msgspec.structs.replace(host, state="waiting", message=AT_CONSOLE, fix="", notes=notes)
    is_listed = output.status == 0 and LISTED in lines
    has_begun = BEGUN in lines or output.status == TIMED_OUT
    if has_begun and REFUSED not in lines and not is_listed:
        why = f"mokutil did not end within {LIMIT:g} s" if output.status == TIMED_OUT else _find_reason(output)
        message = f"nobody knows whether the request was made: {why}"
        fix = "its password is on the sheet; gpuprov enroll says whether the host waits"
        return msgspec.structs.replace(host, state="unknown", message=message, fix=fix)
    fix = "the variables' file system must be writable and have room; see the firmware's settings of Secure Boot"
    message = f"mokutil made no request: {_find_reason(output)}"
    return msgspec.structs.replace(host, state="failed", message=message, fix=fix)


def describe_lock(lines: Sequence[str]) -> tuple[str, str]:
    """Return who works on a host, by the lines of its lock, and what to do."""
    lock = house.parse_lock(Output("\n".join(lines)))
    who = f"{lock.user} on {lock.host} since {lock.since}" if lock and not lock.damaged else "nobody knows whom"
    fix = "wait until that run ends; gpuprov apply takes over a lock that a killed run has left"
    return f"locked by {who}: a run that works there may reboot the host, which drops a request", fix


def describe_wait(wait: int | None, *, failed: bool) -> tuple[str, ...]:
    """Return the note about how long MokManager waits for a key, if this run was to set it."""
    if wait is None:
        return ()
    if failed:
        return ("mokutil --timeout failed: the wait for a key is what it was (10 seconds if nobody set another)",)
    return (f"MokManager waits {'until a key is pressed' if wait == -1 else f'{wait} seconds for a key'}",)


def _find_reason(output: Output) -> str:
    lines = [line for line in (output.error or output.text).splitlines() if line.strip() and "|" not in line]
    return " ".join(" ".join(dict.fromkeys(lines)).split())[:300] or f"exit status {output.status}"


def group_hosts(hosts: Iterable[Host]) -> dict[tuple[State, str, str], list[str]]:
    """Return names of hosts by state, message with notes, and fix; the worst last."""
    groups: dict[tuple[State, str, str], list[str]] = {}
    for host in sorted(hosts, key=lambda host: [*OUTCOMES].index(host.state)):
        message = "; ".join(filter(None, (host.message, *host.notes)))
        groups.setdefault((host.state, message, host.fix), []).append(host.host)
    return groups
