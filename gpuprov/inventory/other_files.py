"""Files that are not inventories in YAML: a playbook, a manifest of Kubernetes, an inventory in another format."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpuprov.inventory.origin import find_origin
from gpuprov.spec.model import BLOCKS
from gpuprov.spec.problem import Origin, Problem

_SECTION = re.compile(r"\[[\w.:-]+\]\s*\Z")
_NEXT_DOCUMENT = re.compile(r"---(\s|\Z)")


_INIT = "gpuprov init writes a first inventory"
# Keys at the top of other files, how many of them tell, what the file is, and the fix.
_OTHERS: tuple[tuple[frozenset[str], int, str, str], ...] = (
    (
        frozenset({"bootcmd", "hostname", "package_update", "packages", "runcmd", "ssh_authorized_keys", "users"}),
        2,
        "a cloud-init configuration",
        _INIT,
    ),
    (frozenset({"network"}), 1, "a netplan configuration", _INIT),
    (
        frozenset({"mig-configs"}),
        1,
        "a configuration of mig-parted",
        "in a spec write mig: {config_file: THIS FILE, selected: LABEL}",
    ),
    (
        frozenset({"daemonsets", "dcgmExporter", "devicePlugin", "driver", "migManager", "operator", "toolkit"}),
        2,
        "a values file of the GPU operator",
        "in a spec driver is nvidia_driver, toolkit container_toolkit, migManager mig, dcgmExporter dcgm",
    ),
    (
        frozenset(BLOCKS),
        1,
        "a spec without its hosts",
        "write it below gpuprov: all: {vars: {gpuprov: {...}}, hosts: {NAME: {}}}",
    ),
)
_SLURM = re.compile(r"\s*(NodeName|PartitionName|AutoDetect|Name|SlurmctldHost|ClusterName)=", re.IGNORECASE)


def name_other(document: Mapping[Any, Any]) -> tuple[str, str] | None:
    """Return what a mapping is, if its keys tell that it is not an inventory, and the fix."""
    groups = [
        key for key in document if isinstance(document[key], Mapping) and {"hosts", "children"} & {*document[key]}
    ]
    if groups:
        return None
    outputs = [value for value in document.values() if isinstance(value, Mapping) and {"value", "type"} <= {*value}]
    if outputs and len(outputs) == len(document):
        return "the output of Terraform", "write its addresses as hosts: all: {hosts: {NAME: {ansible_host: ADDRESS}}}"
    for keys, least, what, fix in _OTHERS:
        if len(keys & {str(key) for key in document}) >= least:
            return what, fix
    return None


def find_other_document(document: Any, file: str) -> Problem | None:
    """Return a problem for a document that is not an inventory, but is known for something else."""
    place = find_origin(document) or Origin(file)
    if isinstance(document, Mapping):
        if "apiVersion" in document and "kind" in document:
            message = f"this is a manifest of Kubernetes ({document['kind']}), and no inventory"
            return Problem(
                message=message, origin=place, fix="gpuprov init --from-kubernetes writes one from the nodes"
            )
        hosts = document.get("_meta")
        if isinstance(hosts, Mapping) and isinstance(hosts.get("hostvars"), Mapping):
            message = "this is the output of an inventory script, or of ansible-inventory --list"
            return Problem(message=message, origin=place, fix="ansible-inventory --list --yaml writes an inventory")
        if other := name_other(document):
            return Problem(message=f"this is {other[0]}, and no inventory", origin=place, fix=other[1])
    if isinstance(document, str) and _SLURM.match(document):
        fix = "gpuprov init --from-slurm FILE writes an inventory from it"
        return Problem(message="this is a file of Slurm's, and no inventory", origin=place, fix=fix)
    first = document[0] if isinstance(document, list) and document else None
    if isinstance(first, Mapping) and "hosts" in first:
        message = "this is a playbook, and no inventory"
        return Problem(message=message, origin=place, fix="put its gpuprov under vars of a group of the inventory")
    return None


def find_other_format(whole: str, place: Origin, lines: Sequence[str]) -> Problem | None:
    """Return a problem for a file of sections, or of several documents, that was read as one document of YAML."""
    if not re.search(r"<document start>|expected a single document", whole):
        return None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#") or (number == 1 and _NEXT_DOCUMENT.match(line)):
            continue
        if _SECTION.match(line):
            message = "a section in brackets is INI, and the file's name says YAML"
            return Problem(message=message, origin=Origin(place.file, number, 1), fix="rename it to end with .ini")
        break
    for number, line in enumerate(lines[1:], 2):
        if _NEXT_DOCUMENT.match(line) and any(text.strip() for text in lines[: number - 1]):
            message = "a second document begins here, and an inventory is one"
            fix = "take the --- out and put its groups into the first, or make it a file of its own"
            return Problem(message=message, origin=Origin(place.file, number, 1), fix=fix)
    return None
