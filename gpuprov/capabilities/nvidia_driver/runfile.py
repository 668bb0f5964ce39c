"""`source: runfile`: the driver of NVIDIA's own installer. No package owns it, so the checks of packages work
differently."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping

from gpuprov.capabilities.base import Change, Check, Context, Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.nvidia_driver.fragment import BASE_PROBES, NvidiaDriver, Runfile, decide
from gpuprov.capabilities.nvidia_driver.now import LISTED
from gpuprov.capabilities.nvidia_driver.preflight import refusals
from gpuprov.catalog.drivers.any import build_patterns
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.driver import nvidia, runfile
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.host.family import words
from gpuprov.facts.probes.kernel import modules
from gpuprov.facts.probes.software.packages import PACKAGES, Package
from gpuprov.host_code.packages.other_driver import RECORD
from gpuprov.spec import named
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Problem, report_under

Ctx = Context[NvidiaDriver]
Answer = Callable[[Ctx], Outcome]
HERE = "nvidia_driver"
problem = report_under(HERE)
EXACT = re.compile(r"\d{3}(\.\d+){1,2}")
# File names as NVIDIA gives them: https://download.nvidia.com/XFree86/Linux-x86_64/
# NVIDIA-Linux-x86_64-535.261.03.run
NAMED = re.compile(r"NVIDIA-Linux-\w+-(\d{3}(?:\.\d+){1,2})(?:[-\w]*)\.run\Z")
NEEDED = (*BASE_PROBES, runfile.RUNFILE, nvidia.DRIVER, system.CONTAINER)
IN_TREE = ("nouveau", "NovaCore")
# The first branch whose installer has --skip-module-load.
UNTRIED = 550
NOTHING = "nothing to hold: no upgrade moves what no package owns; see nvidia_driver.runfile_alone"


def is_requested(driver: NvidiaDriver) -> bool:
    """Return whether the driver comes from a .run file."""
    return driver.source == "runfile"


def problems(host: HostSpec, driver: NvidiaDriver) -> Iterable[Problem]:
    """Yield what a .run file lacks, and what contradicts it."""
    given, path = driver.runfile, (HERE, "runfile")
    if not is_requested(driver):
        return
    if not EXACT.fullmatch(driver.version):
        message = f'is "{driver.version}", and a runfile has exactly one'
        yield problem("version", message, 'that one, like version: "580.95.05"')
    if bool(given.url) == bool(given.file):
        fault = "both a url and a file" if given.url else "neither a url nor a file"
        fix = (
            "runfile: {url: https://.../NVIDIA-Linux-x86_64-VERSION.run, sha256: ...}, or file: one beside the "
            "inventory"
        )
        yield Problem(path=path, message=f"nvidia_driver.runfile has {fault}", fix=fix)
    elif given.file and (why := named.explain_unusable(given.file, given.sha256)):
        message = f"nvidia_driver.runfile.file {given.file} {why}"
        yield Problem(path=(*path, "file"), message=message, fix="put it there, or name its url")
    name = NAMED.search(given.url or given.file)
    if name and EXACT.fullmatch(driver.version) and name[1] != driver.version:
        message = f"nvidia_driver.runfile is named {name[0]}, and version is {driver.version}"
        yield Problem(path=path, message=message, fix=f'the file of that version, or version: "{name[1]}"')
    if not given.sha256:
        message = "nvidia_driver.runfile has no sha256: root would run whatever is in the file"
        yield Problem(
            path=path, message=message, fix="sha256: what sha256sum says of it, compared with NVIDIA's own page"
        )
    if driver.build_host:
        message = f"is {driver.build_host}, and a runfile's modules are built on each host"
        yield problem("build_host", message, "no build_host, or a source of packages")
    if driver.repository.url:
        yield problem("repository", "is not used by source runfile", "leave it out")
    if "fabric_manager" in host.capabilities:
        message = "fabric_manager follows the driver's packages, and nvidia_driver.source is runfile, which has none"
        fix = "source: nvidia, whose repository has both in one version; or fabric_manager: false"
        yield Problem(path=(HERE, "source"), message=message, fix=fix)


def exported(facts: Facts) -> NvidiaDriver | None:
    """Return the driver that a runfile installed; if gpuprov did not install it, the rules ask for the file and its
    checksum."""
    current = facts.get(runfile.RUNFILE)
    if not current.version:
        return None
    options = facts.get(modules.MODPROBE).options.get("nvidia", {})
    given = Runfile(**{key: current.ours.get(key, "") for key in ("url", "file", "sha256")})
    return NvidiaDriver(
        version=current.version,
        source="runfile",
        runfile=given if current.ours.get("version") == current.version else Runfile(),
        kernel_modules="open" if current.open and all(current.open.values()) else "proprietary",
        module_parameters={k: v for k, v in options.items() if k.startswith("NVreg_")},
    )


def driver_packages(facts: Facts) -> dict[str, Package]:
    """Return the installed packages of any driver: each would overwrite files of the .run file, or already has."""
    release = facts.get(system.OS_RELEASE)
    names, sources = build_patterns(release.id, release.version)
    installed = facts.get(PACKAGES)
    return {
        n: p
        for n, p in installed.items()
        if n == p.name and (re.fullmatch(names, n) or re.fullmatch(sources, p.source))
    }


def alone(ctx: Ctx) -> Outcome:
    """Return the outcome of whether no package of a driver is installed."""
    installed = driver_packages(ctx.facts)
    if installed:
        purge = words(ctx.facts.get(system.OS_RELEASE)).purge
        listed = " ".join(f"{name}={package.version}" for name, package in installed.items())
        return fail("no package of a driver", listed, f"remove them: {purge} {' '.join(installed)}; then gpuprov apply")
    return ok("no package of a driver")


def leftovers(ctx: Ctx) -> Outcome:
    """Return the outcome for leftovers: packages and a .run file overwrite each other's files, so one is removed before
    the other is installed."""
    return alone(ctx)


def resolvable(ctx: Ctx) -> Outcome:
    decision, current = decide(ctx.fragment, ctx.facts), ctx.facts.get(runfile.RUNFILE)
    expected = f"{decision.version} ({decision.flavour}) of a runfile"
    if decision.problem:
        return fail(expected, decision.problem, decision.fix)
    if refused := refusals(ctx.facts, decision):
        return fail(expected, "; ".join(refused), "gpuprov catalog gpus MODEL says which branches know a GPU")
    held = any(fact.driver in IN_TREE for fact in ctx.facts.get(pci.NVIDIA_FUNCTIONS))
    if (
        held
        and current.version != decision.version
        and int(decision.branch) < UNTRIED
        and not ctx.facts.get(system.CONTAINER)
    ):
        message = (
            "a GPU is bound to nouveau, and NVIDIA's installer of a branch below 550 ends where it cannot "
            "load its modules"
        )
        return fail(
            expected, message, "gpuprov apply --only kernel,nouveau, reboot, then apply again; or version 550 or newer"
        )
    changes: list[Change] = []
    if current.version != decision.version or _list_wrong_flavour(ctx):
        changes = [Change(kind="package", name="NVIDIA's runfile", before=current.version, after=decision.version)]
    summary = f"{decision.version} ({decision.flavour}: {decision.reason})"
    return Outcome(
        status="pass",
        expected=expected,
        found=summary,
        changes=tuple(changes),
        version=decision.version,
        installed=current.version,
    )


def packages(ctx: Ctx) -> Outcome:
    current, version = ctx.facts.get(runfile.RUNFILE), ctx.fragment.version
    if current.unreadable and not current.version:
        return fail(version, f"{RECORD} may not be read", "let gpuprov become root on the host")
    if current.version != version:
        return fail(f"{version} of a runfile", current.version or "no runfile installation", "gpuprov apply")
    return ok(f"{current.version} of a runfile", version)


def flavour(ctx: Ctx) -> Outcome:
    decision, current, loaded = (
        decide(ctx.fragment, ctx.facts),
        ctx.facts.get(runfile.RUNFILE),
        ctx.facts.get(nvidia.DRIVER),
    )
    expected = f"{decision.flavour}: {decision.reason}"
    if not current.open:
        return fail(expected, "no kernel has an NVIDIA module", "gpuprov apply")
    if wrong := _list_wrong_flavour(ctx):
        other = "proprietary" if decision.flavour == "open" else "open"
        return fail(expected, f"{other} for {' '.join(wrong)}", "gpuprov apply installs the other flavour")
    running = "open" if loaded.open else "proprietary"
    if loaded.version and running != decision.flavour and not ctx.facts.get(system.CONTAINER):
        fix = "the module on disk is right: reload it or reboot"
        return fail(expected, f"loaded: {running}", fix, reboot="the other flavour is loaded")
    return ok(decision.flavour, expected)


def _list_wrong_flavour(ctx: Ctx) -> list[str]:
    is_open = decide(ctx.fragment, ctx.facts).flavour == "open"
    return [kernel for kernel, other in ctx.facts.get(runfile.RUNFILE).open.items() if other != is_open]


def source(ctx: Ctx) -> Outcome:
    current = ctx.facts.get(runfile.RUNFILE)
    if not current.programs:
        return fail("runfile", "no runfile installation", "gpuprov apply")
    return ok(f"runfile: {' '.join(current.programs)}", "runfile")


def source_offered(ctx: Ctx) -> Outcome:
    return ok(ctx.fragment.runfile.url or ctx.fragment.runfile.file, "runfile")


def held(_ctx: Ctx) -> Outcome:
    return ok(NOTHING)


ANSWERS: Mapping[str, Answer] = {
    f"{HERE}.{answer.__name__}": answer
    for answer in (resolvable, leftovers, packages, flavour, held, source, source_offered)
}


def either(check: Check) -> Check:
    """Return the check, which examines a .run file's driver if the spec asks for that."""
    answer = ANSWERS.get(check.id)
    if answer is None:
        return check

    def run(ctx: Ctx) -> Outcome:
        return answer(ctx) if is_requested(ctx.fragment) else check.run(ctx)

    probes = (*check.probes, *(each for each in NEEDED if each not in check.probes))
    return dataclasses.replace(check, run=run, probes=probes)


@check(
    "nvidia_driver.runfile", runfile.RUNFILE, fields=("runfile",), evidence=f"cat {runfile.OURS}; head -n 1 {RECORD}"
)
def recorded(ctx: Ctx) -> Outcome:
    """The driver was installed from the file whose checksum the spec gives."""
    if not is_requested(ctx.fragment):
        return not_asked()
    current, given = ctx.facts.get(runfile.RUNFILE), ctx.fragment.runfile.sha256.lower()
    known = current.ours.get("sha256", "")
    if known != given:
        # Of another version it comes anyway, and nvidia_driver.resolvable says so.
        same = current.version == ctx.fragment.version
        changes = [Change(kind="package", name="NVIDIA's runfile", before=known[:12], after=given[:12])] * same
        origin = known or "not known of which file: gpuprov did not install it"
        return fail(given, origin, "gpuprov apply installs the file of the spec", changes=changes)
    return ok(given)


@check("nvidia_driver.runfile_alone", *BASE_PROBES, fields=("source",), moment="next-boot", evidence=LISTED)
def runfile_alone(ctx: Ctx) -> Outcome:
    """No driver package is installed beside a runfile's driver: an upgrade that brings libnvidia-... would replace its
    files."""
    return alone(ctx) if is_requested(ctx.fragment) else not_asked("the driver comes from packages")


CHECKS = (recorded, runfile_alone)
