"""A line and the message in it: the text beside the message, and the boundaries of its words."""

import re
from collections.abc import Iterable

XID = re.compile(r"(?<!\w)(xid)\s*+(?:\([^)]{0,100}+\)\s*+)?(?::\s*+)?(\d++)(?!\w)", re.IGNORECASE)
_OF_NVIDIA = re.compile(r"NVRM|nvidia|(?<![a-z])gpu", re.IGNORECASE)
# Words of databases, DHCP and RPC, which use xid for identifiers of their own.
_OF_OTHERS = re.compile(
    r"transaction|postgres|wraparound|vacuum|mysql|innodb|dhc|bootp|(?<![a-z])(nfs|rpc|xa)(?![a-z])", re.IGNORECASE
)
# The time and the host at the beginning of a line of syslog or of the journal.
_HOST = re.compile(r"(\S+ +\d+ \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d[t ]\d\d:\d\d:\S+) [^ :\[\]]+ (?=\S)", re.IGNORECASE)


def strip_host(line: str) -> str:
    """Return a line without the time and the host in front of it."""
    return line[host.end() :] if (host := _HOST.match(line)) else line


def find_xid(text: str) -> str:
    """Return the number of the Xid that a text names; "" if it names none, or an xid of another program."""
    text = strip_host(text)
    match = XID.search(text)
    if match is None or _OF_NVIDIA.search(text):
        return match[2] if match else ""
    small = match[1] == "xid" and re.search(r"\w", text[: match.start()] + text[match.end() :])
    return "" if small or _OF_OTHERS.search(text) else match[2]


QUOTES = str.maketrans(
    {"\\": None}
    | dict.fromkeys('"\u201c\u201d\u201e\u00ab\u00bb', " ")
    | dict.fromkeys("\u2018\u2019\u201a\u2032\u00b4`", "'")
)


def fold(text: str) -> str:
    """Normalise a text for comparison: without quotes, case and runs of blanks; web pages and programs write ' as a
    curved one or as `, and logs put a backslash before a quote within quotes."""
    return " ".join(text.translate(QUOTES).split()).casefold()


_STAMP = re.compile(r"(\[ *[\d.]+\] *|\[?\d{4}[-/]\d\d[-/]\d\d[t ][\d:.,]+z?\]? |kernel: |error: |warning: )*")


def is_whole_line(signature: str, line: str) -> bool:
    """True if a folded line consists of the signature only."""
    bare = _STAMP.sub("", line, count=1)
    return signature.rstrip(" .:!,") in (line.rstrip(" .:!,"), bare.rstrip(" .:!,"))


def compile_any(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for one of these words, or its plural: `nvidia` is in nvidia-dkms and in nvidia0, `mig` not in
    migration, and `gpu` not in gpu01, which is a host."""
    return re.compile("|".join(map(format_word, words)))


def format_word(word: str) -> str:
    text = fold(word)
    before = r"(?<![a-z0-9])" if text[0].isalnum() else ""
    after = r"s?(?![a-z0-9-])" if text == "gpu" else r"s?(?![a-z])" if text[-1].isalpha() else ""
    return f"{before}{re.escape(text)}{after}"
