"""Checks of Open MPI, UCX, HPC-X and NCCL's SHARP plugin: whose they are, and what they say of this host."""

from gpuprov.capabilities import answers
from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import find_missing, list_changes, move_packages
from gpuprov.capabilities.hpc.decision import (
    BASE,
    Ctx,
    choose_origin,
    decide,
    find_mixed,
    is_in_step,
    list_names,
    read_level,
)
from gpuprov.capabilities.hpc.desired import SOURCE, explain_hpcx
from gpuprov.capabilities.hpc.fragment import find_archive, needs_plugin
from gpuprov.catalog import hpc as catalogue
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import family, words
from gpuprov.facts.probes.rdma import DEVICES, list_hcas
from gpuprov.facts.probes.software import hpc as probe
from gpuprov.resources import Difference

PLUGIN = f"{catalogue.LINK}/nccl_rdma_sharp_plugin/lib/{catalogue.PLUGIN}"
RUN = "source /opt/hpcx/hpcx-init.sh; hpcx_load; "


@check(
    "hpc.fits",
    system.OS_RELEASE,
    system.PLATFORM,
    probe.HPC,
    fields=("hpcx",),
    moment="preflight",
    evidence="uname -m; cat /etc/os-release; ls -ld /opt/hpcx*",
)
def fits(ctx: Ctx) -> Outcome:
    """The archive of HPC-X is for this processor and this kind of distribution, and nobody else's files are in its
    place."""
    archive, state = find_archive(ctx.fragment), ctx.facts.get(probe.HPC)
    if archive is None:
        return not_asked("the spec names no archive of HPC-X")
    release, machine = ctx.facts.get(system.OS_RELEASE), ctx.facts.get(system.PLATFORM).machine
    expected = f"an archive for {release.name or release.id}, {machine}"
    kind = catalogue.DISTRIBUTIONS.get(family(release) or "", ())
    if archive.arch != machine or not archive.distribution.startswith(kind):
        return fail(
            expected, f"{archive.folder} is for {archive.distribution}, {archive.arch}", "the one for this host"
        )
    if state.folder or state.foreign:
        place = catalogue.LINK if state.folder else f"/opt/{archive.folder}"
        return fail("nothing else in its place", f"{place} exists, and is not gpuprov's", f"mv {place} ELSEWHERE")
    return ok(archive.folder, expected)


@check("hpc.resolvable", *BASE, probe.INDEX, fields=("mpi",), moment="preflight")
def resolvable(ctx: Ctx) -> Outcome:
    """The host's package sources have Open MPI and UCX of the RDMA stack in use; those of DOCA-OFED come with it."""
    names = list_names(ctx)
    if not names:
        return not_asked("HPC-X has its own")
    decision = decide(ctx)
    if decision.comes:
        return ok(f"{' '.join(names)} come with doca-ofed, which rdma installs first")
    if decision.missing and ctx.facts.get(probe.INDEX).busy:
        return skip("another package manager is at work on the host: plan again when it has ended; apply waits for it")
    if decision.missing:
        return fail(" ".join(names), f"no package source has {' '.join(decision.missing)}, in step", SOURCE)
    have = {name: package.version for name, package in ctx.facts.get(probe.PACKAGES).items()}
    changes = move_packages(decision.install, have)
    listed = ", ".join(f"{name} {decision.install.get(name) or have[name]}" for name in names)
    return Outcome(status="pass", expected=" ".join(names), found=listed, changes=tuple(changes))


@check("hpc.packages", *BASE, fields=("mpi",))
def installed(ctx: Ctx) -> Outcome:
    """Open MPI and UCX are installed, whole, and in step with the RDMA stack: of the level of the installed OFED, or
    none of an OFED's; never of both, which load each other's libraries."""
    names, have = list_names(ctx), ctx.facts.get(probe.PACKAGES)
    if mixed := find_mixed(ctx.facts):
        remove = words(ctx.facts.get(system.OS_RELEASE)).remove
        others = [name for name in have if not is_in_step(have[name].version, choose_origin(ctx), "")]
        return fail("Open MPI and UCX from one source", mixed, f"{remove} {' '.join(others)}; then {APPLY}")
    if not names:
        return not_asked("HPC-X has its own")
    if missing := find_missing(names, have):
        return missing
    if broken := [name for name in names if not have[name].whole]:
        return fail(" ".join(names), f"incomplete: {' '.join(broken)}", words(ctx.facts.get(system.OS_RELEASE)).repair)
    origin, level = choose_origin(ctx), read_level(ctx.facts)
    expected = f"{' '.join(names)} of {f'OFED {level}'.strip() if origin == 'doca-ofed' else 'the distribution'}"
    if strange := [name for name in names if not is_in_step(have[name].version, origin, level)]:
        listed = ", ".join(f"{name} {have[name].version}" for name in strange)
        return fail(expected, f"from another source or level: {listed}", APPLY)
    return ok(", ".join(f"{name} {have[name].version}" for name in names), expected)


@check("hpc.held", probe.PACKAGES, *answers.HOLDING, fields=("hold",), moment="next-boot", evidence=answers.SHOWN)
def held(ctx: Ctx) -> Outcome:
    """Its packages are held, so that an upgrade does not move them away from the RDMA stack; or none is, if the spec
    asks for that."""
    if ctx.fragment.mpi == "hpcx":
        return not_asked("HPC-X is not a package")
    own = {name: package for name, package in ctx.facts.get(probe.PACKAGES).items() if name in probe.NAMES}
    return answers.held(ctx.facts, own, "Open MPI", hold=ctx.fragment.hold)


@check(
    "hpc.hpcx",
    probe.HPC,
    fields=("mpi", "hpcx"),
    evidence=f"ls -ld {catalogue.LINK}; cat {catalogue.LINK}/.gpuprov.json",
)
def release(ctx: Ctx) -> Outcome:
    """/opt/hpcx leads to the release of the spec, unpacked from the archive with that checksum; or to any, if the spec
    names none."""
    if ctx.fragment.mpi != "hpcx":
        return not_asked("mpi is openmpi")
    state, archive = ctx.facts.get(probe.HPC), find_archive(ctx.fragment)
    if archive is None:
        fix = f"name its archive in hpc.hpcx; or ln -s FOLDER {catalogue.LINK}, where FOLDER has one"
        link = state.link or catalogue.LINK * state.folder
        return ok(link) if link else fail(f"{catalogue.LINK}, with HPC-X", "not there", fix)
    if why := explain_hpcx(ctx):
        moved = Difference(catalogue.LINK, state.link, f"/opt/{archive.folder}", kind="package")
        return fail(f"{catalogue.LINK} -> /opt/{archive.folder}", why, APPLY, changes=list_changes([moved]))
    return ok(f"{catalogue.LINK} -> {state.link}")


@check(
    "hpc.mpi", probe.HPC, *BASE, fields=("mpi", "cuda_aware"), evidence="mpirun --version; ompi_info --parsable --all"
)
def mpi(ctx: Ctx) -> Outcome:
    """mpirun runs, ompi_info lists UCX, and CUDA if the spec asks for it."""
    of_ofed = ctx.fragment.mpi == "openmpi" and choose_origin(ctx) == "doca-ofed"
    programs = ctx.facts.get(probe.HPC).mpis
    program = next((program for program in programs if program.path.startswith("/usr/mpi/") == of_ofed), None)
    expected = "Open MPI with UCX" + " and CUDA" * ctx.fragment.cuda_aware
    if program is None:
        return fail(expected, "no mpirun", f"see hpc.packages and hpc.hpcx; {APPLY}")
    if not program.works:
        return fail(
            expected, f"{program.path}: {program.output or 'printed nothing'}", f"{program.path} --version, on the host"
        )
    lacking = ["UCX"] * (not program.ucx) + ["CUDA"] * (ctx.fragment.cuda_aware and not program.cuda)
    if lacking:
        fix = "mpi: hpcx, which is built with both" + "; or cuda_aware: false" * (lacking == ["CUDA"])
        return fail(expected, f"{program.path}, {program.output}, without {' and '.join(lacking)}", fix)
    return ok(f"{program.path}, {program.output}{', with CUDA' * program.cuda}", expected)


@check("hpc.ucx", probe.HPC, DEVICES, fields=("mpi", "cuda_aware"), evidence="ucx_info -v; ucx_info -d")
def ucx(ctx: Ctx) -> Outcome:
    """UCX answers, its library is the one of the requested Open MPI, and it lists every RDMA device with an active
    port; with cuda_aware also CUDA's transports."""
    state = ctx.facts.get(probe.HPC)
    own = ctx.fragment.mpi == "hpcx"
    expected = "UCX" + " of HPC-X" * own + " with CUDA" * ctx.fragment.cuda_aware
    by_hand = f"{RUN * own}ucx_info -v, on the host"
    if not state.ucx:
        return fail(expected, state.ucx_output or "no ucx_info", f"see hpc.packages and hpc.hpcx; {by_hand}")
    if state.ucx_path and own != state.ucx_path.startswith((f"{catalogue.LINK}/", f"{state.link or catalogue.LINK}/")):
        fix = "take the other folder out of LD_LIBRARY_PATH and /etc/ld.so.conf.d; ldconfig"
        return fail(expected, f"UCX {state.ucx} of {state.ucx_path}: another one's", fix)
    adapters = [device for device in list_hcas(ctx.facts.get(DEVICES)) if not device.soft]
    active = [device.name for device in adapters if any(port.state == "ACTIVE" for port in device.ports)]
    if unseen := [name for name in active if name not in state.devices]:
        fix = f"{RUN * own}ucx_info -d, on the host; /dev/infiniband and the provider of libibverbs for the device"
        return fail(f"{expected} on {' '.join(active)}", f"UCX {state.ucx} does not list {' '.join(unseen)}", fix)
    cuda = [name for name in state.transports if name.startswith(("cuda", "gdr_copy"))]
    if ctx.fragment.cuda_aware and "cuda_copy" not in cuda:
        fix = "mpi: hpcx; or see nvidia_driver.loaded, without which UCX lists no GPU memory"
        return fail(expected, f"UCX {state.ucx} has no transport cuda_copy", fix)
    return ok(f"UCX {state.ucx}: {' '.join([*state.devices, *cuda])}".rstrip(": "), expected)


@check("hpc.plugin", probe.HPC, fields=("mpi",), evidence=f"ldconfig -p | grep {catalogue.PLUGIN}; ldd {PLUGIN}")
def plugin(ctx: Ctx) -> Outcome:
    """Where rdma.nccl.sharp asks for it, the linker's first libnccl-net.so is HPC-X's, and finds all its libraries."""
    if not needs_plugin(ctx.host, ctx.fragment):
        return not_asked("rdma.nccl.sharp does not ask for it" if ctx.fragment.mpi == "hpcx" else "mpi is openmpi")
    state = ctx.facts.get(probe.HPC)
    first = next(iter(state.plugins), "")
    expected = f"{catalogue.PLUGIN} of HPC-X, with libsharp"
    if not first:
        return fail(expected, f"the dynamic linker finds no {catalogue.PLUGIN}", APPLY)
    if not first.startswith((f"{catalogue.LINK}/", f"{state.link or catalogue.LINK}/")):
        fix = f"take its folder out of /etc/ld.so.conf.d, or sort it behind {catalogue.LINKER}; ldconfig"
        return fail(expected, f"{first} comes first", fix)
    if state.lost:
        fix = (
            "libcudart: the HPC-X of the installed CUDA; libsharp, libucp: see hpc.files and hpc.packages; then "
            "ldconfig"
        )
        return fail(expected, f"{first} lacks {' '.join(state.lost)}", fix)
    listed = ", ".join(f"{name} {path}" for name, path in state.needs.items())
    return ok(f"{first}: {listed}" if listed else first, expected)


CHECKS = (fits, resolvable, installed, held, release, mpi, ucx, plugin)
