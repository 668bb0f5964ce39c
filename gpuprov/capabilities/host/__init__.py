"""`host`: the house's own block of every spec (`gpu`, `reboot`), and the checks that must pass before anything is
changed."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated

import msgspec

from gpuprov.capabilities.base import Capability, Check, Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.host import board, login, others, recipe
from gpuprov.capabilities.host.absence import find_contradictions
from gpuprov.capabilities.host.nvswitches import nvswitch_fabric
from gpuprov.capabilities.host.space import list_rooms, space
from gpuprov.capabilities.package_sources import package_sources
from gpuprov.catalog import find_distribution
from gpuprov.catalog import gpus as catalogue
from gpuprov.catalog.chips import described
from gpuprov.catalog.distributions import list_supported_names
from gpuprov.catalog.drivers.sets import GPU_SERVICES
from gpuprov.facts.probes.host import house, pci, system
from gpuprov.facts.probes.host.family import family, words
from gpuprov.facts.probes.kernel.first_boot import FIRST_BOOT, FirstBoot
from gpuprov.facts.probes.software import packages
from gpuprov.host_code import first_boot_tools, lock
from gpuprov.host_code.json_members import Json
from gpuprov.host_code.packages import half_configured
from gpuprov.spec import overrides
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec, OnFailure, Reboot
from gpuprov.spec.problem import Problem

# Distributions, by ID, whose packages change by transactional-update, into the snapshot that the next boot takes.
SNAPSHOTS = ("sle-micro", "sl-micro", "sle-micro-rancher", "opensuse-microos", "opensuse-leap-micro")
SNAPSHOTS_FIX = (
    "gpuprov changes the running system: transactional-update pkg install on the host, or SLES 15 or "
    "Leap 15 in its place"
)


class House(Fragment, frozen=True):
    """The parts of a spec that belong to no capability."""

    gpu: Annotated[GpuSpec | None, msgspec.Meta(description="which GPUs the host has: model and count")] = None
    reboot: Annotated[Reboot, msgspec.Meta(description="whether apply may reboot the host")] = "never"
    on_failure: Annotated[
        OnFailure,
        msgspec.Meta(
            description="what apply does with a host that it has changed and that is not green then: nothing, or "
            "rollback to what it was when verify was last green"
        ),
    ] = "nothing"
    recipe: Annotated[
        str,
        msgspec.Meta(
            description="a key of `gpuprov catalog recipes`, or nothing. check warns of each line in which the spec "
            "differs from it"
        ),
    ] = ""


# Values of `gpuprov drain --by`, in words.
SCHEDULERS = {"slurm": "Slurm", "kubernetes": "Kubernetes", "command": "the site's command"}
# What does without the tables of a distribution.
READ = "health, topology, export, show and explain read it"
HANGS = "no watchdog resets a host that hangs"
WATCHDOG = "RuntimeWatchdogSec in /etc/systemd/system.conf has one do so, from when systemd runs"
Ctx = Context[House]


def gpu(driverless: Collection[str]) -> Check:
    """Return the check of the GPUs, which knows the capabilities that make sense without them."""

    @check("host.gpu", pci.NVIDIA_FUNCTIONS, system.CONTAINER, fields=("gpu",))
    def judge_gpus(ctx: Ctx) -> Outcome:
        """The GPUs on the PCI bus are those that the spec names: model by PCI id, and count."""
        return _judge_gpu(ctx, needed=not set(ctx.host.capabilities) <= set(driverless))

    return judge_gpus


def _judge_gpu(ctx: Ctx, *, needed: bool) -> Outcome:
    requested = ctx.fragment.gpu
    on_bus = pci.gpus(ctx.facts.get(pci.NVIDIA_FUNCTIONS))
    kind = ctx.facts.get(system.CONTAINER)
    if kind and not on_bus:
        return skip(f"{kind} container: no NVIDIA GPU is visible in it")
    names = [
        model.key if (model := catalogue.find_by_pci_id(f.identifier, f.subsystem)) else described(f.identifier)
        for f in on_bus
    ]
    listed = (
        ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or "no NVIDIA GPU on the PCI bus"
    )
    if gone := [
        f"{function.address} is on the bus, and does not answer (rev ff)" for function in on_bus if function.gone
    ]:
        fix = "restart the host; a GPU that stays away: its seat, its riser, its vendor; gpuprov explain 79"
        return fail("each GPU answers on the bus", "; ".join(gone), fix, action="reboot")
    if requested is None and not on_bus and not needed:
        return skip("no NVIDIA GPU on the PCI bus, and the spec asks for nothing that needs one")
    if requested is None:
        return ok(listed) if on_bus else fail("an NVIDIA GPU", listed, "lspci -nn -d 10de: shows what the bus has")
    model = catalogue.find_gpu(requested.model)
    key = model.key if model else requested.model
    expected = f"{requested.count or 'any number'} x {key}"
    if not names or set(names) != {key} or (requested.count and len(names) != requested.count):
        return fail(
            expected, listed, "a missing GPU: dmesg | grep -E 'NVRM|pci'; a wrong model: correct gpu.model in the spec"
        )
    return ok(listed, expected)


@check("host.reboot_pending", house.REBOOT_REASONS)
def reboot_pending(ctx: Ctx) -> Outcome:
    """No capability waits for a reboot."""
    reasons = ctx.facts.get(house.REBOOT_REASONS)
    if reasons:
        listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        fix = "gpuprov apply --reboot, or reboot: if-needed in the spec"
        return fail("no reboot required", listed, fix, reboot=listed)
    return ok("no reboot required")


@check("host.in_service", house.DRAINED)
def in_service(ctx: Ctx) -> Outcome:
    """The host has been returned to its scheduler if gpuprov drained it. A drained host, as during maintenance, is not
    at fault: it is only unproven that it gets jobs."""
    out = ctx.facts.get(house.DRAINED)
    if out is None:
        return not_asked("gpuprov has not drained it")
    if out.damaged or out.by not in SCHEDULERS or not lock.RUN.fullmatch(out.run):
        why = out.damaged or "no scheduler and run that gpuprov knows"
        return skip(f"gpuprov has drained it, and its note cannot be read: {why}", f"see {house.DRAINED_FILE}")
    since = f"{out.since[:10]} UTC"  # the day alone: what is said of a fleet that was drained in an hour is said once
    return skip(
        f"drained by gpuprov since {since} ({SCHEDULERS[out.by]}, run {out.run}): it gets no jobs", give_back(out)
    )


def give_back(out: house.Drained) -> str:
    """Return how to return a drained host to service."""
    more = " --command COMMAND" if out.by == "command" else ""
    return f"when it is as it should be: gpuprov undrain HOST INVENTORY --by {out.by}{more} --run {out.run}"


@check("host.first_boot", FIRST_BOOT, moment="next-boot", fields=("on_failure",))
def started_again(ctx: Ctx) -> Outcome:
    """The bootloader starts its own default: no boot has failed and made it start the previous system."""
    known: FirstBoot = ctx.facts.get(FIRST_BOOT)
    expected = f"the default of {known.loader}'s menu"
    if known.counted == first_boot_tools.BACK:
        tried = f"{known.tried} did not come up" if known.tried != known.kernel else "what it changed did not come up"
        message = f"{known.kernel} as it was before run {known.run}: {known.found or tried}"
        if known.settled:
            return ok(
                f"{message}; it stays so until a newer kernel than {known.kernel} is gone, or comes up after an apply"
            )
        off = ", without the NVIDIA driver" if known.off else ""
        fix = "see the console's log, then gpuprov rollback; or correct the spec, and gpuprov apply --reboot"
        return fail(expected, f"{message}{off}", fix)
    if ctx.fragment.on_failure != "rollback":
        return not_asked()
    if known.why_not:
        return ok(f"a boot that fails is not undone: {known.why_not}", expected)
    by = "systemd's watchdog resets a host that hangs" if known.watchdog else f"{HANGS}; {WATCHDOG}"
    return ok(f"a boot that fails is undone by {known.loader}; {by}", expected)


@check("host.supported", system.PLATFORM, system.OS_RELEASE, moment="preflight")
def supported(ctx: Ctx) -> Outcome:
    """The host runs Linux, of a distribution that gpuprov supports."""
    platform = ctx.facts.get(system.PLATFORM)
    if platform.system != "Linux":
        return fail("Linux", platform.system, "gpuprov manages Linux hosts only; remove the host from the inventory")
    release = ctx.facts.get(system.OS_RELEASE)
    known = list_supported_names()
    entry = find_distribution(release.id, release.version)
    if entry is None or f"{entry.id} {entry.version_id}" not in known:
        release_name = release.name or release.id
        if entry and entry.support == "read":
            fix = f"{READ}, and verify judges it; for plan and apply: do-release-upgrade, or another image"
            return fail(" or ".join(known), f"{release_name}, which gpuprov reads but does not change", fix)
        if release.id in SNAPSHOTS:
            return fail(
                " or ".join(known), f"{release_name}, whose root file system is a read-only snapshot", SNAPSHOTS_FIX
            )
        fix = f"this distribution is not supported; {READ}. For plan and apply: another image"
        return fail(" or ".join(known), release_name, fix)
    if not release.is_text:
        fix = "correct that byte (iconv -f UTF-8 /etc/os-release shows where it is): Ansible cannot read the file"
        return fail(
            "/etc/os-release in UTF-8, as os-release(5) says", "/etc/os-release has a byte that is not UTF-8", fix
        )
    return ok(release.name)


@check("host.clock", system.CLOCK, moment="preflight")
def clock(ctx: Ctx) -> Outcome:
    """The host's clock agrees with this machine's, within five minutes or as the site says (host_max_clock_skew)."""
    allowed = overrides.get_max_clock_skew(ctx.host.site)
    skew = ctx.facts.get(system.CLOCK) - ctx.facts.read_at
    if abs(skew) > allowed:
        offset = f"{abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}"
        return fail(f"within {allowed} s of this machine", offset, "set the clock: timedatectl set-ntp true")
    return ok(f"within {allowed} s of this machine")


@check("host.packages", packages.AUDIT, house.MARKER, system.OS_RELEASE, moment="preflight")
def package_database(ctx: Ctx) -> Outcome:
    """The package database is consistent, or was left half-way by an unfinished apply, which the next apply repairs,
    unless a package's script asks for a person's decision."""
    complaint, release = ctx.facts.get(packages.AUDIT), ctx.facts.get(system.OS_RELEASE)
    names = half_configured.parse_audit(complaint) if family(release) == "debian" else []
    if complaint and (not ctx.facts.get(house.MARKER) or half_configured.needs_answer(names)):
        message = half_configured.describe_packages(names) if names else " ".join(complaint.split())[:300]
        fix = half_configured.describe_fix(names) if names else words(release).repair
        return fail("a whole package database", message, fix)
    return ok("an apply was interrupted; the next one completes it" if complaint else "whole")


@check("host.receipt", house.RECEIPT, moment="preflight")
def receipt(ctx: Ctx) -> Outcome:
    """The receipt of earlier applies can be read; a damaged one is put aside and everything is applied again."""
    known = ctx.facts.get(house.RECEIPT)
    if known and known.damaged:
        return ok(f"damaged ({known.damaged}): it is put aside, every role runs")
    return ok(f"last apply {known.applied_at}" if known else "never applied")


def rules(host: HostSpec, fragment: House, driverless: Collection[str]) -> Iterable[Problem]:
    yield from recipe.problems(host)
    yield from find_contradictions(host, driverless)
    if fragment.gpu:
        yield from board.problems(host, fragment.gpu)


def tables(capabilities: Sequence[Capability]) -> Mapping[str, Json]:
    """Return the tables that the role `host` decides by."""
    return {
        "gpu_services": GPU_SERVICES,
        "max_clock_skew": overrides.MAX_CLOCK_SKEW,
        "free_space": msgspec.to_builtins(list_rooms(capabilities)),
        "packaged": [capability.name for capability in capabilities if capability.packages],
    }


def capability(capabilities: Sequence[Capability]) -> Capability:
    """Return the block that belongs to no capability, for hosts that can have these."""
    driverless = frozenset(capability.name for capability in capabilities if capability.driverless)
    return Capability(
        name="host",
        summary="which GPUs the host has, whether it may be rebooted, and what must hold before anything is changed",
        fragment=House,
        checks=(
            gpu(driverless),
            nvswitch_fabric(driverless),
            reboot_pending,
            started_again,
            in_service,
            supported,
            *login.CHECKS,
            *others.CHECKS,
            clock,
            package_sources,
            package_database,
            space(capabilities),
            receipt,
        ),
        rules=partial(rules, driverless=driverless),
        unproved={
            "reboot": "a permission, not a state of the host",
            "recipe": "what check compares the spec with, not a state of the host",
        },
        tables=lambda: tables(capabilities),
    )
