"""Ansible's errors as problems: one line, the place, the fix."""

import re
from typing import Any

from gpuprov.core.masking import masked
from gpuprov.core.safe_parse import Unreadable, read_contents
from gpuprov.inventory import spelling
from gpuprov.inventory.origin import find_origin
from gpuprov.inventory.other_files import find_other_format
from gpuprov.inventory.sources import show_path
from gpuprov.spec.problem import Origin, Problem

_GIVE = "give --vault-password-file FILE or --ask-vault-pass"
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        r"no vault secrets found|vault password must be",
        "is encrypted with ansible-vault, and no password was given",
        _GIVE,
    ),
    (
        r"Decryption failed",
        "cannot be decrypted: none of the vault passwords given fits",
        "give the right one with --vault-password-file or --ask-vault-pass",
    ),
    (r"AnsibleVaultFormatError|not enough values to unpack", "is damaged: it begins like an ansible-vault text", ""),
    (
        "[Ii]nput is not vault encrypted data",
        "is marked !vault, and what follows is not an ansible-vault text",
        "ansible-vault encrypt_string makes one; leave !vault out of a plain value",
    ),
    (r"Tabs are usually invalid", "a tab is not allowed here", "indent with spaces"),
    (
        r"missing quotes around a template|found unhashable key",
        "a template that is not quoted",
        'write it as key: "{{ name }}"',
    ),
    (
        r"found character (['\"].['\"] )?that cannot start any token",
        "a value begins with a character that YAML keeps for itself: @, ` or %",
        "quote the whole value",
    ),
    (r"found undefined alias", "refers to an anchor (&NAME) that is not there", "quote a text that begins with *"),
    (
        r"could not determine a constructor for the tag '([^']+)'",
        r"the tag \1 is none that Ansible knows",
        "quote a text that begins with !",
    ),
    (r"Colons in unquoted values", "a colon inside a value that is not quoted", "quote the whole value"),
    (r"must end with the same quote", "a quote that does not end where the value ends", "quote the whole value once"),
    (r"surrogates not allowed|codec can't decode", "is not UTF-8 text", "save it as UTF-8"),
    (r"recursion depth exceeded|MemoryError", "is nested too deep, or refers to itself", ""),
    (
        r"could not be parsed as JSON|JSON decoder",
        "the inventory script printed something that is not inventory JSON",
        "",
    ),
    (
        r"Inventory script (did not end within [0-9.]+ s)",
        r"the inventory script \1 and was stopped",
        "run it by hand with --list and see what it waits for",
    ),
    (r"Failed to execute inventory script", "the inventory script cannot be run", 'check its "#!" line'),
)
_INDENTED = re.compile(
    r"while parsing a block (?:mapping|collection)\s+in \"[^\"]*\", line (?P<first>\d+), column (?P<own>\d+)"
    r"\s+did not find expected (?:key|'-' indicator)\s+in \"[^\"]*\", line (?P<line>\d+), column (?P<column>\d+)"
)
_NO_KEY = re.compile(
    r"while scanning a simple key\s+in \"[^\"]*\", line (?P<key>\d+), column \d+\s+could not find expected ':'"
    r"|mapping values are not allowed in this context\s+in \"[^\"]*\", line (?P<next>\d+), column \d+"
)
_NOISE = re.compile(
    r"^(YAML parsing failed|JSON parsing failed|Failed to parse inventory|Syntax error in template)[.:]\s*"
    r"|\.? Use -v+ to see paths searched"
)
_LINE_COLUMN = re.compile(r" \(at line (\d+), column (\d+)\)\Z")


MISSPELLINGS = (
    find_other_format,
    spelling.find_foreign_space,
    spelling.open_quote,
    spelling.open_bracket,
    spelling.find_open_section,
    spelling.find_byte_order_mark,
    spelling.find_shell_range,
    spelling.find_ini_assignment,
    spelling.find_section,
)


def convert_error(error: BaseException, file: str, subject: str = "the file") -> Problem:
    """Convert an error of Ansible to a problem; `file` is the source that was being read."""
    place = find_place(error) or Origin(show_path(file))
    whole = " | ".join(f"{type(cause).__name__}: {cause}" for cause in list_chain(error))
    stderr = extract_stderr(error)
    stderr_fix = f"it said: {stderr}" if stderr else ""
    if beyond := next((cause for cause in list_chain(error) if isinstance(cause, Unreadable)), None):
        return _convert_unreadable(beyond, place, file, stderr_fix)
    return (
        _find_misspelling(whole, place, file)
        or _convert_known(whole, place, subject, stderr_fix)
        or _convert_unknown(error, whole, place, file, stderr_fix)
    )


def _convert_unreadable(beyond: Unreadable, place: Origin, file: str, stderr_fix: str) -> Problem:
    position = (beyond.line, beyond.column) if beyond.line else None if place.line else _search(file, beyond.message)
    place = Origin(show_path(file) if file else place.file, *position) if position else place
    return Problem(
        message=beyond.message,
        origin=place,
        fix=stderr_fix or (f"allowed: {beyond.allowed}" if beyond.allowed else ""),
    )


def _find_misspelling(whole: str, place: Origin, file: str) -> Problem | None:
    """Find what a person wrote in the place of what the format wants."""
    for find in MISSPELLINGS:
        if problem := find(whole, place, read_lines(place, file)):
            return problem
    if problem := find_wrong_indentation(whole, place, file) or find_line_without_key(whole, place, file):
        return problem
    if "found unhashable key" in whole and not any("{{" in line for line in read_lines(place, file)):
        message = "a list or a mapping stands where a key belongs"
        return Problem(message=message, origin=place, fix="write a text there")
    return None


def _convert_known(whole: str, place: Origin, subject: str, stderr_fix: str) -> Problem | None:
    for pattern, message, fix in _KNOWN:
        if seen := re.search(pattern, whole):
            message = seen.expand(message)
            message = f"{subject} {message}" if message.startswith(("is ", "cannot ", "refers ")) else message
            return Problem(message=message, origin=place, fix=stderr_fix or fix)
    if unknown := re.search(r"specifies unknown plugin '([^']+)'", whole):
        message = f'there is no inventory plugin "{unknown[1]}"'
        return Problem(message=message, origin=place, fix="install its collection")
    return None


def _convert_unknown(error: BaseException, whole: str, place: Origin, file: str, stderr_fix: str) -> Problem:
    text = extract_reason(error)
    if "AnsibleYAMLParserError" in whole:
        text = f"not valid YAML: {text}"
    if counted := _LINE_COLUMN.search(text):
        text = text[: counted.start()]
        place = Origin(place.file, int(counted.group(1)), int(counted.group(2)))
    position = None if place.line or not file else _search(file, text)
    return Problem(message=text, origin=Origin(place.file, *position) if position else place, fix=stderr_fix)


def find_wrong_indentation(whole: str, place: Origin, file: str) -> Problem | None:
    """Return a problem for a line with another indentation than the block it continues; libyaml expects a key there."""
    seen = _INDENTED.search(whole)
    if not seen:
        return None
    first, own, line, column = (int(number) for number in seen.groups())
    lines = read_lines(place, file)
    if line > len(lines) or lines[line - 1][: column - 1].strip():
        return None
    message = f"this line is indented by {column - 1} spaces, and the block that began in line {first} by {own - 1}"
    fix = f"indent it by {own - 1} to belong to that block, or correct the lines between"
    return Problem(message=message, origin=Origin(place.file, line, column), fix=fix)


def find_line_without_key(whole: str, place: Origin, file: str) -> Problem | None:
    """Return a problem for a line between keys that is not a key: usually a colon without a space after it. YAML takes
    it for the start of the next line."""
    seen = _NO_KEY.search(whole)
    lines = read_lines(place, file)
    line = int(seen["key"] or int(seen["next"]) - 1) if seen else 0
    if not 0 < line < len(lines):
        return None
    text = lines[line - 1].strip()
    column = len(lines[line - 1]) - len(lines[line - 1].lstrip()) + 1
    if not re.match(r"[\w.-]+(:(?=\S)|\Z)", text) or lines[line][: column - 1].strip():
        return None
    key, colon, value = text.partition(":")
    message = "there is no space after the colon" if colon else "this line is not `key: value`"
    fix = f'write a space after "{key}:"' if value else f'write "{key}:" if it is a key'
    return Problem(message=message, origin=Origin(place.file, line, column), fix=fix)


def read_lines(place: Origin, file: str) -> list[str]:
    try:
        return read_contents(place.file if place.file and not file else file).decode().splitlines()
    except (OSError, ValueError):
        return []


def extract_reason(error: BaseException) -> str:
    """Return Ansible's message without its boilerplate, in one line."""
    innermost: BaseException = error
    for cause in list_chain(error):
        if str(cause).strip():
            innermost = cause
        if getattr(cause, "_include_cause_message", True) is False:
            break
    return clean_text(str(innermost))


def clean_text(text: str) -> str:
    """Return Ansible's text without boilerplate, in one line that can follow a colon."""
    text = _NOISE.sub("", " ".join(text.split())).rstrip(".")
    text = re.sub(r"<class '(?:[\w.]+\.)?_?(?:AnsibleTagged)?(\w+)'>", r"\1", text)
    text = re.sub(r"\[Errno \d+\] ([^:]+): '[^']*'\Z", r"cannot be read: \1", text)
    text = re.sub(r"TOML file '[^']*' is invalid: ", "not valid TOML: ", text)
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def list_chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and not any(current is known for known in chain):
        chain.append(current)
        current = current.__cause__
    return chain


def find_place(error: BaseException) -> Origin | None:
    best: Origin | None = None
    for cause in list_chain(error):
        obj: Any = getattr(cause, "obj", None)
        place = find_origin(obj) if obj is not None else None
        if place is not None and (best is None or (place.line and not best.line)):
            best = place
    return best


def extract_stderr(error: BaseException) -> str:
    """Return the last line that an inventory script wrote to standard error, without secrets."""
    for cause in list_chain(error):
        text = getattr(cause, "_help_text", None) or ""
        if text.startswith("Standard error from inventory script:"):
            lines = [line for line in text.splitlines()[1:] if line.strip()]
            return masked(lines[-1].strip())[0] if lines else ""
    return ""


def _search(file: str, text: str) -> tuple[int, int] | None:
    """Return line and column of the text that an INI error quotes; Ansible 2.19 loses the line."""
    quoted = re.findall(r"got: (.+)\Z|'([^']+)'|(\[[^\]]+\])|\"([^\"]+)\"", text)
    parts = [part for groups in quoted for part in groups if part]
    try:
        lines = read_contents(file).decode().splitlines()
    except (OSError, ValueError):
        return None
    for part in parts:
        for number, line in enumerate(lines, start=1):
            match = re.search(rf"(?<![\w-]){re.escape(part)}(?![\w-])", line)
            if match and not line.lstrip().startswith(("#", ";")):
                return number, match.start() + 1
    return None
