"""Files that are no inventory in YAML: a playbook, a manifest of Kubernetes, an inventory in another format."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpuprov.inventory.origin import find_origin
from gpuprov.spec.problem import Origin, Problem

_SECTION = re.compile(r"\[[\w.:-]+\]\s*\Z")
_NEXT_DOCUMENT = re.compile(r"---(\s|\Z)")


def find_other_document(document: Any, file: str) -> Problem | None:
    """Return a problem for a document that is no inventory, but is known for something else."""
    place = find_origin(document) or Origin(file)
    if isinstance(document, Mapping):
        if "apiVersion" in document and "kind" in document:
            message = f"this is a manifest of Kubernetes ({document['kind']}), and no inventory"
            return Problem(
                message=message, origin=place, hint="gpuprov init --from-kubernetes writes one from the nodes"
            )
        hosts = document.get("_meta")
        if isinstance(hosts, Mapping) and isinstance(hosts.get("hostvars"), Mapping):
            message = "this is the output of an inventory script, or of ansible-inventory --list"
            return Problem(message=message, origin=place, hint="ansible-inventory --list --yaml writes an inventory")
    first = document[0] if isinstance(document, list) and document else None
    if isinstance(first, Mapping) and "hosts" in first:
        message = "this is a playbook, and no inventory"
        return Problem(message=message, origin=place, hint="put its gpuprov under vars of a group of the inventory")
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
            return Problem(message=message, origin=Origin(place.file, number, 1), hint="rename it to end with .ini")
        break
    for number, line in enumerate(lines[1:], 2):
        if _NEXT_DOCUMENT.match(line) and any(text.strip() for text in lines[: number - 1]):
            message = "a second document begins here, and an inventory is one"
            hint = "take the --- out and put its groups into the first, or make it a file of its own"
            return Problem(message=message, origin=Origin(place.file, number, 1), hint=hint)
    return None
