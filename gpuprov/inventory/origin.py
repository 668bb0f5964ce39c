"""The only module that uses Ansible's private tags: the place where a loaded value was written, and its plain Python
value."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ansible._internal._datatag._tags import Origin as Tag
from ansible._internal._datatag._tags import SourceWasEncrypted
from ansible.module_utils._internal._datatag import AnsibleTagHelper
from ansible.parsing.vault import EncryptedString
from ansible.template import is_trusted_as_template

from gpuprov.core.sanitize import hide
from gpuprov.core.unsafe_yaml import may_be_template
from gpuprov.inventory.sources import show_path
from gpuprov.spec.model import is_secret
from gpuprov.spec.problem import Origin

_ASSIGNED = re.compile(r"""=[ \t]*(?:["']([^"'\n]*)["']|(\S+))""")
_QUOTED_PATH = re.compile(r"'(/[^']*)'")
# Lookups whose results are secrets because of the lookup's name; for env, file and others, the name of the item
# decides.
SECRET_LOOKUPS = re.compile(r"(\A|\.)(pipe|password)\Z|vault|pass|secret|keyring|token")
_names: dict[tuple[str, str], str] = {}


def find_origin(value: Any) -> Origin | None:
    """Return the place where Ansible says the value was written; None for a value without a tag (true, false, null,
    computed)."""
    tag = value if isinstance(value, Tag) else Tag.get_tag(value)
    return None if tag is None else convert_origin(tag)


def convert_origin(tag: Any) -> Origin:
    """Convert Ansible's place to ours; an INI source has lines but no columns: column 1."""
    if tag.path is None:
        match = _QUOTED_PATH.search(tag.description or "")
        return Origin(shorten_path(match.group(1)) if match else str(tag.description))
    return (
        Origin(shorten_path(tag.path), tag.line_num or 0, tag.col_num or 1)
        if tag.line_num
        else Origin(shorten_path(tag.path))
    )


def is_template(value: Any) -> bool:
    """Return whether Ansible would resolve this value as a Jinja template."""
    return isinstance(value, str) and may_be_template(value) and bool(is_trusted_as_template(value))


def is_vaulted(value: Any) -> bool:
    """Return whether the value is an inline `!vault` secret, decrypted on use."""
    return isinstance(value, EncryptedString)


def strip_tags(value: Any) -> Any:
    """Return a scalar without tags, in its exact Python type. A vaulted value is decrypted; Ansible's error is passed
    on."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, EncryptedString):
        return str.__str__(AnsibleTagHelper.as_native_type(value + ""))
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return AnsibleTagHelper.as_native_type(value)


def hide_encrypted(document: Any) -> None:
    """Mask every text of a document if its file was encrypted; `!vault` values are hidden when they are decrypted."""
    if SourceWasEncrypted.is_tagged_on(document):
        for text in list_scalars(document):
            hide(text)


def hide_encrypted_text(text: str) -> None:
    """Do the same for the text of an INI inventory: everything after each `=`."""
    if SourceWasEncrypted.is_tagged_on(text):
        for quoted, bare in _ASSIGNED.findall(text):
            hide(quoted or bare)


def list_scalars(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from list_scalars(item)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from list_scalars(item)
    elif isinstance(value, EncryptedString):
        return
    elif isinstance(value, str):
        yield str.__str__(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def hide_decrypted() -> None:
    """Mask every `!vault` value as soon as it is decrypted, wherever Ansible does so (a template, a plugin)."""
    decrypt = EncryptedString._decrypt
    if getattr(decrypt, "hides", False):
        return

    def hiding(self: Any) -> str:
        text: str = decrypt(self)
        hide(str.__str__(AnsibleTagHelper.as_native_type(text)))
        return text

    hiding.hides = True  # type: ignore[attr-defined]
    EncryptedString._decrypt = hiding


def hide_looked_up() -> None:
    """Mask the results of lookups in templates if they are secrets by the kind or name of the lookup."""
    from ansible._internal._templating import _jinja_plugins as jinja

    look_up: Any = getattr(jinja, "_invoke_lookup", None)
    if look_up is None or getattr(look_up, "hides", False):
        return

    def hiding(*, plugin_name: str, lookup_terms: list[Any], **named: Any) -> Any:
        values = look_up(plugin_name=plugin_name, lookup_terms=lookup_terms, **named)
        if SECRET_LOOKUPS.search(plugin_name) or any(is_secret(term) for term in list_scalars(lookup_terms)):
            for text in list_scalars(values):
                hide(text)
        return values

    hiding.hides = True  # type: ignore[attr-defined]
    jinja._invoke_lookup = hiding


def shorten_path(path: str) -> str:
    import os

    key = (os.getcwd(), path)
    if key not in _names:
        _names[key] = show_path(path)
    return _names[key]
