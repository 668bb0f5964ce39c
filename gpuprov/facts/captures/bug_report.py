"""nvidia-bug-report.log: sections between lines of underscores, each a file (`*** PATH`) or a command with its output.

The form is that of the script nvidia-bug-report.sh of NVIDIA's drivers 390 to 595: that of 390 is
https://github.com/AOSC-Tracking/nvidia-390/blob/dc680a6d5bf4afcd37ffb48006d8fbccd7cdbbef/nvidia-bug-report.sh, a newer
one
https://github.com/bottlerocket-os/bottlerocket-admin-container/blob/a226b193d441e3aa7ffdd3bca305b5621b1d2d7f/nvidia-bug-report.sh.
"""

import email.utils
import posixpath
import re
from datetime import UTC, datetime

from gpuprov.facts.captures.model import Pieces

HEAD = "Start of NVIDIA bug report log file"
END = "End of NVIDIA bug report log file."
_END = re.compile(rf"^{re.escape(END)}\s*$", re.MULTILINE)
# A section begins with a line of underscores, then its file and the file's `ls`:
#     ____________________________________________
#     *** /proc/cmdline
#     *** ls: -r--r--r-- 1 root root 0 2026-11-19 14:06:53.000000000 +0000 /proc/cmdline
_RULE = re.compile(r"^_{40,}\s*$", re.MULTILINE)
_FILE = re.compile(r"\*\*\* (/\S+)(?: (does not exist|is not readable))?\s*\Z")
# Path of the host's own files in Bottlerocket's admin container.
_ROOT = "/.bottlerocket/rootfs"
# Headings of the script before a command's output: the path that `which` finds, or its own words, as for dmesg in
# every version. Other headings in its own words are for output that no probe reads: xset, nvidia-settings, xrandr, the
# window manager, the kind of driver.
_HEADINGS = (
    r"/(?:[\w.+-]+/)*((?:nvidia-smi|lspci|systemctl|modinfo|mokutil|dmidecode|ibstat|dmesg)\b[^|<>;]*?)",
    r"(dmesg):",
)
_COMMAND = re.compile(rf"(?:{'|'.join(_HEADINGS)})\s*\Z")
_UNAME = re.compile(r"^uname: (\S+ (\S+) .*)\n", re.MULTILINE)
_DATE = re.compile(r"^Date: (.*)\n", re.MULTILINE)
# NVIDIA's lines of this boot: the script searches the journal for them.
# Scanning kernel log files for NVIDIA kernel messages:
#
#   journalctl -b -0:
_SEARCHED = re.compile(
    r"^ *journalctl -b -0:[ \t]*\n(.*?)(?=^ *(?:journalctl -b -[1-9]|/\S+):|^_{40,}|\Z)", re.MULTILINE | re.DOTALL
)
SEARCHED = "journalctl -b -0 | grep NVRM"
_LONG = {"--query": "-q", "--errorcounters": "-e", "--status": "-s"}


def is_one(text: str) -> bool:
    """Return whether the text is such a report."""
    return HEAD in text[:4000]


def host(text: str) -> str:
    """Parse the host's own name; "" if the report does not have it."""
    match = _UNAME.search(text)
    return match[2] if match else ""


def date(text: str) -> str:
    """Parse the report's time, in the format of `date`."""
    match = _DATE.search(text)
    return match[1].strip() if match else ""


def seconds(date: str) -> float:
    """Convert the output of `date` to seconds since 1970; 0 if it cannot be parsed (a named zone other than UTC)."""
    for form in ("%a %b %d %H:%M:%S UTC %Y", "%a %d %b %Y %I:%M:%S %p UTC", "%a %b %d %I:%M:%S %p UTC %Y"):
        try:
            return datetime.strptime(date, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    parsed = email.utils.parsedate_tz(date)
    return float(email.utils.mktime_tz(parsed)) if parsed and parsed[9] is not None else 0


def pieces(text: str) -> Pieces:
    """Parse the files and commands in the report. Of duplicates the first counts. In a report without its end the last
    one is left out, as it may be incomplete."""
    collected = Pieces()
    complete = _END.search(text) is not None
    if uname := _UNAME.search(text):
        collected.commands["uname -a"] = uname[1] + "\n"
    if (log := _SEARCHED.search(text)) and (complete or log.end() < len(text)):
        collected.commands |= {SEARCHED: log[1], "date": date(text)}
    *sections, last = _RULE.split(text)
    for section in sections:
        _add_section(section, collected)
    name = _add_section(last, collected, whole=complete)
    if not complete:
        collected.cut = f'it has no line "{END}"' + (f", and breaks off in {name}" if name else "")
    return collected


def _add_section(section: str, collected: Pieces, *, whole: bool = True) -> str:
    """Add a section's pieces, without the last one if the section is not `whole`. Returns the name of the omitted one,
    if any."""
    into: tuple[dict[str, str], str] | None = None
    lines: list[str] = []
    blank = True

    def close() -> None:
        if into:
            into[0].setdefault(into[1], "\n".join(lines).strip("\n") + "\n")

    for line in section.splitlines():
        if match := _FILE.match(line):
            close()
            path = posixpath.normpath(match[1].removeprefix(_ROOT))
            into, lines = (None if match[2] else (collected.files, path)), []
            if match[2] == "does not exist":
                collected.absent.add(path)
        elif blank and (match := _COMMAND.match(line)):
            close()
            program, *words = (match[1] or match[2]).split()
            into, lines = (collected.commands, " ".join([program, *(_LONG.get(word, word) for word in words)])), []
        elif not (line.startswith("*** ls: ") and not lines):
            lines.append(line)
        blank = not line.strip()
    if whole:
        close()
    return into[1] if into else ""
