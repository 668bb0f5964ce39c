"""Signatures of the kernel modules, and whether a machine with Secure Boot will load them."""

from collections.abc import Iterable, Iterator, Sequence

from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.booting import coming
from gpuprov.capabilities.nvidia_driver import enrolment
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver, built_here, served, versions
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.host import house, system
from gpuprov.facts.probes.host.family import family, words
from gpuprov.facts.probes.kernel import modules
from gpuprov.facts.probes.kernel.next_boot import NEXT_BOOT
from gpuprov.facts.probes.kernel.signing import (
    CERTIFICATE_FILE,
    DKMS_SINCE,
    ENROLLED,
    KEY_FILE,
    MODULE_SIGNING,
    SETTINGS_FILE,
    Signature,
)
from gpuprov.facts.probes.software.packages import INDEX, PACKAGES
from gpuprov.rules import certificates, resolve

Ctx = Context[NvidiaDriver]
KEY_STATE = "root 600"


@check(
    "nvidia_driver.secure_boot",
    *(*enrolment.PROBES, house.DKMS_KEY_ENROLLED),
    fields=("signing",),
    moment="preflight",
    evidence="mokutil --sb-state; mokutil --list-enrolled; mokutil --list-new; grep mok_certificate "
    "/etc/dkms/framework.conf",
)
def secure_boot(ctx: Ctx) -> Outcome:
    """With Secure Boot on, modules built on the host load only if the certificate that signs them is enrolled."""
    if container := ctx.facts.get(system.CONTAINER):
        return skip(f"{container} container: the machine's kernel loads modules, not this host")
    if not ctx.facts.get(house.SECURE_BOOT):
        return enrolment.judge_off(ctx.facts)
    if ctx.fragment.build == "precompiled":
        return _judge_precompiled(ctx)
    file = ctx.fragment.signing.certificate_file
    if file:
        return enrolment.judge_preflight(ctx)
    if ctx.fragment.source == "runfile":
        message = "Secure Boot is on, and NVIDIA's installer does not sign its modules with DKMS's key"
        fix = "nvidia_driver.signing with an enrolled certificate; a source of packages; or switch Secure Boot off"
        return fail("Secure Boot off, or modules signed with the site's key", message, fix)
    key = ctx.facts.get(house.DKMS_KEY_ENROLLED)
    if key:
        return ok(f"Secure Boot is on and the DKMS key is enrolled ({key.certificate})")
    file = key.certificate or "/var/lib/dkms/mok.pub"
    fix = (
        f"enrol the DKMS key (mokutil --import {file}, reboot, confirm at the console), give the site's own "
        "(nvidia_driver.signing), or switch Secure Boot off"
    )
    return fail("Secure Boot off, or the DKMS key enrolled", "Secure Boot is on, the DKMS key is not enrolled", fix)


def _judge_precompiled(ctx: Ctx) -> Outcome:
    """Return the outcome for precompiled modules: Ubuntu's are signed as its kernel is, NVIDIA's for dnf with a key
    that no firmware has by itself."""
    # https://github.com/NVIDIA/yum-packaging-precompiled-kmod/issues/67
    if family(ctx.facts.get(system.OS_RELEASE)) == "debian":
        return ok("Secure Boot is on, and precompiled modules are signed by Canonical, as the kernel is")
    fix = "build: dkms, with nvidia_driver.signing and an enrolled certificate; or switch Secure Boot off"
    message = "Secure Boot is on, and NVIDIA has signed its precompiled modules with a key of its own"
    return fail("Secure Boot off, or modules signed with an enrolled key", message, fix)


@check(
    "nvidia_driver.signing_tool",
    *(system.OS_RELEASE, PACKAGES, INDEX),
    fields=("signing",),
    moment="preflight",
    evidence="dkms --version; apt-cache policy dkms; dnf info dkms; zypper info dkms",
)
def signing_tool(ctx: Ctx) -> Outcome:
    """DKMS can be given the site's key: it reads drop-ins of its settings since 3.0.4."""
    if not ctx.fragment.signing.key_file:
        return not_asked("DKMS signs with its own key")
    if served(ctx.host, ctx.fragment):
        return not_asked(f"{ctx.fragment.build_host} signs")
    offered = ctx.facts.get(INDEX).get("dkms", [])
    version = versions(ctx.facts).get("dkms") or (offered[0] if offered else "")
    expected = f"DKMS {DKMS_SINCE} or newer"
    if not version:
        return skip("the host's package lists have no DKMS: apply refuses a host without")
    if resolve.order(resolve.upstream(version)) < resolve.order(DKMS_SINCE):
        fix = "no signing for this host: its DKMS signs with /var/lib/shim-signed/mok/MOK.priv where that is"
        return fail(expected, f"DKMS {version}, which accepts no key but its own", fix)
    return ok(f"DKMS {version}", expected)


def _list_unsigned(kernels: Sequence[str], modules: Sequence[Signature], serial: str) -> Iterator[str]:
    """Yield what these kernels have not, or not signed with this certificate."""
    having = {module.kernel for module in modules}
    yield from (f"{kernel}: no NVIDIA module" for kernel in kernels if kernel not in having)
    for module in modules:
        if module.kernel in kernels and module.serial != serial:
            signer = f"signed by {module.signer} ({module.serial})" if module.serial else "not signed"
            yield f"{module.kernel}: {module.module} is {signer}"


@check(
    "nvidia_driver.signed",
    *(MODULE_SIGNING, modules.KERNELS, NEXT_BOOT, system.OS_RELEASE),
    *(house.SECURE_BOOT, ENROLLED, system.CONTAINER),
    fields=("signing",),
    moment="next-boot",
    evidence="modinfo nvidia | grep -E '^(signer|sig_key)'; mokutil --list-enrolled; cat "
    "/etc/dkms/framework.conf.d/*.conf",
)
def signed(ctx: Ctx) -> Outcome:
    """The modules of every kernel that can boot are signed with the site's key, and DKMS will sign those of the next
    kernel with it. Without such a key, and with Secure Boot on, those of the kernels that start next are signed with an
    enrolled key."""
    signing, state = ctx.fragment.signing, ctx.facts.get(MODULE_SIGNING)
    elsewhere = served(ctx.host, ctx.fragment)
    if not signing.key_file or (elsewhere and (state.written or state.key)):
        if state.written or state.key:
            left = SETTINGS_FILE if state.written else KEY_FILE
            return fail("no site key here", f"{left} is left of one", "gpuprov apply removes it")
        return _judge_without_key(ctx, state.modules)
    certificate = certificates.of_file(signing.certificate_file)
    expected = f"signed with the certificate {certificate['serial']} ({signing.certificate_file})"
    problem = (
        "" if elsewhere else _explain_key_fault(state.key, state.certificate == certificate["content"], pair=state.pair)
    )
    if problem:
        change = Change(kind="file", name=KEY_FILE, after="the site's key")
        return fail(expected, problem, "gpuprov apply", changes=[change])
    settings = {"mok_signing_key": KEY_FILE, "mok_certificate": CERTIFICATE_FILE}
    wrong = [
        f"{name} is {state.settings.get(name, 'not set')}"
        for name in settings
        if state.settings.get(name) != settings[name]
    ]
    if wrong and not elsewhere:
        fix = "gpuprov apply; another file of /etc/dkms/framework.conf.d that is read later wins: remove its line"
        return fail(f"DKMS signs with {KEY_FILE}", "; ".join(wrong), fix)
    targets = [kernel.release for kernel in built_here(ctx.fragment, ctx.facts)]
    bad = list(_list_unsigned(targets, state.modules, certificate["serial"]))
    if bad or not targets:
        changes = [Change(kind="module", name=problem.partition(":")[0], after="signed") for problem in bad]
        return fail(expected, "; ".join(bad) or "no kernel found", "gpuprov apply signs them", changes=changes)
    if not elsewhere and state.pair is None:
        way = f"{words(ctx.facts.get(system.OS_RELEASE)).install} openssl"
        return skip(f"without openssl it is unknown whether {KEY_FILE} is the key of {CERTIFICATE_FILE}; {way}")
    return ok(f"{counted(len(state.modules), 'module')} of {' '.join(targets)}", expected)


def _judge_without_key(ctx: Ctx, signatures: Iterable[Signature]) -> Outcome:
    """Return the outcome without a key of the site: whether Secure Boot allows loading the modules of the kernels that
    start next."""
    ahead = coming(ctx.facts)
    if ctx.facts.get(system.CONTAINER) or not ctx.facts.get(house.SECURE_BOOT) or ahead is None:
        return not_asked("DKMS signs with its own key")
    expected = "modules that the next boot loads with Secure Boot on"
    next_ones = {kernel.release for kernel in ahead.each}
    relevant = [signature for signature in signatures if signature.kernel in next_ones]
    if not relevant:
        return skip(f"no NVIDIA module of {' '.join(sorted(next_ones))}")
    fix = "nvidia_driver.signing, with a certificate that is enrolled; or switch Secure Boot off"
    if unsigned := [
        f"{signature.kernel}: {signature.module} is not signed" for signature in relevant if not signature.serial
    ]:
        return fail(expected, f"{'; '.join(unsigned)}: this kernel refuses it", fix)
    by = sorted({(signature.signer, signature.serial) for signature in relevant})
    named = ", ".join(f"{signer} ({serial})" for signer, serial in by)
    if ctx.fragment.build == "precompiled" and family(ctx.facts.get(system.OS_RELEASE)) == "debian":
        return ok(f"{counted(len(relevant), 'module')}, signed by {named}, as the kernel is", expected)
    enrolled = ctx.facts.get(ENROLLED)
    if {serial for _, serial in by} <= enrolled.serials:
        return ok(f"{counted(len(relevant), 'module')}, signed by {named}, whose certificate is enrolled", expected)
    if not enrolled.whole:
        return skip(f"signed by {named}: mokutil cannot say here whether that certificate is enrolled")
    known = f"enrol its certificate (mokutil --import FILE, reboot, confirm at the console); or {fix}"
    return fail(expected, f"signed by {named}, and no enrolled certificate has that serial number", known)


def _explain_key_fault(key: str, certificate: bool, *, pair: bool | None) -> str:
    """Return what is wrong with the key on the host; empty if nothing is."""
    if not key:
        return f"{KEY_FILE} is not on the host"
    if key != KEY_STATE:
        return f"{KEY_FILE} is of {key}, and must be of {KEY_STATE}"
    if not certificate:
        return f"{CERTIFICATE_FILE} on the host is another certificate, or none"
    return "" if pair is not False else f"{KEY_FILE} is not the key of {CERTIFICATE_FILE}"


CHECKS = (signed,)
PREFLIGHT = (secure_boot, signing_tool)
