"""Values of --extra-vars, read as Ansible does: `key=value` words, YAML or JSON, or @FILE. They come last, and override
the others."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible._internal._datatag._tags import Origin as Tag
from ansible.cli.arguments import option_helpers
from ansible.errors import AnsibleError
from ansible.parsing.splitter import parse_kv

from gpuprov.core.safe_parse import Tree, Unreadable, parse_yaml
from gpuprov.core.sanitize import has_secrets
from gpuprov.inventory.data import DOTTED, format_nested
from gpuprov.inventory.findings import Findings
from gpuprov.inventory.loader import Loader
from gpuprov.inventory.origin import strip_tags
from gpuprov.inventory.reasons import convert_error
from gpuprov.spec.model import is_secret
from gpuprov.spec.problem import Origin
from gpuprov.spec.shown import show

OPTION = "--extra-vars"
# Ansible's key for words that are not NAME=VALUE. Nothing reads it.
RAW = "_raw_params"
EXAMPLE = """-e '{"gpuprov": {"nouveau": {}}}'"""


def read(loader: Loader, given: Sequence[str], findings: Findings) -> Tree:
    """Return the variables of all options, later ones overriding earlier ones; add problems to the findings."""
    variables: Tree = {}
    for text in given:
        try:
            parsed = parse_option(loader, text)
        except AnsibleError as error:
            findings.take(
                convert_error(error, text[1:]) if text.startswith("@") else find_mark(convert_error(error, OPTION))
            )
            continue
        if not isinstance(parsed, Mapping) or RAW in parsed or not all(isinstance(name, str) for name in parsed):
            fix = f"allowed: NAME=VALUE, a mapping in YAML or JSON ({EXAMPLE}), or @FILE" + suggest_whole(text)
            bad = (
                strip_tags(parsed[RAW]) if isinstance(parsed, Mapping) and RAW in parsed else text
            )  # what stands beside may be secret
            findings.add(f"{OPTION} is {show(bad)}", None, fix=fix)
            continue
        for name in [name for name in parsed if name.startswith(DOTTED)]:
            fix = f"""write it as JSON: -e '{{"gpuprov": {format_nested(name, strip_tags(parsed[name]))}}}'"""
            findings.add(f"{OPTION}: nothing reads {show(str(strip_tags(name)))}", None, fix=fix)
        secrets = [] if text.startswith("@") else [name for name in parsed if is_secret(name)]
        for name in secrets:
            fix = "write it in a file of mode 0600 and give -e @FILE; or --ask-become-pass"
            findings.add(f"{OPTION}: {name} would be seen by every user of this machine (ps)", None, fix=fix)
        # A name is looked up as it was written, without the tags of where.
        variables |= {str(strip_tags(name)): value for name, value in parsed.items()}
    return variables


def suggest_whole(text: str) -> str:
    """Return how to write a mapping given as NAME={...}, whose values end at the first space; empty for others."""
    seen = re.fullmatch(r"([A-Za-z_]\w*)=(\{.*\})", text.strip())
    try:
        value = parse_yaml(seen[2]) if seen and not is_secret(seen[1]) else None
    except Unreadable:
        return ""
    if not seen or not isinstance(value, dict) or has_secrets():
        return ""
    return f"; write -e '{json.dumps({seen[1]: value}, ensure_ascii=False, default=str)}'"


def parse_option(loader: Loader, text: str) -> Any:
    if text.startswith("@"):
        return loader.load_from_file(text[1:], cache="none", trusted_as_template=True)
    # Ansible's own parser says what of a command line it trusts as a template.
    parser = option_helpers.create_base_parser("gpuprov")
    option_helpers.add_runtask_options(parser)
    tagged = Tag(description=OPTION).tag(parser.parse_args([f"{OPTION}={text}"]).extra_vars[-1])
    return loader.load(tagged) if text[:1] in ("[", "{") else parse_kv(tagged)


def find_mark(problem: Any) -> Any:
    from msgspec.structs import replace

    return replace(problem, origin=Origin(OPTION))
