"""Checks of a compute node of Slurm: what must be there first, and whether slurmd has the GPUs as the spec says."""

from collections import Counter
from collections.abc import Sequence

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Change, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.driver import explain_absent_driver
from gpuprov.capabilities.slurm import containers
from gpuprov.capabilities.slurm.fragment import Ctx, devices, make_request
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus import mig
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.host.slurm import HEALTH, SLURM, Slurm
from gpuprov.host_code.at_boot import slurm as onhost
from gpuprov.host_code.at_boot.program import Refused

CONF = f"{onhost.FOLDER}/slurm.conf"
OF_MACHINE = (system.CONTAINER, nvidia.DRIVER)
# Milliseconds that a health check may take: slurmd runs it on all nodes at once.
QUICK = 2000


@check("slurm.node", SLURM, moment="preflight", evidence=f"slurmd -V; ls -l {onhost.FOLDER}")
def node(ctx: Ctx) -> Outcome:
    """The host has slurmd, and slurm.conf in /etc/slurm: a node that gets its files from slurmctld reads no gres.conf
    of its own."""
    state = ctx.facts.get(SLURM)
    expected = f"slurmd, and {CONF}"
    if not state.slurmd:
        return fail(
            expected,
            "slurmd is not installed",
            "install your cluster's version of it (Debian, Ubuntu: slurmd); or slurm: false",
        )
    if state.settings is None:
        fix = (
            "put the cluster's slurm.conf there; for a configless node set GPUs in slurmctld's gres.conf, and "
            "slurm: false"
        )
        return fail(expected, f"{state.slurmd}, and no {CONF}", fix)
    return ok(f"{state.version or state.slurmd}, {CONF}")


@check("slurm.autodetect", SLURM, fields=("gres",), moment="preflight", evidence="find / -xdev -name gpu_nvml.so")
def autodetect(ctx: Ctx) -> Outcome:
    """slurmd was built with NVML, if AutoDetect=nvml is asked for: another one stops with an error, or finds no GPU."""
    if ctx.fragment.gres != "nvml":
        return not_asked(f"gres: {ctx.fragment.gres}")
    state = ctx.facts.get(SLURM)
    if not state.nvml:
        fix = "gres: auto or files; or a slurmd that was built where NVML's header is (slurm's --with-nvml)"
        return fail(
            "a slurmd with gpu_nvml.so", f"{state.version or 'slurmd'} without gpu_nvml.so in its PluginDir", fix
        )
    return ok(f"{state.version} with gpu_nvml.so")


@check("slurm.own", SLURM, fields=("gres",), moment="preflight", evidence=f"head -n 1 {onhost.GRES}")
def own(ctx: Ctx) -> Outcome:
    """gres.conf is gpuprov's, or does not exist: one written by another tool is not overwritten."""
    if ctx.fragment.gres == "site":
        return not_asked("gres: site")
    if not ctx.facts.get(SLURM).slurmd:
        return skip("slurmd is not installed: see slurm.node")
    text = ctx.facts.get(SLURM).gres_conf
    if text and not text.startswith(onhost.MARK):
        fix = f"mv {onhost.GRES} {onhost.GRES}.before, if gpuprov should write it; else gres: site"
        return fail(f"{onhost.GRES} of gpuprov's, or none", "one written by another tool", fix)
    return ok(f"{onhost.GRES} of gpuprov's" if text else f"no {onhost.GRES} yet")


@check(
    "slurm.gres",
    *(SLURM, mig.STATE, mig.CAPABILITIES, pci.NVIDIA_FUNCTIONS, *OF_MACHINE),
    fields=("gres", "type", "shards"),
    evidence=f"slurmd -G; cat {onhost.GRES}; nvidia-smi -L",
)
def gres(ctx: Ctx) -> Outcome:
    """slurmd makes of slurm.conf and gres.conf exactly the GPUs, MIG devices and shards that the host has and the spec
    asks for."""
    if not pci.driven(ctx.facts.get(pci.NVIDIA_FUNCTIONS)):
        return skip("no NVIDIA GPU on the PCI bus")
    slurm, state = ctx.facts.get(SLURM), ctx.facts.get(mig.STATE)
    if not slurm.slurmd:
        return fail("slurmd", "slurmd is not installed", "see slurm.node")
    if reason := explain_absent_driver(ctx.facts):
        return skip(reason)
    if state.complaint or not state.gpus:
        return fail("the GPUs that NVML lists", state.complaint or "NVML lists no GPU", "see nvidia_driver.loaded")
    options = make_request(ctx)
    try:
        here = devices(ctx, options)
    except Refused as problem:
        return fail("a device file for each MIG device", str(problem), "see mig.capabilities")
    kinds = Counter(device.kind for device in here)
    named = [f"gpu{f':{kind}' if kind else ''}:{count}" for kind, count in kinds.items()]
    named += [f"shard:{options['shards'] * len(here)}"] * bool(options["shards"])
    expected = ",".join(named)
    text = onhost.text(options, here)
    if options["gres"] != "site" and slurm.gres_conf != text:
        change = Change(kind="file", name=onhost.GRES, before=slurm.gres_conf, after=text)
        what = "another text" if slurm.gres_conf else "absent"
        return fail(expected, f"{onhost.GRES}: {what}", APPLY, changes=[change])
    return _compare_gres(slurm, here, options, expected)


def _compare_gres(slurm: Slurm, here: Sequence[onhost.Device], options: onhost.Config, expected: str) -> Outcome:
    """Compare what slurmd makes of its files with the host's devices."""
    typed = options["gres"] == "files"
    want = Counter((device.kind if typed else "", frozenset(device.files)) for device in here)
    has = Counter((gre.kind if typed else "", frozenset(gre.files)) for gre in slurm.gres if gre.name == "gpu")
    shards = {gre.files[0]: gre.count for gre in slurm.gres if gre.name == "shard" and gre.count}
    if has == want and (not options["shards"] or shards == {device.files[0]: options["shards"] for device in here}):
        return ok(expected)
    if any(len(gre.files) == 1 and "/nvidia-caps/" in gre.files[0] for gre in slurm.gres):
        message = "slurmd takes each device file of a MIG device for a GPU of its own"
        fix = f"take shard and mps out of GresTypes in {CONF} of the cluster, as Slurm 22.05 needs it"
        return fail(expected, message, fix)
    more = f" and {sum(shards.values())} shards" * bool(options["shards"])
    message = "; ".join(slurm.complaints[-2:]) or f"slurmd finds {counted(has.total(), 'GPU')}{more}"
    types = "GresTypes=gpu,shard" if options["shards"] else "GresTypes=gpu"
    printed = "" if typed else ", with the types that slurmd -G prints"
    fix = f"in {CONF} of the cluster: {types}, and Gres={expected} for this node{printed}"
    return fail(expected, message[:300], f"{fix}; then scontrol reconfigure")


@check(
    "slurm.constrained", SLURM, fields=("constrain_devices",), evidence=f"grep -iE 'TaskPlugin|ProctrackType' {CONF}"
)
def constrained(ctx: Ctx) -> Outcome:
    """slurm.conf has the plugins without which ConstrainDevices does nothing: task/cgroup, and proctrack/cgroup."""
    settings = ctx.facts.get(SLURM).settings
    if not ctx.fragment.constrain_devices:
        return not_asked("constrain_devices: false")
    if settings is None:
        return fail(CONF, f"no {CONF}", "see slurm.node")
    tasks, tracking = settings.get("taskplugin", ""), settings.get("proctracktype", "")
    expected = "TaskPlugin=task/cgroup, ProctrackType=proctrack/cgroup"
    lacking = ["TaskPlugin=task/affinity,task/cgroup"] * ("cgroup" not in tasks)
    lacking += ["ProctrackType=proctrack/cgroup"] * (tracking not in ("", "proctrack/cgroup", "cgroup"))
    if lacking:
        message = (
            f"TaskPlugin={tasks or 'none'}, ProctrackType={tracking or 'proctrack/cgroup'}: a job can use every GPU"
        )
        return fail(
            expected, message, f"in {CONF} of the cluster: {', '.join(lacking)}; then restart slurmctld and slurmd"
        )
    return ok(expected)


@check(
    "slurm.health_check",
    SLURM,
    *OF_MACHINE,
    fields=("health_check",),
    evidence=f"grep -i HealthCheck {CONF}; {HEALTH}; echo $?",
)
def health_check(ctx: Ctx) -> Outcome:
    """slurm.conf runs gpuprov's health check at intervals; here it answers within two seconds, and finds the GPUs fit
    for work."""
    if not ctx.fragment.health_check:
        return not_asked("health_check: false")
    state = ctx.facts.get(SLURM)
    settings, judged = state.settings or {}, state.judged
    if judged is None:
        return fail(HEALTH, "not there", APPLY)
    if judged.status and (reason := explain_absent_driver(ctx.facts)):
        return skip(reason)
    if judged.status:
        return fail(
            "GPUs fit for work",
            judged.output or f"the health check ended with {judged.status}",
            "gpuprov health",
        )
    if judged.milliseconds > QUICK:
        return fail(
            f"an answer within {QUICK} ms",
            f"{judged.milliseconds} ms",
            "persistence: {}, so that the driver stays loaded",
        )
    program, interval = settings.get("healthcheckprogram", ""), settings.get("healthcheckinterval", "0")
    if program != HEALTH or interval == "0":
        message = f"HealthCheckProgram={program or 'none'}, HealthCheckInterval={interval}"
        fix = (
            f"in {CONF} of the cluster: HealthCheckProgram={HEALTH}, HealthCheckInterval=300; then scontrol reconfigure"
        )
        return fail(f"HealthCheckProgram={HEALTH}", message, fix)
    return ok(f"every {interval} s, in {judged.milliseconds} ms")


CHECKS = (node, autodetect, own, gres, constrained, health_check, *containers.CHECKS)
