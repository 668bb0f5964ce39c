"""Engines that read the CDI specification, and whether they can: by their own report, or else by their release."""

from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from gpuprov.catalog import container_toolkit as catalogue
from gpuprov.catalog import engines as known
from gpuprov.core import safe_parse
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.containers.container_engines import ENGINES
from gpuprov.facts.probes.containers.container_toolkit import CDI_ANSWERS, Specification
from gpuprov.rules import engines as files
from gpuprov.rules import resolve
from gpuprov.rules.engine_output import Engine


def readers(fragment: ContainerToolkit, facts: Facts) -> dict[str, Engine]:
    """Return the host's engines whose releases read CDI files; containerd only if the spec names it, or it is not
    docker's."""
    return {
        name: engine
        for name, engine in facts.get(ENGINES).items()
        if (name != "containerd" or name in fragment.runtimes or "docker" not in facts.get(ENGINES))
        and known.find_newest_cdi(name, engine.version)
    }


def too_old(fragment: ContainerToolkit, facts: Facts) -> list[str]:
    """Return engines, with their releases, that cannot read nvidia-ctk's default output from 1.19.1 on."""
    return [
        f"{name} {engine.version}"
        for name, engine in readers(fragment, facts).items()
        if files.number(known.find_newest_cdi(name, engine.version)) < files.number(catalogue.WRITTEN_CDI)
    ]


def needed_flags(fragment: ContainerToolkit, facts: Facts, version: str) -> tuple[str, ...]:
    """Return the features of the specification that this release of the toolkit needs as options, besides those that
    the site sets."""
    knows = bool(version) and resolve.order(version) >= resolve.order(catalogue.WITHOUT_GIDS_SINCE)
    return (catalogue.WITHOUT_GIDS,) if knows and too_old(fragment, facts) else ()


def unread(fragment: ContainerToolkit, facts: Facts, cdi_spec: Specification) -> tuple[str, str]:
    """Return an engine that cannot read a specification, and the release from which it could; empty if all can."""
    needed = known.derive_needed_cdi(cdi_spec.version, cdi_spec.fields)
    answers = facts.known(CDI_ANSWERS) or {}
    for name, engine in readers(fragment, facts).items():
        newer = known.find_first_reader(name, needed)
        upgrade = f"{name} {newer} or newer" if newer else f"a newer {name}"
        answer = _read_docker_complaint(engine, cdi_spec.path) if name == "docker" else answers.get(name)
        if answer is None:
            answer = _explain_unread_release(name, engine.version, cdi_spec, needed)
        if answer:
            return f"{name} {engine.version} cannot read {cdi_spec.path}: {answer}", upgrade
    return "", ""


def _explain_unread_release(name: str, version: str, cdi_spec: Specification, needed: str) -> str:
    """Return why a release cannot read it; empty if it can."""
    newest = known.find_newest_cdi(name, version)
    if files.number(needed) <= files.number(newest):
        return ""
    fields = f", with {' '.join(cdi_spec.fields)}" if cdi_spec.fields else ""
    last = known.find_newest_known(name)
    beyond = files.number(version) > (*files.number(last), 1 << 30)
    judged = f" (judged as {last}, the newest release known here)" if beyond else ""
    return f"it is of CDI {needed}{fields}, and this release reads up to {newest}{judged}"


def _read_docker_complaint(engine: Engine, path: str) -> str | None:
    """Return docker's complaint about a file; None before 28.2, which lists neither devices nor faults of files."""
    # https://github.com/moby/moby/blob/v28.2.0/api/types/system/info.go
    answer = read_report(engine)
    if "DiscoveredDevices" not in answer:
        return None
    warnings = [
        str(warning)
        for warning in answer.get("Warnings") or []
        if str(warning).startswith("CDI: ") and path in str(warning)
    ]
    return "; ".join(warnings)


def read_report(engine: Engine) -> safe_parse.Tree:
    """Return docker's own report; empty if it gives none."""
    try:
        answer = safe_parse.parse_json(engine.live or "{}")
    except safe_parse.Unreadable:
        return {}
    return answer if isinstance(answer, dict) else {}
