"""Safe output of external text: nothing in it controls a terminal or a CI, hides itself or changes the direction of the
line.

Hosts and inventories are not trusted: a host's name, a version or an error may hold escape sequences. Everything that
gpuprov prints or writes for people passes through `cleaned`: the console, the reports, the log of a run. It also masks
values from a vault, and user names and passwords in URLs, wherever they appear.
"""

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

# Changes of direction can make a line read as another:
# https://www.unicode.org/reports/tr36/#Bidirectional_Text_Spoofing
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and line feed, DEL, C1
    "\xad\u061c\u180e\u200b-\u200f"  # no width, or a change of direction
    "\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # line breaks that are none here, directions, no width
    "\ud800-\udfff\ufffe\uffff"  # what no encoding and no XML can hold; https://www.w3.org/TR/xml/#charsets
    "\U000e0000-\U000e0fff]"  # tags: invisible letters
)
# Lines in a log that are commands to the CI that keeps it: to set variables, send files, hide words. Azure's and
# GitHub's older ones may be anywhere in a line:
# https://github.com/microsoft/azure-pipelines-agent/blob/master/src/Microsoft.VisualStudio.Services.Agent/Command.cs,
# https://github.com/actions/runner/blob/main/src/Runner.Common/ActionCommand.cs,
# https://www.jetbrains.com/help/teamcity/service-messages.html
_ORDER = re.compile(r"#(?=#(?:vso|teamcity)?\[)|^(?P<before>[^\S\n]*):(?=:[A-Za-z-]+(?: [^\n]*)?::)", re.MULTILINE)
# All styles that gpuprov sends to a terminal; styles in external text are not passed on.
BOLD, FAINT, RED, GREEN, YELLOW, MAGENTA, CYAN = "1", "2", "31", "32", "33", "35", "36"
_COLOUR = re.compile(f"(\x1b\\[(?:0|{'|'.join((BOLD, FAINT, RED, GREEN, YELLOW, MAGENTA, CYAN))})m)")
MASK = "********"
# Minimum length of a secret that is masked anywhere; a shorter one is masked only as a whole value.
SHORTEST = 6
# User name and password in a URL, up to the last @ before the path; also a password with an unescaped slash, and a URL
# that was taken for a path, which then has one slash.
_LOGIN = re.compile(
    r"(?:(?<=://)|(?<=https:/)|(?<=http:/))(?![/])(?!\*\*\*|\[)(?:[^/\s\"'<>]+@|"
    r"[^/\s\"'<>@:\[\]\\]{1,200}:(?![0-9]{1,5}(?:[/\s\"']|\Z))[^\s\"'<>@]{0,200}@)"
)
# The same before a host without a scheme, USER:PASSWORD@HOST, outside of URLs; not an image's tag before its digest.
_BARE_LOGIN = re.compile(
    r"[a-z][a-z0-9+.-]{1,20}://\S*|(?P<login>(?<![\w@/.%+-])(?!(?:mailto|sips?|xmpp|acct|from|to|by):)"
    r"[a-z_][\w.%+-]{0,63}:[^\s/\"'<>,;(){}\[\]]{1,100})@(?!sha[0-9]{3}:)(?=\[[0-9a-f:]|[a-z0-9])",
    re.IGNORECASE | re.ASCII,
)
_secrets: set[str] = set()
_begins: dict[str, list[str]] = {}


def hide(text: str) -> None:
    """Mask this text from now on, wherever it appears: a value from a vault. If it has several lines, each line,
    too."""
    import json

    for line in {text, *text.splitlines()}:
        plain = line.strip()
        if len(plain) < SHORTEST and (len(plain) < 3 or not plain.strip("0123456789")):  # it stands in too much else
            continue
        forms = {plain, json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1]}
        for form in forms - {MASK, *_secrets}:
            _secrets.add(form)
            if len(form) >= SHORTEST:
                known = _begins.setdefault(lowered(form[:SHORTEST]), [])
                known.append(lowered(form))
                known.sort(key=len, reverse=True)


def reveal(words: Iterable[str] | None = None) -> None:
    """Stop masking these words, since they are gpuprov's own; without words, unmask everything."""
    if words is None:
        _secrets.clear()
        _begins.clear()
        return
    own = set(map(lowered, words))
    for word in [word for word in _secrets if lowered(word) in own]:
        _secrets.discard(word)
        if lowered(word) in (known := _begins.get(lowered(word[:SHORTEST]), [])):
            known.remove(lowered(word))


def has_secrets() -> bool:
    """Return whether anything is hidden."""
    return bool(_secrets)


def is_hidden(text: str) -> bool:
    """Return whether the text is a hidden one."""
    return text in _secrets


def lowered(text: str) -> str:
    """Return the text in lower case, with every character at the same index."""
    small = text.lower()
    return small if len(small) == len(text) else "".join(min(letter.lower(), letter, key=len) for letter in text)


def secrets_in(text: str, begins: Mapping[str, Sequence[str]]) -> Iterator[tuple[int, str]]:
    """Yield the secrets in a text, and their positions. They are looked up by their beginnings: there may be one for
    each host."""
    size, end = len(next(iter(begins), "")), 0
    for at in range(len(text) - size + 1) if size else ():
        known = begins.get(text[at : at + size], ()) if at >= end else ()
        if secret := next((candidate for candidate in known if text.startswith(candidate, at)), ""):
            yield at, secret
            end = at + len(secret)


def has_login(text: str) -> bool:
    """Return whether the text contains a URL with a user name or a password."""
    return masked_logins(text) != text


def masked_logins(text: str) -> str:
    """Return the text without user names and passwords before hosts."""
    if "@" not in text or ":" not in text:
        return text
    text = _LOGIN.sub(f"{MASK}@", text) if ":/" in text else text
    return mask_bare_logins(text, MASK)[0]


def mask_bare_logins(text: str, mask: str) -> tuple[str, int]:
    """Return the text without USER:PASSWORD before hosts that have no scheme, and their number."""
    count = 0

    def hide_login(match: re.Match[str]) -> str:
        nonlocal count
        if not match["login"]:
            return match[0]
        count += 1
        return f"{mask}@"

    return (_BARE_LOGIN.sub(hide_login, text), count) if "@" in text else (text, 0)


def masked(text: str) -> str:
    """Return the text without values from a vault, and without user names and passwords before hosts."""
    text = masked_logins(text)
    if _begins:
        parts, end = [], 0
        for at, secret in secrets_in(lowered(text), _begins):  # ssh writes names of hosts in small letters
            parts += [text[end:at], MASK]
            end = at + len(secret)
        text = "".join([*parts, text[end:]])
    return text


def cleaned(text: str, encoding: str = "") -> str:
    """Return the text without secrets (`masked`), each hidden character as `\\u001b`, which JSON reads back unchanged;
    tabs and line feeds stay.

    `encoding`: characters that it cannot hold are escaped in the same way. So is the first character of a command to a
    CI.
    """
    text = masked(text)
    if _HIDDEN.search(text):
        text = _HIDDEN.sub(_name_character, text)
    if "##" in text or "::" in text:
        text = _ORDER.sub(_disarm_line, text)
    if encoding:
        try:
            text.encode(encoding)
        except UnicodeEncodeError:
            text = re.sub(
                "[^\x00-\x7f]", lambda match: _name_character(match) if _is_lost(match[0], encoding) else match[0], text
            )
    return text


def paint(text: str, code: str) -> str:
    """Return the text in one of these styles."""
    return f"\x1b[{code}m{text}\x1b[0m"


def painted(text: str, encoding: str = "") -> str:
    """Clean a text in gpuprov's own colours, which stay. Its external parts have been cleaned before."""
    return "".join(part if number % 2 else cleaned(part, encoding) for number, part in enumerate(_COLOUR.split(text)))


def wrapped(text: str, width: int, first: str = "", hang: str = "") -> list[str]:
    """Break a line into pieces of at most `width` (0: one piece), between words only: a name with hyphens stays a name.

    `first` and `hang` are the prefixes of its first line and of the others.
    """
    return textwrap.wrap(
        text,
        width or sys.maxsize,
        initial_indent=first,
        subsequent_indent=hang,
        break_long_words=False,
        break_on_hyphens=False,
    )


def hanging(text: str, width: int) -> list[str]:
    """Do the same for a line with its own indent: the following lines are indented below it. 0: one piece."""
    indent = " " * (len(text) - len(text.lstrip()))
    return wrapped(text.lstrip(), max(width, 20) if width else 0, first=indent, hang=f"{indent}  ") or [""]


def in_markup(text: str) -> str:
    """Return the text for HTML and SVG: cleaned and escaped."""
    return escape(cleaned(text))


def hides(text: str) -> bool:
    """Return whether the text contains a character that `cleaned` would replace."""
    return _HIDDEN.search(text) is not None


def _name_character(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2))


def _disarm_line(match: re.Match[str]) -> str:
    return "\\u0023" if match["before"] is None else f"{match['before']}\\u003a"


def _is_lost(character: str, encoding: str) -> bool:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return True
    return False


def fold_paths(paths: Iterable[str]) -> list[str]:
    """Write paths of one folder as one, FOLDER/{A,B}, as a shell takes them; other names as they are."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/") if path.startswith("/") else (path, "", "")
        folders.setdefault(folder, []).append(name)
    return [
        f"{folder}/{{{','.join(each)}}}" if len(each) > 1 else f"{folder}/{each[0]}" if each[0] else folder
        for folder, each in folders.items()
    ]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 GPU`, `0 GPUs`, `2 policies`."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith(("s", "x", "ch", "sh")):
        return f"{number} {noun}es"
    return f"{number} {noun[:-1]}ies" if re.search(r"[^aeiou]y\Z", noun) else f"{number} {noun}s"


def apart(hosts: Sequence[str], room: int) -> list[str]:
    """Return each name in this width; if the ends tell the names apart, their common beginning is cut instead."""
    cut = [cut_to(host, room) for host in hosts]
    if len(set(cut)) == len(set(hosts)):
        return cut
    alike = next(place for place in range(len(hosts[0]) + 1) if len({host[: place + 1] for host in hosts}) > 1)
    begin = max(alike - room // 3, 0)
    return [cut_to(f"\u2026{host[begin:]}", room) for host in hosts]


def cut_to(text: str, room: int) -> str:
    """Return the text, or its beginning and an ellipsis."""
    return text if len(text) <= room else f"{text[: max(room - 1, 0)]}\u2026"
