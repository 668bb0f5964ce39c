"""Enrolment of the site's certificate for Secure Boot: who has it, who waits for the console, and requests for the rest."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from gpuprov.capabilities.nvidia_driver.enrolment import AT_CONSOLE, PROBES, judge, judge_off, prepares
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.core.errors import GpuprovError, Outcome, UnreachableError
from gpuprov.facts.collect.children import run_all
from gpuprov.facts.collect.gather import gather_each
from gpuprov.facts.collect.pace import Pace
from gpuprov.facts.collect.script import compose_one, split
from gpuprov.facts.collect.transport import Answer, job
from gpuprov.facts.probes.base import Facts, Output, ProbeFailed
from gpuprov.facts.probes.host import house, system
from gpuprov.facts.probes.kernel.mok import MOK_STATE
from gpuprov.fleet.enroll.script import SKIPPED, compose_request
from gpuprov.rules import certificates
from gpuprov.spec.model import HostSpec, RawHost

Pairs = Sequence[tuple[RawHost, HostSpec]]
State = Literal["enrolled", "waiting", "not needed", "not enrolled", "refused", "failed", "unreachable"]
OUTCOMES: dict[State, Outcome] = {
    "enrolled": "ok",
    "not needed": "ok",
    "waiting": "differs",
    "not enrolled": "differs",
    "refused": "failed",
    "failed": "failed",
    "unreachable": "unreachable",
}
LIMIT = 60.0
"""Seconds for the request of one host; variables of some firmware are slow to write."""
HERE = "nvidia_driver"


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A host. `certificate`: its file on this machine; `requested`: this run has made the request, or will."""

    host: str
    state: State
    certificate: str = ""
    message: str = ""
    hint: str = ""
    requested: bool = False

    @property
    def at_console(self) -> bool:
        """Whether a person may be asked about it at the console: also if the connection was lost during the request."""
        return self.state == "waiting" or (self.requested and self.state in ("not enrolled", "unreachable"))

    @property
    def outcome(self) -> Outcome:
        return OUTCOMES[self.state]


def list_signing(pairs: Pairs) -> list[tuple[RawHost, NvidiaDriver]]:
    """Return the hosts whose modules are signed with a certificate of the site."""
    drivers = ((raw, spec.capabilities.get(HERE)) for raw, spec in pairs)
    return [
        (raw, block) for raw, block in drivers if isinstance(block, NvidiaDriver) and block.signing.certificate_file
    ]


def read_hosts(hosts: Sequence[tuple[RawHost, NvidiaDriver]], *, again: bool, pace: Pace, timeout: float) -> list[Host]:
    """Read the hosts and decide which need a request. again: also those with a request, which is replaced."""
    known: dict[str, Host] = {}
    drivers = {raw.name: block for raw, block in hosts}

    def note(name: str, facts: Facts | UnreachableError) -> None:
        known[name] = judge_host(name, drivers[name], facts, again=again)

    gather_each([(raw, PROBES) for raw, _ in hosts], note, pace=pace, timeout=timeout)
    return [known[raw.name] for raw, _ in hosts]


def judge_host(name: str, driver: NvidiaDriver, facts: Facts | UnreachableError, *, again: bool) -> Host:
    """Return the state of a host, and whether a request is to be made there."""
    file = driver.signing.certificate_file
    host = Host(host=name, state="not needed", certificate=file)
    if isinstance(facts, UnreachableError):
        return msgspec.structs.replace(host, state="unreachable", message=facts.message, hint=facts.hint)
    try:
        if container := facts.get(system.CONTAINER):
            return msgspec.structs.replace(host, message=f"{container} container: the machine's kernel loads modules")
        if not facts.get(house.SECURE_BOOT):
            off = judge_off(facts)
            state: State = "not needed" if off.status == "pass" else "failed"
            return msgspec.structs.replace(host, state=state, message=off.found, hint=off.hint)
        enrolment = judge(facts, file, prepared=prepares(driver))
    except ProbeFailed as error:
        return msgspec.structs.replace(host, state="failed", message=str(error), hint=error.hint)
    if enrolment.state == "enrolled":
        return msgspec.structs.replace(host, state="enrolled")
    texts = {"message": enrolment.message, "hint": enrolment.fix}
    if not prepares(driver):
        state = "waiting" if enrolment.state == "waiting" else "refused"
        hint = (
            texts["hint"]
            if state == "waiting"
            else f"nvidia_driver: {{signing: {{enroll: prepared}}}}, or {texts['hint']}"
        )
        return msgspec.structs.replace(host, state=state, message=enrolment.message, hint=hint)
    replaced = again and enrolment.state in ("waiting", "another waits")
    if enrolment.state == "waiting" and not replaced:
        return msgspec.structs.replace(host, state="waiting", message=AT_CONSOLE)
    if enrolment.obstacle and not replaced:
        return msgspec.structs.replace(host, state="refused", **texts)
    return msgspec.structs.replace(host, state="not enrolled", requested=True, **texts)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is requested. `hashes`: of the password, by host; `again`: in place of a request that waits; `wait`: seconds
    that MokManager waits for a key at the next boot, -1 without an end, None as it does by itself."""

    hashes: Mapping[str, str]
    again: bool = False
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
                job(raw_hosts[host.host], compose_one("request", script, LIMIT), LIMIT, _record(host, done, tell))
            )
        except GpuprovError as error:
            done[host.host] = msgspec.structs.replace(host, state="unreachable", message=error.message, hint=error.hint)
    run_all(jobs, min(len(jobs), at_a_time) or 1)
    return [done.get(host.host, host) for host in hosts]


def _record(host: Host, done: dict[str, Host], tell: Callable[[str], None]) -> Callable[[Answer], None]:
    def note(answer: Answer) -> None:
        tell(host.host)
        if isinstance(answer, UnreachableError):
            done[host.host] = msgspec.structs.replace(
                host, state="unreachable", message=answer.message, hint=answer.hint
            )
            return
        done[host.host] = judge_answer(host, (split(answer) or {}).get("request", Output("", 1)))

    return note


def judge_answer(host: Host, output: Output) -> Host:
    """Return what came of a request: only a certificate that mokutil then lists waits."""
    fingerprint = certificates.of_file(host.certificate)["fingerprint"]
    try:
        pending = MOK_STATE.parse(output).pending
    except ValueError:
        pending = frozenset()
    if any(fingerprint.startswith(each) for each in pending if each):
        if SKIPPED in output.text.splitlines():
            message = f"{AT_CONSOLE}, by a request that came before this one"
            return msgspec.structs.replace(host, state="waiting", message=message, hint="", requested=False)
        return msgspec.structs.replace(host, state="waiting", message=AT_CONSOLE, hint="")
    lines = [line for line in (output.error or output.text).splitlines() if line.strip() and "|" not in line]
    reason = " ".join(" ".join(lines).split())[:300] or f"exit status {output.status}"
    hint = "the variables' file system must be writable and have room; see the firmware's settings of Secure Boot"
    return msgspec.structs.replace(host, state="failed", message=f"mokutil made no request: {reason}", hint=hint)


def group_hosts(hosts: Iterable[Host]) -> dict[tuple[State, str, str], list[str]]:
    """Return names of hosts by state, message and hint; the worst last."""
    groups: dict[tuple[State, str, str], list[str]] = {}
    for host in sorted(hosts, key=lambda host: [*OUTCOMES].index(host.state)):
        groups.setdefault((host.state, host.message, host.hint), []).append(host.host)
    return groups
