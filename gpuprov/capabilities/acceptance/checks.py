"""Checks of acceptance: its tools are installed or can be built, and the last result meets the current thresholds."""

from collections.abc import Iterator

from gpuprov.capabilities.acceptance.fragment import STRESS, Acceptance, folder_of, programs
from gpuprov.capabilities.acceptance.judge import ACROSS, LOOPBACK, describe_measurement, judge, kind
from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import list_changes, move_packages
from gpuprov.catalog import acceptance as catalogue
from gpuprov.facts.probes import acceptance, rdma
from gpuprov.facts.probes.acceptance import BUILD, MPICC, Measurement
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import family
from gpuprov.resources import Difference

Ctx = Context[Acceptance]
ACCEPT = "gpuprov accept"


def needs_rdma(ctx: Ctx) -> bool:
    """Return whether tests between hosts apply to this host: it has an RDMA device, or is to have one."""
    return bool(ctx.fragment.rdma.tests) and (
        "rdma" in ctx.host.capabilities or bool(rdma.list_hcas(ctx.facts.get(rdma.DEVICES)))
    )


def installed(ctx: Ctx) -> tuple[str, ...]:
    """Return the programs that the role installs packages for."""
    stress = (STRESS,) if ctx.fragment.stream.seconds else ()
    return (*(programs(ctx.fragment) if needs_rdma(ctx) else ()), *stress)


def sources(block: Acceptance) -> Iterator[tuple[str, str]]:
    """Yield the tools that are built from source: name and folder."""
    if block.nccl.source.sha256:
        yield "nccl", folder_of(block, "nccl")
    if block.nvbandwidth.source.sha256:
        yield "nvbandwidth", folder_of(block, "nvbandwidth")


@check("acceptance.tools", acceptance.TOOLS, rdma.DEVICES, system.OS_RELEASE, fields=("rdma", "stream"))
def tools(ctx: Ctx) -> Outcome:
    """The programs of the tests between hosts are installed if the host has an RDMA device; and stress-ng for
    stream."""
    needed, present = installed(ctx), ctx.facts.get(acceptance.TOOLS).programs
    if not needed:
        return skip("no RDMA device, or no tests between hosts asked for")
    missing = [name for name in needed if name not in present]
    kin = family(ctx.facts.get(system.OS_RELEASE)) or "debian"
    if missing:
        changes = move_packages(dict.fromkeys(catalogue.list_packages(missing, kin), "installed"))
        return fail(", ".join(needed), f"missing: {', '.join(missing)}", APPLY, changes=changes)
    return ok(", ".join(needed))


@check("acceptance.built", acceptance.TOOLS, fields=("nccl", "nvbandwidth"))
def built(ctx: Ctx) -> Outcome:
    """Every tool that the spec names a source for was built from exactly that archive, and its program finds its
    libraries."""
    requested = list(sources(ctx.fragment))
    if not requested:
        return not_asked("nothing to build: tools are used where they are installed")
    compiled = ctx.facts.get(acceptance.TOOLS).built
    folders = [folder for _, folder in requested]
    expected = ", ".join(folders)
    lacking = [folder for folder in folders if folder.rpartition("/")[2] not in compiled]
    if lacking:
        changes = list_changes(Difference(folder, "", "built") for folder in lacking)
        return fail(expected, f"not built: {', '.join(lacking)}", APPLY, changes=changes)
    for folder in folders:
        if lost := compiled[folder.rpartition("/")[2]]:
            fix = "install the libraries (CUDA, NCCL) again; or remove the folder, then gpuprov apply builds it anew"
            return fail(expected, f"{folder} does not find {', '.join(lost)}", fix)
    return ok(expected)


@check("acceptance.buildable", BUILD, MPICC, acceptance.TOOLS, fields=("nccl", "nvbandwidth"), moment="preflight")
def buildable(ctx: Ctx) -> Outcome:
    """Tools that are to be built from source find a CUDA compiler, or the spec installs one; and MPI, if they run
    across hosts."""
    compiled = ctx.facts.get(acceptance.TOOLS).built
    unbuilt = [name for name, folder in sources(ctx.fragment) if folder.rpartition("/")[2] not in compiled]
    if not unbuilt:
        return not_asked("nothing is to be built")
    nvcc = ctx.facts.get(BUILD)
    if not nvcc and "cuda_toolkit" not in ctx.host.capabilities:
        fix = "add cuda_toolkit to the spec, install a CUDA toolkit, or leave source out and install the tool yourself"
        return fail(f"a CUDA compiler to build {' and '.join(unbuilt)} with", "no nvcc", fix)
    if "nccl" in unbuilt and ctx.fragment.nccl.across and not ctx.facts.get(MPICC):
        fix = "install MPI with its headers (Debian: libopenmpi-dev), or across: false"
        return fail("an MPI compiler to build nccl with, which across asks for", "no mpicc in PATH", fix)
    return ok(f"{nvcc or 'the nvcc that cuda_toolkit installs'}, for {' and '.join(unbuilt)}")


@check("acceptance.result", acceptance.LAST, fields=("rdma", "nccl", "nvbandwidth", "dcgm", "stream"))
def result(ctx: Ctx) -> Outcome:
    """The measurements of the last `gpuprov accept` on this host meet the current thresholds of the spec."""
    last = ctx.facts.get(acceptance.LAST)
    if last is None:
        return skip(f"never accepted: {ACCEPT} runs the tests, on request only")
    if last.damaged:
        return fail("the result of an acceptance", f"{catalogue.RESULT}: {last.damaged}", ACCEPT)
    verdicts = [
        (measurement, judge(ctx.fragment, measurement))
        for measurement in last.measurements
        if is_requested(ctx.fragment, measurement.test)
    ]
    bad = [(measurement, verdict) for measurement, verdict in verdicts if verdict.status in ("fail", "error")]
    if bad:
        first, verdict = bad[0]
        more = f"; and {len(bad) - 1} more" if len(bad) > 1 else ""
        fix = f"{verdict.fix}; then {ACCEPT}" if verdict.fix else ACCEPT
        return fail(
            verdict.expected, f"{first.test}: {describe_measurement(first)}, {_format_age(ctx, first)} ago{more}", fix
        )
    figures = [measurement for measurement, verdict in verdicts if verdict.status == "pass"]
    if not figures:
        return skip(f"the last acceptance measured nothing that the spec now asks for: {ACCEPT}")
    oldest = min(figures, key=lambda measurement: measurement.at)
    return ok(f"{len(figures)} figure{'s' * (len(figures) != 1)}, the oldest {_format_age(ctx, oldest)} ago")


def is_requested(block: Acceptance, test: str) -> bool:
    """Return whether the block asks for this test at all, so that an old figure of another test is not held against
    it."""
    where, _, name = test.rpartition(".")
    part = kind(name)
    if part == "rdma":
        return name in block.rdma.tests
    if part == "nccl":
        requested = {"": True, ACROSS: block.nccl.across, LOOPBACK: block.nccl.loopback}
        return block.nccl.test == name and requested.get(where, False)
    if part == "stream":
        return block.stream.seconds > 0
    return block.dcgm.level > 0 if part == "dcgm" else name in block.nvbandwidth.tests


def _format_age(ctx: Ctx, measurement: Measurement) -> str:
    """Return how long ago, by the clock of the machine that runs gpuprov, from which `at` was read, too."""
    seconds = ctx.facts.read_at - measurement.at
    for size, word in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {word}"
    return "a moment" if seconds < 60 else "a minute"


CHECKS = (tools, built, result, buildable)
