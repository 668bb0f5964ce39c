"""Decision which packages of DCGM a host gets, in one version, and which are removed, made once for preflight and for
the role."""

import msgspec

from gpuprov.capabilities import package_sources
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.dcgm.fragment import BASE_PROBES, Dcgm, choose_builds, list_parts, list_versions
from gpuprov.capabilities.driver import find_target_branch
from gpuprov.catalog import dcgm as catalogue
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.gpus import dcgm
from gpuprov.rules import resolve

PROBES = (*BASE_PROBES, dcgm.INDEX, *package_sources.COMING)
REPOSITORY = (
    "DCGM is in NVIDIA's CUDA repository, not in the distribution's: add it, or a mirror of it, to the package sources"
)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The set for a host: package versions by name, and the packages of DCGM to remove."""

    line: catalogue.Line = "4"
    cuda: tuple[str, ...] = ()
    version: str = ""
    packages: dict[str, str] = {}
    replaced: tuple[str, ...] = ()
    # Why there is none.
    problem: str = ""
    fix: str = ""
    # What of this spec must be installed first, so that the problem is none yet.
    later: str = ""
    # The package source in question.
    source: str = ""


def decided(ctx: Context[Dcgm]) -> Decision:
    """Decide by the driver that the spec asks for, else by the installed one.

    A driver that the spec does not name, and the package source that comes with it, are known only when the role
    nvidia_driver has decided in act 1: then the role runs the preflight again, with that version.
    """
    branch, driver = find_target_branch(ctx.host, ctx.facts), ctx.host.capabilities.get("nvidia_driver")
    decision = decide(ctx.fragment, branch, ctx.facts)
    if not decision.problem:
        return decision
    if driver and not branch and ctx.fragment.cuda == "auto":
        return msgspec.structs.replace(decision, later="resolved with the driver that nvidia_driver installs")
    if not ctx.facts.get(dcgm.INDEX) and (url := package_sources.coming(driver, ctx.facts)):
        return msgspec.structs.replace(decision, later=f"resolved when apply has added {url}", source=url)
    return decision


def decide(fragment: Dcgm, branch: int, facts: Facts) -> Decision:
    """Decide on one version for all of DCGM's packages on this host, from its own package index."""
    present, index = list_versions(facts), facts.get(dcgm.INDEX)
    cuda = choose_builds(fragment, branch, facts)
    line = catalogue.find_line(fragment.version, present, cuda)
    if line == "4" and not cuda:
        problem = f"driver branch {branch} is too old" if branch else "no driver says which CUDA build is needed"
        fix = f"a driver of branch {catalogue.MIN_BRANCH} or newer: nvidia_driver, or say dcgm.cuda"
        return Decision(line=line, problem=problem, fix=fix)
    answer = resolve.resolve(fragment.version, catalogue.list_names(line, list_parts(fragment), cuda), index, present)
    if answer["problem"]:
        fix = answer["fix"] if any(index.get(name) for name in catalogue.list_all_names()) else REPOSITORY
        return Decision(line=line, cuda=cuda, problem=answer["problem"].replace("driver version", "version"), fix=fix)
    full = next(iter(answer["packages"].values()))
    along, gone = catalogue.follow(full, line, answer["packages"], index, present, cuda)
    if line == "3" and catalogue.EXPORTER in present:
        gone = [*gone, catalogue.EXPORTER]
    packages = {**answer["packages"], **along}
    decision = Decision(line=line, cuda=cuda, version=answer["version"], packages=packages, replaced=tuple(gone))
    return _add_exporter(decision, facts) if fragment.exporter else decision


def _add_exporter(decision: Decision, facts: Facts) -> Decision:
    """Return the set with the exporter that was released for it or an older one: the installed one if it fits, else the
    newest that does."""
    current = list_versions(facts).get(catalogue.EXPORTER, "")
    offered = facts.get(dcgm.INDEX).get(catalogue.EXPORTER, [])
    fitting = (
        candidate
        for candidate in [current, *offered]
        if candidate and catalogue.is_fitting_exporter(candidate, decision.version)
    )
    if chosen := next(fitting, ""):
        return msgspec.structs.replace(decision, packages={**decision.packages, catalogue.EXPORTER: chosen})
    bound = catalogue.find_exporter_bound(decision.version) or catalogue.PAIRS[0][1]
    problem = f"no {catalogue.EXPORTER} {bound} or older: the repositories have none for DCGM {decision.version}"
    fix = "another dcgm.version, or exporter: false" if offered else REPOSITORY
    return msgspec.structs.replace(decision, problem=problem, fix=fix)
