"""Inventory sources -> typed host specs: the entry point of every command. All problems of all hosts are reported at
once."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Unpack

import msgspec

from gpuprov.capabilities import BY_NAME, CAPABILITIES, HOUSE, house_fragment
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.catalog.gpus import list_gpus
from gpuprov.catalog.instances import find_instance
from gpuprov.core.errors import defect
from gpuprov.core.fill import fill
from gpuprov.core.sanitize import counted, has_secrets, reveal
from gpuprov.host_code import machine
from gpuprov.inventory import load
from gpuprov.inventory.play import ReadOptions
from gpuprov.spec import overrides, placement
from gpuprov.spec.across import report_conflict
from gpuprov.spec.connection import find_shared_machines, find_unusable, list_texts
from gpuprov.spec.kernel import Contribution, Kernel, merge
from gpuprov.spec.model import SITE_VARIABLES, Fragment, GpuSpec, HostSpec, RawHost, select_site_variables
from gpuprov.spec.numbers import find_misread
from gpuprov.spec.problem import Origin, Path, Problem, SpecError, collect
from gpuprov.spec.repository import locate_files
from gpuprov.spec.salvage import Repairs, place_as_written
from gpuprov.spec.schema import build_schema
from gpuprov.spec.shown import show
from gpuprov.spec.unknown_keys import Finding
from gpuprov.spec.url import hide_queries


class Fleet(msgspec.Struct, frozen=True):
    """Hosts with their specs, in inventory order."""

    pairs: tuple[tuple[RawHost, HostSpec], ...]
    # Hosts that no `gpuprov` variable reaches.
    unmanaged: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
    # The groups in each group, if `also` was given.
    children: dict[str, tuple[str, ...]] = {}
    # Names of the inventory's other hosts, which are not in the `limit`.
    left_out: tuple[str, ...] = ()


def load_fleet(
    sources: Sequence[str], limit: str | None = None, *, cache: bool = True, **options: Unpack[ReadOptions]
) -> Fleet:
    """Read, merge and judge. Raises SpecError with every problem; warnings stay on the Fleet."""
    beside: list[Problem] = []
    inventory = load(sources, limit=limit, cache=cache, beside=beside, **options)
    if has_secrets():
        reveal(_vocabulary())
    unread = [problem for name in inventory.extra for problem in _check_unread(name)]
    fleet = judge(inventory.hosts, [*beside, *inventory.warnings, *unread], whole=limit is None and not beside)
    return msgspec.structs.replace(fleet, children=inventory.children, left_out=inventory.left_out)


@cache
def _vocabulary() -> frozenset[str]:
    """Return gpuprov's own words, which are not secrets even if a vault holds them: fields and their choices, GPU
    models."""
    described = build_schema(
        HOUSE.fragment, {capability.name: (capability.fragment, "") for capability in CAPABILITIES}
    )
    return frozenset({*list_texts(described), *(gpu.key for gpu in list_gpus())})


def _check_unread(name: str) -> Iterable[Problem]:
    """Return problems about an extra variable that looks as if it set something, but does not: roles get their
    variables from the spec."""
    owner = next((capability.name for capability in CAPABILITIES if name.startswith(f"{capability.name}_")), "")
    if owner and name not in SITE_VARIABLES:
        field = name.removeprefix(f"{owner}_")
        yield Problem(
            message=f"--extra-vars: {name} is worked out from the spec, and would not be read",
            fix=f"""say it in the spec: -e '{{"gpuprov": {{"{owner}": {{"{field}": ...}}}}}}'""",
        )


def judge(hosts: Iterable[RawHost], warnings: Iterable[Problem] = (), *, whole: bool = True) -> Fleet:
    """Return typed specs of raw hosts. Hosts that share one merged spec are judged once. `whole`: these are all hosts
    of the inventory. Errors among the `warnings` are raised with all others."""
    pairs: list[tuple[RawHost, HostSpec]] = []
    unmanaged: list[str] = []
    problems = [*(given := tuple(warnings))]
    unreadable = _find_unreadable(given)
    known: dict[int, tuple[HostSpec | None, list[Problem]]] = {}
    hosts = tuple(hosts)  # keeps every `values` alive: its identity is the key below
    for raw in hosts:
        if not raw.values:
            unmanaged.append(raw.name)
            continue
        unset = overrides.find_problems(select_site_variables(raw.connection), [entry.name for entry in CAPABILITIES])
        problems += [
            msgspec.structs.replace(problem, hosts=(raw.name,), path=(), origin=raw.places.get(str(problem.path[0])))
            for problem in unset
        ]
        problems += find_unusable(raw)
        if id(raw.values) not in known:
            known[id(raw.values)] = build_spec(raw)
        spec, findings = known[id(raw.values)]
        problems += [
            msgspec.structs.replace(problem, hosts=(raw.name,))
            for problem in findings
            if problem.origin not in unreadable
        ]
        if spec is not None:
            pairs.append((raw, with_site(spec, raw)))
    problems += (_report_one_machine(*shared) for shared in find_shared_machines(raw for raw, _ in pairs))
    pairs, broken_rules = _check_across_hosts(pairs, unmanaged, whole=whole)
    problems += broken_rules
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:  # what was written and reaches no host may be the cause of an error
        raise SpecError([*errors, *(problem for problem in given if problem.severity == "warning")])
    if not pairs:
        # What was written and is not read is the cause, as a rule.
        fix = 'give a group or a host the variable "gpuprov", e.g. all: {vars: {gpuprov: {nvidia_driver: {}}}}'
        raise SpecError([Problem(message="no host has a gpuprov spec", fix=fix), *problems])
    return Fleet(tuple(pairs), tuple(unmanaged), tuple(collect(problems)))


def _find_unreadable(problems: Iterable[Problem]) -> set[Origin]:
    """Return the places that cannot be read; INI's places are lines, and leave the rest of theirs readable."""
    errors = (problem for problem in problems if problem.severity == "error")
    return {problem.origin for problem in errors if problem.origin and problem.origin.column > 1}


def _check_across_hosts(
    pairs: list[tuple[RawHost, HostSpec]], unmanaged: Sequence[str], *, whole: bool
) -> tuple[list[tuple[RawHost, HostSpec]], list[Problem]]:
    """Apply the capabilities' rules across hosts. Specs of a capability whose rules raise an exception are marked."""
    problems: list[Problem] = []
    origins = {raw.name: raw.origins for raw, _ in pairs}
    for capability in CAPABILITIES:
        try:
            reported = list(capability.fleet_rules([spec for _, spec in pairs], unmanaged, whole=whole))
        except Exception as error:
            failure = defect(f"the rules of {capability.name} across hosts", error)
            problems.append(Problem(message=failure[0], fix=failure[1], severity="warning"))
            pairs = [
                (raw, _mark_spec(spec, failure) if capability.name in spec.capabilities else spec)
                for raw, spec in pairs
            ]
            continue
        for name, problem in reported:
            problems.append(msgspec.structs.replace(problem, hosts=(name,), origin=place(problem.path, origins[name])))
    return pairs, problems


def _report_one_machine(address: str, names: list[str]) -> Problem:
    message = f"{machine.describe_names(names)}: all are reached at {show(address)}"
    return Problem(message=message, hosts=tuple(names), fix=machine.FIX, severity="warning")


def _mark_spec(spec: HostSpec, failure: tuple[str, str]) -> HostSpec:
    return msgspec.structs.replace(spec, defects=(*spec.defects, failure))


def with_site(spec: HostSpec, raw: RawHost) -> HostSpec:
    """Return the spec of one of the hosts that share it, with its name, its places and its site's settings."""
    site = select_site_variables(raw.connection)
    return msgspec.structs.replace(spec, name=raw.name, groups=raw.groups, origins=raw.origins, site=site)


def build_spec(raw: RawHost) -> tuple[HostSpec | None, list[Problem]]:
    """Return one host's typed spec, or None and all its problems."""
    hide_queries(raw.values)
    blocks: dict[str, Fragment] = {}
    house_names = HOUSE.fragment.__struct_fields__
    fragments = {capability.name: capability.fragment for capability in CAPABILITIES}
    values, findings, written = placement.place(raw.values, fragments, house_names)
    repairs = Repairs()
    own = {key: value for key, value in values.items() if key in house_names and value is not False}
    findings += [((key,), f"{key} is empty", "give it a value, or leave it out") for key in own if own[key] is None]
    repairs.dropped.update((key,) for key in own if own[key] is None)
    house, complaints = repairs.convert({key: value for key, value in own.items() if value is not None}, HOUSE.fragment)
    findings += complaints
    house, values, more = _read_instance(house, values)
    findings += more
    for name, fragment in fragments.items():
        value = values.get(name, False)
        if value is False:
            continue
        if value is None or value is True:
            findings.append(((name,), f"{name} is {show(value)}", "write {} for the defaults, false to switch it off"))
            repairs.dropped.add((name,))
            value = {}
        block, complaints = repairs.convert(value, fragment, (name,))
        findings += complaints
        if block is not None:
            blocks[name] = locate_files(block, name, raw.origins)
    judged: Any = house or HOUSE.fragment()  # of a bad one that cannot be repaired
    spec = fill(HostSpec, judged, name=raw.name, groups=raw.groups, capabilities=blocks)
    spec, conflicts = with_contributions(spec)
    violations, defects = ruled(spec)
    ruled_out = list(repairs.judged([*conflicts, *violations]))
    problems = [
        Problem(path=path, message=text, fix=fix) for path, text, fix in repairs.unless_refused(findings, ruled_out)
    ]
    problems = [place_as_written(problem, written) for problem in (*problems, *ruled_out)]
    spec = msgspec.structs.replace(spec, defects=defects)
    placed = [msgspec.structs.replace(problem, origin=place(problem.path, raw.origins)) for problem in problems]
    placed += find_misread(raw.values, raw.origins)
    return (None if any(p.severity == "error" for p in placed) else spec), placed


def _read_instance(house: Any, values: dict[Any, Any]) -> tuple[Any, dict[Any, Any], list[Finding]]:
    """Return the house's block and the plain values, with values derived from an instance type in place of a GPU model:
    model, count, and the fabric of an `rdma` that names none."""
    instance = find_instance(house.gpu.model) if house and house.gpu else None
    if not instance:
        return house, values, []
    named, findings = house.gpu.model, list[Finding]()
    if house.gpu.count not in (None, instance.count):
        message = f"gpu.count is {house.gpu.count}, and {named} has {counted(instance.count, 'GPU')}"
        findings.append((("gpu", "count"), message, "leave it out: the instance type says it"))
    house = msgspec.structs.replace(house, gpu=GpuSpec(model=instance.model, count=instance.count))
    rdma = values.get("rdma")
    if not instance.fabric or not isinstance(rdma, Mapping):
        return house, values, findings
    implied = {field: meaning for name, (field, meaning) in Rdma.IMPLIES.items() if isinstance(rdma.get(name), Mapping)}
    declared = rdma.get("fabric", implied.get("fabric"))
    if declared is None:
        return house, {**values, "rdma": {**rdma, "fabric": instance.fabric}}, findings
    if isinstance(declared, str) and declared not in (instance.fabric, "soft"):
        message = f"rdma.fabric is {show(declared)}, and {named} has {instance.fabric}"
        findings.append((("rdma", "fabric"), message, f"write {instance.fabric}"))
    return house, values, findings


def with_contributions(spec: HostSpec) -> tuple[HostSpec, list[Problem]]:
    """Return the spec with `kernel` merged from its own block and from the contributions of other capabilities."""
    contributions: list[Contribution] = []
    own = spec.capabilities.get("kernel")
    if isinstance(own, Kernel):
        contributions.append(Contribution("kernel", own))
    for name, fragment in spec.capabilities.items():
        contribution = BY_NAME[name].contribute(spec, fragment)
        if contribution is not None:
            contributions.append(Contribution(name, contribution))
    if not contributions:
        return spec, []
    kernel, conflicts = merge(contributions)
    ordered = {
        c.name: spec.capabilities[c.name] for c in CAPABILITIES if c.name in spec.capabilities and c.name != "kernel"
    }
    merged = msgspec.structs.replace(spec, capabilities={"kernel": kernel, **ordered})
    return merged, [report_conflict(conflict) for conflict in conflicts]


def ruled(spec: HostSpec) -> tuple[list[Problem], tuple[tuple[str, str], ...]]:
    """Return the problems from the capabilities' own rules, and the rules that failed with an exception, which affect
    this spec only."""
    problems: list[Problem] = []
    defects: list[tuple[str, str]] = []
    for name, fragment in {"host": house_fragment(spec), **spec.capabilities}.items():
        try:
            problems += BY_NAME[name].rules(spec, fragment)
        except Exception as error:
            defects.append(defect(f"a rule of {name}", error))
            problems.append(Problem(path=(name,), message=defects[-1][0], fix=defects[-1][1], severity="warning"))
    return problems, tuple(defects)


def place(path: Path, origins: dict[Path, Origin]) -> Origin | None:
    """Return the place where a path was written, or the nearest enclosing block."""
    while path:
        if path in origins:
            return origins[path]
        path = path[:-1]
    return origins.get(())


def locate_request(spec: HostSpec, capability: str, fields: Sequence[str] = ()) -> str:
    """Return the place in the inventory that requests a capability, or the first of its fields; "" if it is not
    known."""
    if capability not in spec.capabilities:
        return ""
    path = (capability, *(fields[0].split(".") if fields else ()))
    return str(place(path, spec.origins) or "")
