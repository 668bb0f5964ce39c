"""The form of a YAML inventory: groups of hosts, vars and children. All faults at once, each at its place."""

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from ansible.errors import AnsibleError

from gpuprov.core.safe_parse import Unreadable, read_contents
from gpuprov.inventory import ranges
from gpuprov.inventory.origin import find_origin, strip_tags
from gpuprov.inventory.other_files import find_other_document
from gpuprov.spec.problem import Origin, Problem
from gpuprov.spec.shown import show

SECTIONS = ("hosts", "vars", "children")


def judge(document: Any, file: str) -> Iterator[Problem]:
    """Yield every fault in the form of a YAML inventory document; harmless ones are warnings."""
    if document is None or document == {}:
        yield Problem(message="the inventory is empty", origin=Origin(file), fix="write all: {hosts: {NAME: {}}}")
        return
    if other := find_other_document(document, file):
        yield other
        return
    if not isinstance(document, Mapping):
        place = find_origin(document) or Origin(file)
        yield Problem(message=f"the inventory is {show(document)}", origin=place, fix="allowed: a mapping of groups")
        return
    for name, body in document.items():
        if name == "gpuprov":
            yield Problem(message='"gpuprov" stands where a group belongs', origin=find_origin(name), fix=_VARIABLE)
        elif name in SECTIONS:
            fix = f'put it into a group: "all: {{{name}: ...}}"'
            yield Problem(message=f'"{name}" stands where a group belongs', origin=find_origin(name), fix=fix)
        elif _is_anchor(name, body):
            message = f'"{name}" holds an anchor, and Ansible takes it for a group without hosts'
            fix = f'under vars of a group it is a variable: "all: {{vars: {{{name}: ...}}}}"'
            yield Problem(message=message, origin=find_origin(name), fix=fix, severity="warning")
        else:
            yield from check_group(name, body, find_origin(document) or Origin(file))


_VARIABLE = "it is a variable: put it under vars of a group, or under a host"


def _is_anchor(name: Any, body: Any) -> bool:
    """Return whether a top-level key has no content of a group, only an anchor for other places."""
    # Ansible skips its contents with a warning.
    place = find_origin(name)
    if not isinstance(name, str) or body is None or place is None or not place.line:
        return False
    if isinstance(body, Mapping) and any(get_close_matches(str(key), (*SECTIONS, "gpuprov"), 1, 0.6) for key in body):
        return False
    try:
        line = read_contents(place.file).decode().splitlines()[place.line - 1]
    except (OSError, Unreadable, ValueError, IndexError):
        return False
    return re.match(rf"""["']?{re.escape(name)}["']?[ ]*:[ ]+&[^\s,\[\]{{}}]""", line) is not None


def list_groups(groups: Mapping[Any, Any]) -> Iterator[str]:
    """Yield the groups that declare hosts or children, even empty, in a document without faults."""
    for name, body in groups.items():
        if not isinstance(body, Mapping):
            continue
        if "hosts" in body or "children" in body:
            yield str(strip_tags(name))
        if isinstance(children := body.get("children"), Mapping):
            yield from list_groups(children)


def check_group(name: Any, body: Any, above: Origin | None) -> Iterator[Problem]:
    place = find_origin(name) or above
    if not isinstance(name, str):
        yield Problem(
            message=f"a group is called {show(strip_tags(name))}", origin=place, fix="allowed: a name (quote it)"
        )
        return
    if body is None:
        return
    if not isinstance(body, Mapping):
        yield Problem(message=f'group "{name}" is {show(body)}', origin=place, fix=f"allowed: {', '.join(SECTIONS)}")
        return
    for key, section in body.items():
        yield from check_section(key, section, name, place)


def check_section(key: Any, section: Any, group: str, place: Origin | None) -> Iterator[Problem]:
    if key == "gpuprov":
        yield Problem(message=f'"gpuprov" stands directly in group "{group}"', origin=find_origin(key), fix=_VARIABLE)
    elif key not in SECTIONS:
        close = get_close_matches(str(key), SECTIONS, n=1, cutoff=0.6)
        fix = f'did you mean "{close[0]}"?' if close else f"allowed: {', '.join(SECTIONS)}"
        yield Problem(message=f'unknown key "{key}" in group "{group}"', origin=find_origin(key) or place, fix=fix)
    elif section is None:
        return
    elif isinstance(section, str) and key != "vars" and not re.search(r"[\s,]", section.strip()):
        if key == "hosts":
            yield from check_host(section, None, group, find_origin(key))
    elif not isinstance(section, Mapping):
        allowed = "a mapping of variables" if key == "vars" else 'a mapping (write "NAME:" for each)'
        message = f'{key} of group "{group}" is {show(section)}'
        yield Problem(message=message, origin=find_origin(key), fix=f"allowed: {allowed}")
    elif key == "vars":
        yield from check_names(section, f'variables of group "{group}"', place)
        yield from find_outdented(section)
        yield from find_misplaced(section, f'among the variables of group "{group}"')
    elif key == "children":
        for child, child_body in section.items():
            yield from check_group(child, child_body, find_origin(key))
    elif key == "hosts":
        for host, variables in section.items():
            yield from check_host(host, variables, group, find_origin(key))


def check_names(variables: Mapping[Any, Any], what: str, above: Origin | None) -> Iterator[Problem]:
    """Yield a fault for each variable whose name is not text: YAML reads an unquoted 5, true or null as something
    else."""
    for name in variables:
        if not isinstance(name, str):
            message = f"{what}: the name {show(strip_tags(name))} is not text"
            yield Problem(message=message, origin=find_origin(name) or above, fix="allowed: a name (quote it)")


def check_host(name: Any, variables: Any, group: str, above: Origin | None) -> Iterator[Problem]:
    if not isinstance(name, str):
        message = f'a host of group "{group}" is called {show(strip_tags(name))}'
        yield Problem(message=message, origin=find_origin(name) or above, fix="allowed: a name (quote it)")
        return
    if variables is not None and not isinstance(variables, Mapping):
        message = f'host "{name}" is {show(strip_tags(variables) if isinstance(variables, str | int) else variables)}'
        address = isinstance(variables, str) and re.fullmatch(r"[0-9.]{7,15}|[0-9a-fA-F:]{2,39}", variables)
        fix = f"write {{ansible_host: {json.dumps(variables)}}}" if address else "allowed: a mapping of variables"
        yield Problem(message=message, origin=find_origin(name), fix=fix)
    elif variables:
        yield from check_names(variables, f'variables of host "{name}"', find_origin(name))
        yield from find_outdented(variables)
        yield from find_misplaced(variables, f'below host "{name}"')
    if "[" in name:
        try:
            ranges.judge(name)
            ranges.expand(name)
        except Unreadable as error:
            yield Problem(message=error.message, origin=find_origin(name), fix=f"allowed: {error.allowed}")
        except (AnsibleError, ValueError) as error:
            message = f'the range in "{name}" cannot be read'
            detail = str(error) if isinstance(error, AnsibleError) else "begin and end must both be numbers or letters"
            meant = ranges.correct_range(name)
            fix = f"write {meant}" if meant else f"{detail}; for example gpu[01:16]"
            yield Problem(message=message, origin=find_origin(name), fix=fix)
    elif meant := ranges.correct_range(name):
        message = f'"{name}" is one host to Ansible, and not a range'
        yield Problem(message=message, origin=find_origin(name), fix=f"write {meant}")


def find_outdented(variables: Mapping[Any, Any]) -> Iterator[Problem]:
    """Yield a fault for an empty `gpuprov` whose blocks stand beside it: they lack their indentation."""
    names = list(variables)
    if "gpuprov" not in names or variables["gpuprov"] is not None:
        return
    after = names[names.index("gpuprov") + 1 :]
    if blocks := ", ".join(str(name) for name in after if isinstance(variables[name], Mapping)):
        message = f"gpuprov is empty, and {blocks} beside it is no part of it"
        fix = f"indent {blocks} by two more spaces than gpuprov"
        yield Problem(message=message, origin=find_origin(names[names.index("gpuprov")]), fix=fix)


def find_misplaced(variables: Mapping[Any, Any], where: str) -> Iterator[Problem]:
    """Yield a fault for each `gpuprov` in a group's section that is written among variables of a YAML inventory, where
    it is just another variable."""
    for section in SECTIONS:
        for key in list_specs(variables.get(section)):
            yield Problem(
                message=f'"{section}" {where} is a variable, and the gpuprov in it reaches no host',
                origin=find_origin(key),
                fix=f"write gpuprov in place of {section}" if section == "vars" else f"put {section} below a group",
            )


def list_specs(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key == "gpuprov":
                yield key
            else:
                yield from list_specs(item)


def find_repeated(data: bytes, place: str) -> Iterator[Problem]:
    """Yield a problem for each `gpuprov` that a section of variables of an INI inventory has had before: the last one
    would count alone."""
    first, in_variables = 0, False
    for number, line in enumerate(data.splitlines(), 1):
        if line.lstrip().startswith(b"["):
            first, in_variables = 0, line.strip().partition(b"]")[0].endswith(b":vars")
        elif in_variables and line.partition(b"=")[0].strip() == b"gpuprov":
            if first:
                message = f'"gpuprov" is written twice in this section; the first is in line {first}'
                yield Problem(message=message, origin=Origin(place, number, 1), fix="remove one of them")
            first = first or number
