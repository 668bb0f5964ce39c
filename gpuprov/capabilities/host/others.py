"""Checks of what others than gpuprov and the packages did to a host: programs replaced, folders opened to every
user."""

import re
from collections.abc import Iterator
from typing import Any

from gpuprov.capabilities.answers import environment_outcome
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok
from gpuprov.core.sanitize import counted, fold_paths
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.environment import ENVIRONMENT
from gpuprov.facts.probes.host.family import words
from gpuprov.facts.probes.host.rivals import HANDS, RIVALS
from gpuprov.facts.probes.software.programs import PROGRAMS
from gpuprov.hardware import environment
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec

Ctx = Context[Any]


@check("host.programs", PROGRAMS, system.OS_RELEASE, evidence=PROGRAMS.evidence)
def programs(ctx: Ctx) -> Outcome:
    """The programs and units of NVIDIA's packages, and of RDMA's, have the content that their packages brought, and no
    other program of the same name comes before one of them on the PATH of systemd or of a container engine."""
    known = ctx.facts.get(PROGRAMS)
    if not known.count:
        return not_asked("no NVIDIA or RDMA package installs a program or unit here")
    wrong = [f"{path}: not as its package brought it" for path in fold_paths(each.path for each in known.changed)]
    wrong += [f"{other} comes before {path}, and is another program" for path, other in known.shadows.items()]
    expected = f"{counted(known.count, 'program')} and units match their packages, and none is shadowed"
    if not wrong:
        return ok(expected)
    packages = list(dict.fromkeys(each.package for each in known.changed))
    ways = [f"{words(ctx.facts.get(system.OS_RELEASE)).reinstall} {' '.join(packages)}"] * bool(packages)
    ways += [f"take away {' '.join(known.shadows.values())}, or rename it"] * bool(known.shadows)
    return fail(expected, "; ".join(wrong), "; ".join(ways))


@check("host.root_only", HANDS, moment="next-boot", evidence=HANDS.evidence)
def root_only(ctx: Ctx) -> Outcome:
    """Root alone can write the folders, and the files in them, that root runs or reads at a boot: systemd's units and
    drop-ins, settings of modules, rules of udev, /usr/local/bin. Who else can is root after the next boot."""
    writable, expected = ctx.facts.get(HANDS), "only root can write units, boot settings and programs"
    if not writable:
        return ok(expected)
    described = [
        f"{each.path}: mode {each.mode}" + (f", of uid {each.owner}" * (each.owner != "0")) for each in writable
    ]
    shown = "; ".join(described[:6]) + (f"; and {len(described) - 6} more" if len(described) > 6 else "")
    paths = " ".join(each.path for each in writable[:6])
    owned = [each.path for each in writable if each.owner != "0"]
    ways = [
        f"see who changed what in them (ls -la), then chmod o-w {paths}",
        *[f"chown root: {' '.join(owned[:6])}"] * bool(owned),
    ]
    return fail(expected, shown, "; ".join(ways))


@check("host.environment", *environment.PROBES, evidence=ENVIRONMENT.evidence)
def variables(ctx: Ctx) -> Outcome:
    """No variable that is set for everybody (logins, PAM, systemd's services, ld.so.preload) hides GPUs from programs,
    has them join another MPS daemon, or gives them libraries other than the installed driver's."""
    return environment_outcome(ctx)


# Commands against a capability, and what they do: nvidia-smi(1), systemctl(1).
EFFECTS: tuple[tuple[str, re.Pattern[str], str], ...] = tuple(
    (capability, re.compile(pattern), what)
    for capability, pattern, what in (
        (
            "mig",
            r"nvidia-smi\b.*\s(?:(?:-mig|--multi-instance-gpu)[= ]|mig\s.*-[cd][cg]i)|"
            r"nvidia-mig-(?:parted\s+apply|manager)",
            "changes MIG",
        ),
        (
            "persistence",
            r"nvidia-smi\b.*\s(?:-pm|--persistence-mode)[= ](?:0|DISABLED)",
            "switches persistence mode off",
        ),
        (
            "gpu_settings",
            r"nvidia-smi\b.*\s(?:-pl|-[lr]gc|-[lr]mc|-r?ac|-e|--power-limit|--ecc-config)\b",
            "changes settings",
        ),
        ("gpu_settings", r"nvidia-smi\b.*\s(?:-c|--compute-mode)[= ]", "changes the compute mode"),
        ("mps", r"nvidia-smi\b.*\s(?:-c|--compute-mode)[= ]", "changes the compute mode"),
        ("mps", r"nvidia-cuda-mps-control\s+-[df]", "starts another MPS daemon"),
        ("pcie", r"setpci\s[^;|&]*=", "changes PCIe settings"),
        ("nvidia_driver", r"(?:rmmod|modprobe\s+-r)\s.*\bnvidia", "unloads the driver"),
        *(
            (
                capability,
                rf"systemctl\s[^;|&]*\b(?:stop|disable|mask|kill)\s(?:[^;|&]*\s)?(?:{units})(?:\.\w+)?(?![\w-])"
                rf"|\bservice\s+(?:{units})\s+stop\b",
                "stops a unit of it",
            )
            for capability, units in (
                ("persistence", "nvidia-persistenced"),
                ("fabric_manager", "nvidia-fabricmanager|nvidia-imex"),
                ("dcgm", "nvidia-dcgm|dcgm"),
                ("container_toolkit", "docker|containerd|crio|nvidia-cdi-refresh"),
                ("rdma", "openibd"),
            )
        ),
    )
)
# Commands that change what the block roce sets.
ROCE = re.compile(
    r"cma_roce_(?:tos|mode)\s[^;|&]*-[tm]\b|mlnx_qos\s[^;|&]*--?(?:trust|pfc|dscp2prio|f)\b"
    r"|\bdcb\s+(?:app|pfc)\s+(?:add|set|replace|flush|del)\b"
)
GOVERNOR = re.compile(r"cpupower\s[^;|&]*frequency-set\s[^;|&]*-g|cpufreq-set\s[^;|&]*-g|>\s*\S*/scaling_governor")


def list_effects(host: HostSpec) -> Iterator[tuple[str, re.Pattern[str], str]]:
    """Yield the capabilities of a host, each with a pattern of commands against it, and with what they do."""
    yield from (effect for effect in EFFECTS if effect[0] in host.capabilities)
    roce = getattr(host.capabilities.get("rdma"), "roce", None)
    if roce and roce != type(roce)():
        yield "rdma", ROCE, "changes settings of RoCE"
    if isinstance(kernel := host.capabilities.get("kernel"), Kernel):
        if kernel.cpu_governor != "keep":
            yield "kernel", GOVERNOR, "sets another CPU frequency governor"
        for key in kernel.sysctl:
            path = re.escape(key.translate(str.maketrans("./", "/.")))
            pattern = rf"sysctl\s[^;|&]*(?<![\w.]){re.escape(key)}\s*=|>\s*/proc/sys/{path}\b"
            yield "kernel", re.compile(pattern), f"sets {key}"


@check("host.rivals", RIVALS, moment="next-boot", evidence=RIVALS.evidence)
def rivals(ctx: Ctx) -> Outcome:
    """Nothing that others have a boot or cron run (rc.local, crontabs, hooks of the network, udev rules, units of a
    site) changes what the spec sets on GPUs, of RoCE, PCIe or the kernel, or stops the units of its capabilities."""
    expected = "no other command overrides what the spec sets"
    effects = [*list_effects(ctx.host)]
    wrong = {
        f"{each.file} {what} ({capability}): {each.line[:120]}": each.file
        for each in ctx.facts.get(RIVALS)
        for capability, pattern, what in effects
        if pattern.search(each.line)
    }
    if not wrong:
        return ok(expected)
    files = ", ".join(dict.fromkeys(wrong.values()))
    return fail(expected, "; ".join(wrong), f"take the command out of {files}, and say it in the spec")


CHECKS = (programs, root_only, variables, rivals)
