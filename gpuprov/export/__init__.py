"""Export of a host's state as a spec: captures a good host, to assert it elsewhere."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gpuprov.capabilities import CAPABILITIES
from gpuprov.capabilities.mig import reality
from gpuprov.catalog.gpus import find_by_pci_id
from gpuprov.core.errors import UnreachableError, defect
from gpuprov.core.safe_parse import Tree
from gpuprov.core.sanitize import counted
from gpuprov.core.time_limits import HOST_LIMIT
from gpuprov.export import defects
from gpuprov.facts.collect import gather
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.probes.base import Facts, Probe, ProbeFailed
from gpuprov.facts.probes.host import pci
from gpuprov.spec.build import convert
from gpuprov.spec.model import Fragment, RawHost, is_secret


def probes() -> tuple[Probe[Any], ...]:
    """Return every probe that export reads on a host: for its spec, and for the checks of that spec."""
    own_probes = (pci.NVIDIA_FUNCTIONS, *(probe for capability in CAPABILITIES for probe in capability.export_probes))
    return tuple({probe.name: probe for probe in (*own_probes, *defects.probes())}.values())


def spec_of(facts: Facts) -> tuple[Tree, list[str]]:
    """Build the `gpuprov` variable that describes the host, and a list of what could not be read."""
    spec: Tree = {}
    unread: list[str] = []
    try:
        models = [find_by_pci_id(gpu.identifier, gpu.subsystem) for gpu in pci.gpus(facts.get(pci.NVIDIA_FUNCTIONS))]
    except Exception as error:
        models = []
        unread.append(f"gpu: {_explain_error(error, 'the export of gpu')}")
    named = [model.key for model in models if model]
    if named and len(set(named)) == 1 and len(named) == len(models):
        spec["gpu"] = {"model": named[0], "count": len(named)}
    elif models:
        unread.append(f"gpu: {counted(len(models), 'GPU')} of several or unknown models; a spec names one")
    for capability in CAPABILITIES:
        try:
            fragment = capability.export(facts)
            block = as_written(fragment) if fragment is not None else None
            # What a host says is judged as what a person writes: a spec that check refuses is none.
            findings = convert(block, capability.fragment, (capability.name,))[1] if block else []
        except Exception as error:
            unread.append(f"{capability.name}: {_explain_error(error, f'the export of {capability.name}')}")
            continue
        if findings:
            unread.append(f"{capability.name}: {findings[0][1]}")
        elif block is not None:
            spec[capability.name] = block
    return spec, unread


def _explain_error(error: Exception, where: str) -> str:
    return str(error) if isinstance(error, ProbeFailed) else "; ".join(defect(where, error))


class Exported(msgspec.Struct, frozen=True):
    """An inventory for `check` and `verify`, facts that could not be read, and the hosts that could not be reached
    (`again`: their names)."""

    inventory: Tree
    notes: tuple[str, ...]
    unreachable: tuple[str, ...]
    # The partitions of GPUs, as a mig-parted file with one configuration for each host with MIG.
    mig_parted: Tree = {}
    again: tuple[str, ...] = ()


def export(
    hosts: Sequence[RawHost], *, mig_parted: bool = False, timeout: float = HOST_LIMIT, pace: Pace | None = None
) -> Exported:
    """Read the hosts, in `timeout` seconds each. Connection variables are carried over, secrets left out with a
    note."""
    gathered = gather([(raw, probes()) for raw in hosts], timeout=timeout, pace=pace)
    entries: Tree = {}
    notes: list[str] = []
    unreachable: list[str] = []
    again: list[str] = []
    configs: Tree = {}
    for raw in hosts:
        facts = gathered[raw.name]
        if isinstance(facts, UnreachableError):
            unreachable.append(str(facts))
            again.append(raw.name)
            continue
        spec, unread = spec_of(facts)
        notes += [f"{raw.name}: not exported: {text}" for text in unread]
        wrong = defects.doubts(facts, spec)
        notes += [f"{raw.name}: looks like a defect, and is not what the spec asks for: {text}" for text in wrong]
        secrets = [key for key in raw.connection if is_secret(key)]
        notes += [f"{raw.name}: {key} is a secret and was left out" for key in secrets]
        kept = {key: value for key, value in sorted(raw.connection.items()) if key not in secrets}
        entries[raw.name] = {**kept, "gpuprov": spec}
        if mig_parted:
            config, missing = mig_config(facts)
            configs |= {raw.name: config} if config else {}
            notes += [f"{raw.name}: not in the mig-parted file: {missing}"] if missing else []
    parted = {"version": "v1", "mig-configs": configs} if configs else {}
    return Exported({"all": {"hosts": entries}}, tuple(notes), tuple(unreachable), parted, tuple(again))


def mig_config(facts: Facts) -> tuple[list[Tree], str]:
    """Build the host's configuration for a mig-parted file, or the reason why it has none."""
    try:
        config = reality.parted(facts)
    except Exception as error:
        return [], _explain_error(error, "the export of a mig-parted file")
    return config, "" if config else "no GPU has MIG"


def as_written(fragment: Fragment) -> Tree:
    """Return the fields that differ from their defaults or have none; nested blocks likewise."""
    fields: Tree = {}
    for field in msgspec.structs.fields(fragment):
        value = getattr(fragment, field.name)
        if not field.required and value == (
            field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        ):
            continue
        fields[field.encode_name] = (
            as_written(value) if isinstance(value, Fragment) else msgspec.json.decode(msgspec.json.encode(value))
        )
    return fields
