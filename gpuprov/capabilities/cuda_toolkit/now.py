"""Checks of the toolkits as they are now: packages, compilers, the default, libraries, holds."""

from gpuprov.capabilities import answers
from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import Group, compared, move_packages
from gpuprov.capabilities.cuda_toolkit.fragment import CudaToolkit
from gpuprov.capabilities.cuda_toolkit.host import (
    BASE,
    choose_default,
    choose_driver,
    decide,
    find_family,
    find_installed,
    list_minors,
)
from gpuprov.capabilities.cuda_toolkit.preflight import IN_THE_WAY, judged
from gpuprov.catalog.cuda import packages as catalogue
from gpuprov.facts.probes.driver.cuda_toolkit import PACKAGES, TOOLKITS, Toolkit
from gpuprov.facts.probes.host import family
from gpuprov.resources import Setting
from gpuprov.rules import resolve
from gpuprov.spec.model import HostSpec

# The start of the profile's line, whatever surrounds it.
Ctx = Context[CudaToolkit]


@check("cuda_toolkit.packages", *BASE, fields=("versions", "parts"))
def packages(ctx: Ctx) -> Outcome:
    """Each toolkit's package is installed in the release that the spec asks for, and every package of it is
    complete."""
    block = ctx.fragment
    expected = f"{block.parts} of {', '.join(block.versions) or 'any toolkit'}"
    decision = decide(block, ctx.facts)
    if decision.problem:  # without an index: what is asked for is not installed; preflight tells what would be
        pattern = catalogue.get_part(block.parts).package
        present = sorted(
            f"{name} {package.version}"
            for name, package in ctx.facts.get(PACKAGES).items()
            if name in [pattern.format(minor=catalogue.format_dashed(version)) for version in block.versions]
            or any(
                name.startswith(row.run[0].partition("{")[0])
                for row in catalogue.read_toolkits_file().libraries
                if getattr(block, row.library)
            )
        )
        return fail(expected, "; ".join(present) or "not installed", f"{APPLY}; gpuprov plan shows each package")
    broken = sorted(name for name, package in find_installed(block, ctx.facts).items() if not package.whole)
    if broken:
        repair = family.WORDS[find_family(ctx.facts)].repair
        return fail(expected, f"incomplete: {' '.join(broken)}", f"{repair}; then {APPLY}")
    return ok(", ".join(resolve.upstream(version) for version in decision.releases.values()), expected)


@check(
    "cuda_toolkit.compilers",
    *(*BASE, TOOLKITS),
    fields=("versions", "parts"),
    evidence="for d in /usr/local/cuda-*; do $d/bin/nvcc --version; ls $d/targets/*/lib/libcudart.so.*; done",
)
def compilers(ctx: Ctx) -> Outcome:
    """Each toolkit's nvcc reports its release and the build of its package and of that release; its libcudart.so is its
    package's."""
    toolkits, packaged = ctx.facts.get(TOOLKITS).toolkits, ctx.facts.get(PACKAGES)
    builds = []
    for version in list_minors(ctx.fragment, ctx.facts):
        kit, dashed = toolkits.get(version, Toolkit()), catalogue.format_dashed(version)
        fix = f"{family.WORDS[find_family(ctx.facts)].reinstall} cuda-nvcc-{dashed} cuda-cudart-{dashed}"
        cudart = packaged.get(f"cuda-cudart-{dashed}")
        library = resolve.upstream(cudart.version) if cudart else ""
        if not kit.cudart or (library and kit.cudart != library):
            expected = f"libcudart.so.{library or version} in {catalogue.LINK}-{version}"
            return fail(expected, f"libcudart.so.{kit.cudart}" if kit.cudart else "no such file", fix)
        if catalogue.get_part(ctx.fragment.parts).nvcc and (wrong := wrong_compiler(ctx, version, kit)):
            return fail(wrong[0], wrong[1], fix)
        builds.append(f"{version}: nvcc {kit.build}" if kit.build else f"{version}: libcudart {kit.cudart}")
    if not builds:
        return fail("a toolkit", "none is installed", APPLY)
    return ok(", ".join(builds))


def wrong_compiler(ctx: Ctx, version: str, kit: Toolkit) -> tuple[str, str] | None:
    """Return what a toolkit's nvcc should report, and what it reports; None if they agree."""
    package = ctx.facts.get(PACKAGES).get(f"cuda-nvcc-{catalogue.format_dashed(version)}")
    built = resolve.upstream(package.version) if package else ""
    exact = next((v for v in ctx.fragment.versions if catalogue.take_minor(v) == version and v != version), "")
    expected = catalogue.find_compiler(exact) or built
    if not kit.build:
        return f"nvcc {expected or version}", kit.complaint or f"no {catalogue.LINK}-{version}/bin/nvcc"
    if kit.release != version or (expected and kit.build != expected):
        return f"nvcc {expected or version}, of release {exact or version}", f"nvcc {kit.build}"
    return None


@compared(
    "cuda_toolkit.default",
    *(*BASE, TOOLKITS),
    fields=("default",),
    moment="next-boot",
    evidence="readlink -f /usr/local/cuda; update-alternatives --display cuda",
)
def the_default(ctx: Ctx) -> Group | Outcome:
    """/usr/local/cuda leads to the default toolkit, and is set by hand, so that a newer toolkit's package does not take
    it over."""
    state, version = ctx.facts.get(TOOLKITS), choose_default(ctx.fragment, ctx.facts)
    target = f"{catalogue.LINK}-{version}"
    if not version:
        return fail("a default toolkit", "no toolkit is installed", APPLY)
    actual = state.link or "not there"
    others, choice = state.link == target, f"{target} by {state.by}, {state.mode or 'no'} mode"
    by = f" by {state.by}" * (others and state.by != "alternatives")
    return Group(
        (Setting(kind=catalogue.LINK, value=f"{target} manual", moment="next-boot"),),
        {("", ""): f"{actual}{by} {state.mode}".strip()},
        expected=f"{target}, set by hand" if others else target,
        right=target,
        message=choice if others else actual,
        fix=f"{IN_THE_WAY[state.by]}; then {APPLY}"
        if state.by in IN_THE_WAY
        else f"update-alternatives --set cuda {target} ({APPLY} does)",
    )


@check(
    "cuda_toolkit.libraries",
    *(*BASE, TOOLKITS),
    fields=("cudnn", "nccl"),
    evidence="ldconfig -p | grep -E 'libcudart|libcudnn|libnccl'",
)
def libraries(ctx: Ctx) -> Outcome:
    """The linker finds the libcudart of each toolkit, and cuDNN and NCCL in the packages' versions, which match the
    spec."""
    block, present = ctx.fragment, ctx.facts.get(TOOLKITS).libraries
    names = sorted({catalogue.derive_runtime(version) for version in list_minors(block, ctx.facts)})
    missing = [name for name in names if name not in present]
    if missing:
        return fail(
            " ".join(missing), "not in the linker's cache", f"ldconfig; ls /etc/ld.so.conf.d ({APPLY} runs ldconfig)"
        )
    for library in ("cudnn", "nccl"):
        requested = getattr(block, library)
        if not requested:
            continue
        short = f"lib{library}.so.{catalogue.take_major(requested)}"
        number = present.get(short, "").rpartition(".so.")[2]
        package = next(
            (p for name, p in find_installed(block, ctx.facts).items() if name.startswith(f"lib{library}")), None
        )
        # cuDNN's package has a fourth number that its file has not: 9.5.1.17 is libcudnn.so.9.5.1.
        short_of = ".".join((resolve.upstream(package.version) if package else requested).split(".")[:3])
        if package is None or not catalogue.is_satisfying(package.version, requested):
            return fail(
                f"{library} {requested}", package.version if package else "not installed", f"{APPLY}; gpuprov plan"
            )
        if number != short_of:
            return fail(
                f"{short} of {short_of}",
                present.get(short, "not in the linker's cache"),
                "ldconfig -p; another copy comes first",
            )
        names.append(f"{library} {resolve.upstream(package.version)}")
    header = ctx.facts.get(TOOLKITS).cudnn_header
    if block.cudnn and block.parts != "libraries" and not is_header_of(header, block.cudnn):
        return fail(f"cudnn_version.h of {block.cudnn}", header or "no such header", APPLY)
    return ok(", ".join(names))


def is_header_of(header: str, version: str) -> bool:
    """Return whether cuDNN's header is of the wanted version, as far as both go."""
    return bool(header) and catalogue.is_satisfying(header, ".".join(version.split(".")[:3]))


@check("cuda_toolkit.held", *(*BASE, *answers.HOLDING), fields=("hold",), moment="next-boot", evidence=answers.SHOWN)
def held(ctx: Ctx) -> Outcome:
    """Every package of the toolkits, of cuDNN and NCCL is held (or none, if the spec asks for that): no upgrade moves
    one of them alone."""
    return answers.held(ctx.facts, find_installed(ctx.fragment, ctx.facts), "a CUDA toolkit", hold=ctx.fragment.hold)


@check("cuda_toolkit.others", *BASE, fields=("only",))
def others(ctx: Ctx) -> Outcome:
    """With `only`, no other toolkit and no metapackage is installed; without it, other toolkits do not matter."""
    known, minors = ctx.facts.get(PACKAGES), list_minors(ctx.fragment, ctx.facts)
    beside = sorted(name for name in known if (kit := catalogue.find_toolkit(name)) and kit not in minors)
    if not ctx.fragment.only:
        kits = sorted({catalogue.find_toolkit(name) for name in beside}, key=resolve.order)
        return not_asked(f"left alone: {', '.join(kits)}") if kits else not_asked()
    beside = sorted(
        {
            *beside,
            *catalogue.select_matching(known, (entry.pattern for entry in catalogue.read_toolkits_file().metapackages)),
        }
    )
    if beside:
        changes = move_packages({}, {name: known[name].version for name in beside}, beside)
        return fail("no other toolkit", f"installed: {' '.join(beside)}", APPLY, changes=changes)
    return ok("no other toolkit")


@check("cuda_toolkit.runs", *BASE, fields=("versions",), evidence="cat /proc/driver/nvidia/version")
def runs(ctx: Ctx) -> Outcome:
    """The host's driver runs every toolkit."""
    driver = choose_driver(HostSpec(name=ctx.host.name), ctx.facts)
    if not driver:
        return skip("no driver is installed: programs can be built here, not run")
    return judged(ctx.host, driver, list_minors(ctx.fragment, ctx.facts))


CHECKS = (packages, runs, compilers, the_default, libraries, held, others)
