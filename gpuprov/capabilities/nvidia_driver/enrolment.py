"""Whether the firmware, or shim, trusts the site's certificate: enrolled, waiting for the console, or neither."""

from collections.abc import Collection
from typing import Literal, NamedTuple

from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host import house, system
from gpuprov.facts.probes.host.family import words
from gpuprov.facts.probes.kernel.signing import ENROLLED, MOK_STATE, SHORT, VARIABLES
from gpuprov.rules import certificates

Ctx = Context[NvidiaDriver]
State = Literal["enrolled", "waiting", "another waits", "not enrolled", "unknown"]
PROBES = (house.SECURE_BOOT, ENROLLED, MOK_STATE, system.CONTAINER, system.OS_RELEASE)
COMMAND = "gpuprov enroll INVENTORY --sheet FILE"
AT_CONSOLE = "MokManager asks at the console whether to enroll the site's certificate"


class Enrolment(NamedTuple):
    """The state of a certificate on a host with Secure Boot on."""

    state: State
    message: str
    fix: str
    # Why no request can be made there.
    obstacle: str = ""
    # Further certificates that wait together with it.
    others: tuple[str, ...] = ()


def judge(facts: Facts, file: str, *, prepared: bool) -> Enrolment:
    """Judge the certificate in this file. `prepared`: the spec lets gpuprov prepare its enrolment."""
    fingerprint = certificates.of_file(file)["fingerprint"]
    either = {fingerprint, fingerprint[:SHORT]}
    mok = facts.get(MOK_STATE)
    if either & facts.get(ENROLLED):
        return Enrolment("enrolled", f"Secure Boot is on and the site's certificate is enrolled ({file})", "")
    by_hand = f"mokutil --import {file} (in DER), reboot, confirm at the console"
    way = f"enroll it on the host: {COMMAND if prepared else by_hand}; or switch Secure Boot off"
    if not mok.tool:
        tool = f"{words(facts.get(system.OS_RELEASE)).install} mokutil"
        missing = "mokutil, which shows and requests enrolments, is not installed"
        return Enrolment("unknown", f"Secure Boot is on, and {missing}", tool, missing)
    message = f"Secure Boot is on, and no enrolled certificate has its SHA-1 fingerprint, {fingerprint}"
    pending = list_others(mok.pending, fingerprint)
    if len(pending) < len(mok.pending):
        message = f"{message}: its enrolment waits for the console at the next boot"
        message += f", and so does that of other certificates: {', '.join(pending)}" if pending else ""
        fix = "reboot with the console open, and confirm in MokManager"
        return Enrolment("waiting", message, fix, others=pending)
    if pending:
        others = ", ".join(pending)
        drop = f"{COMMAND} --again drops it" if prepared else "mokutil --revoke-import drops it"
        message = f"{message}; another certificate waits for the console: {others}"
        return Enrolment("another waits", message, f"{drop}; {way}", f"another certificate waits: {others}")
    obstacle = ""
    if mok.variables != "rw":
        how = "mounted read-only" if mok.variables else "not mounted"
        obstacle = f"{VARIABLES} is {how}"
        remount = "mount -o remount,rw" if mok.variables else "mount -t efivarfs efivarfs"
        message, way = f"{message}; {obstacle}", f"{remount} {VARIABLES}, then {way}"
    return Enrolment("not enrolled", message, way, obstacle)


def list_others(pending: Collection[str], fingerprint: str) -> tuple[str, ...]:
    """Return the fingerprints of certificates that wait, without the one with this fingerprint."""
    return tuple(sorted(each for each in pending if not each or not fingerprint.startswith(each)))


def judge_off(facts: Facts) -> Outcome:
    """Return the outcome of a host on which Secure Boot does not seem to be on: without the firmware's variables nobody
    knows."""
    mok = facts.known(MOK_STATE)
    if mok and mok.efi and not mok.variables:
        mount = f"mount -t efivarfs efivarfs {VARIABLES}"
        return skip(f"whether Secure Boot is on cannot be read: {VARIABLES} is not mounted", mount)
    return ok("Secure Boot is off, or the machine has no EFI")


def prepares(driver: NvidiaDriver) -> bool:
    """Return whether gpuprov may prepare the enrolment."""
    return driver.signing.enroll == "prepared"


def judge_preflight(ctx: Ctx) -> Outcome:
    """Return the outcome before anything is changed, on a host with Secure Boot on."""
    file = ctx.fragment.signing.certificate_file
    enrolment = judge(ctx.facts, file, prepared=prepares(ctx.fragment))
    if enrolment.state == "enrolled":
        return ok(enrolment.message)
    reboot = AT_CONSOLE if enrolment.state == "waiting" else ""
    return fail(f"Secure Boot off, or {file} enrolled", enrolment.message, enrolment.fix, reboot=reboot)


@check(
    "nvidia_driver.enrolled",
    *PROBES,
    fields=("signing",),
    moment="next-boot",
    evidence="mokutil --sb-state; mokutil --list-enrolled; mokutil --list-new",
)
def enrolled(ctx: Ctx) -> Outcome:
    """With Secure Boot on, the firmware trusts the site's certificate; one that waits for the console is not enrolled
    yet."""
    if not ctx.fragment.signing.certificate_file:
        return not_asked("no site certificate")
    if ctx.facts.get(system.CONTAINER):
        return not_asked("the machine's kernel loads modules, not this container")
    if not ctx.facts.get(house.SECURE_BOOT):
        outcome = judge_off(ctx.facts)
        return outcome if outcome.status == "skip" else not_asked(outcome.found)
    return judge_preflight(ctx)


CHECKS = (enrolled,)
