"""The errors of DCGM's health watches and diagnostics: in a line by name, by number, or by DCGM's own text."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Literal

from gpuprov.catalog.reader import Fact, File, load

# Keys of the symptoms of lines with such an error: by name or number, and by text.
DCGM = ("dcgm-fr", "dcgm-health")
_PLACEHOLDER = re.compile(r"%(?:%|[#.0-9]*(?:ll|l|h|z)?[a-z])")
_NAME, _NUMBER = re.compile(r"DCGM_FR_[A-Z0-9_]+"), re.compile(r"(?i)dcgm.{0,80}\berror code:? (\d{1,3})(?!\d)")
# Number of characters from which a text, without its placeholders, is DCGM's own.
_LEAST = 14
# The meaning of the severities: dcgmErrorSeverity_enum in dcgm_errors.h.
SEVERITIES = {
    "monitor": "The GPU can work on; watch it.",
    "isolate": "Give the GPU no work until that is mended.",
    "triage": "Find out why before the GPU gets work.",
    "config": "A setting may end it.",
    "reset": "Drain the GPU and reset it.",
    "unknown": "",
}
# Commands that show more, by the last word of the category.
LOOKS = {
    "memory": "nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT",
    "nvlink": "nvidia-smi nvlink -s; nvidia-smi nvlink -e; journalctl -u nvidia-fabricmanager",
    "nvswitch": "journalctl -u nvidia-fabricmanager; journalctl -k | grep SXid",
    "pcie": "lspci -vv -d 10de:; journalctl -k | grep -i -E 'pcieport|AER'",
    "power": "nvidia-smi -q -d POWER,PERFORMANCE",
    "thermal": "nvidia-smi -q -d TEMPERATURE,PERFORMANCE",
    "xid": "journalctl -k | grep -E 'NVRM: Xid'",
}


class DcgmError(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An error. `text` has printf's placeholders."""

    code: int
    name: str
    earlier: tuple[str, ...] = ()
    text: str = ""
    # What DCGM suggests.
    next: str = ""
    severity: Literal["monitor", "isolate", "triage", "config", "reset", "unknown"]
    about: str

    @property
    def plain(self) -> str:
        """The text without its placeholders."""
        return _PLACEHOLDER.sub("", self.text)

    @property
    def cause(self) -> str:
        quoted = f': "{_PLACEHOLDER.sub("...", self.text.rstrip("."))}"' if self.text else ""
        return (
            f"Error {self.code} of DCGM, {self.name}{quoted} ({self.about.replace('_', ' ')}, severity "
            f"{self.severity})."
        )

    @property
    def check(self) -> str:
        return LOOKS.get(self.about.rpartition("_")[2], "dcgmi health -c; dcgmi diag -r 1; gpuprov health HOST")

    @property
    def fix(self) -> str:
        advice = f"{self.next}{'' if self.next.endswith('.') else '.'} " if self.next else ""
        severity = "" if self.severity == "reset" and "reset" in self.next.casefold() else SEVERITIES[self.severity]
        return f"{advice}{severity}".strip() or "nvidia-bug-report.sh, to NVIDIA."


class DcgmErrorsFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/dcgm_errors.yaml"""

    errors: tuple[DcgmError, ...]


@cache
def read_dcgm_errors() -> DcgmErrorsFile:
    return load("dcgm_errors", DcgmErrorsFile)


def list_names() -> Iterator[str]:
    """Yield the names of all errors, as dcgmi, the API and other programs print them."""
    for error in read_dcgm_errors().errors:
        yield from (error.name, *error.earlier)


def find_dcgm_error(line: str) -> DcgmError | None:
    """Find the error that a line has: by its name, by its number, or by the longest of the texts in it, unless several
    errors have that."""
    errors = read_dcgm_errors().errors
    if name := _NAME.search(line):
        return next((error for error in errors if name[0] in (error.name, *error.earlier)), None)
    if number := _NUMBER.search(line):
        return next((error for error in errors if error.code == int(number[1])), None)
    matching = [error for error, pattern in _compile_texts() if pattern.search(line)]
    longest = max((len(error.plain) for error in matching), default=0)
    best = [error for error in matching if len(error.plain) == longest]
    return best[0] if len(best) == 1 else None


@cache
def _compile_texts() -> tuple[tuple[DcgmError, re.Pattern[str]], ...]:
    own = (error for error in read_dcgm_errors().errors if len(error.plain) >= _LEAST)
    return tuple(
        (error, re.compile(".{0,120}?".join(map(re.escape, _PLACEHOLDER.split(error.text.rstrip("."))))))
        for error in own
    )
