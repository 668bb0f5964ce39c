"""The only way from data to files that Ansible reads: no string in them is a template.

A template runs code on the machine that reads it. Templates of an inventory are resolved when it is read, as Ansible
resolves them; from then on everything is data, whatever its source. Expressions for Ansible to evaluate are in roles
and playbooks only.
https://docs.ansible.com/ansible/latest/playbook_guide/playbooks_advanced_syntax.html#unsafe-or-raw-strings
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from gpuprov.core.sanitize import cleaned, hides

# Ansible's YAML tag for data that is not a template: for one string, or for everything below.
TAG = "!unsafe"
# The same in JSON, as `ansible-inventory --list` writes it.
JSON_KEY = "__ansible_unsafe"
_LIVE = re.compile(r"\{[{%#]|#jinja2:")
_MAGIC = "__ansible_"


def may_be_template(text: str) -> bool:
    """Return whether Ansible could take a trusted text for a template: delimiters, or the header that defines
    others."""
    return _LIVE.search(text) is not None


def document(value: object) -> str:
    """Return YAML for Ansible alone: nothing in it is a template, whatever it looks like."""
    import yaml

    try:
        written: str = yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=120)
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON may hold: all is ASCII
        written = yaml.safe_dump(value, sort_keys=False, width=120)
    return f"--- {TAG}\n{written}"


def text(value: object) -> str:
    """Return YAML for people and for Ansible: only strings (and keys) that look like templates are marked.

    If a string holds characters that a terminal would not show, all is ASCII, which reads back unchanged.
    """
    import yaml

    class Marking(yaml.SafeDumper):
        pass

    def string(dumper: yaml.SafeDumper, data: str) -> yaml.ScalarNode:
        # What is written otherwise where it is shown reads back as it was between double quotes alone.
        plain = cleaned(data) == data
        if may_be_template(data):
            return dumper.represent_scalar(TAG, data, style="'" if plain and data.isprintable() else '"')
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=None if plain else '"')

    Marking.add_representer(str, string)
    output: str = yaml.dump(value, Dumper=Marking, sort_keys=False, allow_unicode=True, width=120)
    return yaml.dump(value, Dumper=Marking, sort_keys=False, width=120) if hides(output) else output


def as_json(value: object) -> tuple[str, list[str]]:
    """Return JSON that Ansible reads with the same meaning, and the keys left out: JSON cannot mark a key as no
    template."""
    left_out: list[str] = []
    return json.dumps(_mark_unsafe(value, "", left_out), indent=2, ensure_ascii=False), left_out


def _mark_unsafe(value: object, place: str, left_out: list[str]) -> Any:
    if isinstance(value, str):
        return {JSON_KEY: value} if may_be_template(value) else value
    if isinstance(value, Mapping):
        marked = {}
        for key, item in value.items():
            if isinstance(key, str) and (may_be_template(key) or key.startswith(_MAGIC)):
                left_out.append(f"{place}: the key {json.dumps(key)}")
            else:
                marked[key] = _mark_unsafe(item, f"{place}.{key}" if place else str(key), left_out)
        return marked
    if isinstance(value, list | tuple):
        return [_mark_unsafe(item, f"{place}[{number}]", left_out) for number, item in enumerate(value)]
    return value
