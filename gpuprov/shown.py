"""What a person sees of a text from elsewhere: nothing in it drives a terminal or a CI, hides itself or turns the line around.

Hosts and inventories are not trusted: a host's name, a version or an error may hold escape sequences. Everything that gpuprov
prints or writes for people passes through `cleaned`: the console, the reports, the log of a run.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Sequence
from html import escape

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and line feed, DEL, C1
    "\xad\u061c\u180e\u200b-\u200f"  # no width, or a change of direction
    "\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # line breaks that are none here, directions, no width
    "\ud800-\udfff\ufffe\uffff"  # what no encoding and no XML can hold; https://www.w3.org/TR/xml/#charsets
    "\U000e0000-\U000e0fff]"  # tags: invisible letters
)
"""Changes of direction can make a line read as another: https://www.unicode.org/reports/tr36/#Bidirectional_Text_Spoofing"""
_ORDER = re.compile(r"#(?=#(?:vso|teamcity)?\[)|^(?P<before>[^\S\n]*):(?=:[A-Za-z-]+(?: [^\n]*)?::)", re.MULTILINE)
"""By which a line of a log gives orders to the CI that keeps it: to set variables, to send files, to hide words. Azure's and GitHub's
older ones may stand anywhere in a line: https://github.com/microsoft/azure-pipelines-agent/blob/master/src/Microsoft.VisualStudio.Services.Agent/Command.cs,
https://github.com/actions/runner/blob/main/src/Runner.Common/ActionCommand.cs, https://www.jetbrains.com/help/teamcity/service-messages.html"""
BOLD, FAINT, RED, GREEN, YELLOW, MAGENTA, CYAN = "1", "2", "31", "32", "33", "35", "36"
"""All that a terminal is told of how text looks; what anything else says of it is not passed on."""
_COLOUR = re.compile(f"(\x1b\\[(?:0|{'|'.join((BOLD, FAINT, RED, GREEN, YELLOW, MAGENTA, CYAN))})m)")


def cleaned(text: str, encoding: str = "") -> str:
    """The text with each hidden character as `\\u001b`, which JSON reads back as what it was; tabs and line feeds stay.

    `encoding`: what that cannot hold is written alike. So is the first character of what would be an order to a CI.
    """
    if _HIDDEN.search(text):
        text = _HIDDEN.sub(_named, text)
    if "##" in text or "::" in text:
        text = _ORDER.sub(_disarmed, text)
    if encoding:
        try:
            text.encode(encoding)
        except UnicodeEncodeError:
            text = re.sub("[^\x00-\x7f]", lambda found: _named(found) if _lost(found[0], encoding) else found[0], text)
    return text


def paint(text: str, code: str) -> str:
    """The text in one of these."""
    return f"\x1b[{code}m{text}\x1b[0m"


def painted(text: str, encoding: str = "") -> str:
    """The same for a text in gpuprov's own colours: these stay. Its parts that come from elsewhere are cleaned before."""
    return "".join(part if number % 2 else cleaned(part, encoding) for number, part in enumerate(_COLOUR.split(text)))


def wrapped(text: str, width: int, first: str = "", hang: str = "") -> list[str]:
    """One line in pieces of at most `width` (0: in one piece), broken between words alone: a name with hyphens stays a name.

    `first` and `hang` stand before its first line and before the others.
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
    """The same for a line that has its own indent: what follows is set in below it. 0: in one piece."""
    hang = " " * (len(text) - len(text.lstrip()) + 2)
    return wrapped(text, max(width, 20) if width else 0, hang=hang) or [""]


def in_markup(text: str) -> str:
    """The text for HTML and SVG: cleaned, and no tag."""
    return escape(cleaned(text))


def hides(text: str) -> bool:
    """Whether there is a character in the text that `cleaned` would replace."""
    return _HIDDEN.search(text) is not None


def _named(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2))


def _disarmed(found: re.Match[str]) -> str:
    return "\\u0023" if found["before"] is None else f"{found['before']}\\u003a"


def _lost(character: str, encoding: str) -> bool:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return True
    return False


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 GPU`, `0 GPUs`, `2 policies`."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith(("s", "x", "ch", "sh")):
        return f"{number} {noun}es"
    return f"{number} {noun[:-1]}ies" if re.search("[^aeiou]y$", noun) else f"{number} {noun}s"


def apart(hosts: Sequence[str], room: int) -> list[str]:
    """Each name in so much room; where what is cut off is what tells them apart, it is their common beginning that goes."""
    cut = [cut_to(host, room) for host in hosts]
    if len(set(cut)) == len(set(hosts)):
        return cut
    alike = next(place for place in range(len(hosts[0]) + 1) if len({host[: place + 1] for host in hosts}) > 1)
    begin = max(alike - room // 3, 0)
    return [cut_to(f"\u2026{host[begin:]}", room) for host in hosts]


def cut_to(text: str, room: int) -> str:
    """The text, or its beginning and an ellipsis."""
    return text if len(text) <= room else f"{text[: max(room - 1, 0)]}\u2026"
