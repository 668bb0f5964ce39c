"""Xids and SXids, NVIDIA's errors in the kernel log: the meaning of each, and the action that NVIDIA specifies."""

import re
from functools import cache, partial
from typing import Literal

import msgspec

from gpuprov.catalog.reader import Fact, File, load

# Action that repairs a host: nothing, restart of a program, other software, GPU reset, host reboot; or the host has to
# be drained and inspected, or the card returned.
Action = Literal["none", "restart", "update", "reset", "reboot", "drain", "return"]
# Ordered from mild to severe.
SEVERITY: tuple[Action, ...] = ("none", "restart", "update", "reset", "reboot", "drain", "return")


# `NVRM: Xid (PCI:0000:9b:00): 79, ...`; drivers before 343 write `NVRM: Xid (0000:03:00): 13, ...`. In MIG mode the
# instance follows the address, `(PCI:0000:9b:00 GPU-I:05 GPU-CI:00)`:
# https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/src/nvidia/src/kernel/gpu/rc/kernel_rc.c
XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)(?: GPU-I:\d+)?(?: GPU-CI:\d+)?\): (\d{1,6})(?:, (.*))?")
SXID = re.compile(r"(nvidia-nvswitch\d+): SXid \(PCI:([0-9a-fA-F:.]+)\): (\d{1,6}), (.*)")
# The Xid by which the driver logs what a GPU needs.
RECOVERY = 154


class Resolution(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of NVIDIA's names of an action, and the result."""

    key: str
    action: Action
    words: str
    # It does name an action, even if it is none.
    named: bool = True


class Investigation(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A place where NVIDIA looks for a cause."""

    key: str
    words: str
    # At the other end of the link, or at another error.
    elsewhere: bool = False


class Nvlink5(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The action for a line of Xid 144 to 150."""

    xid: int
    units: tuple[str, ...]
    # `before` and `since`: the 32 bits of IntrInfo, - for any, with drivers before R575 and from it on.
    before: str
    since: str
    # Error statuses, none for any.
    status: tuple[int, ...]
    severity: Literal["Fatal", "Nonfatal"]
    nvidia: str
    # Key of the investigation that follows; empty if none does.
    look: str = ""


class Recovery(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recovery that the driver itself reports for a GPU; `names` in its own spelling."""

    key: str
    names: tuple[str, ...]
    action: Action
    words: str
    # The operator's action.
    fix: str


class Xid(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Xids of one meaning."""

    key: str
    signatures: tuple[str, ...]
    xids: tuple[int, ...]
    # The key of their resolution, empty where NVIDIA's catalogue has none.
    nvidia: str = ""
    cause: str
    check: str = ""
    fix: str
    notes: tuple[str, ...] = ()


class Course(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An action with its description."""

    action: Action
    words: str


NOTHING = Course(action="none", words="nothing is to be done")


class QuietSXid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """SXids that are logged as non-fatal, or for information: `means` there, whatever the line says."""

    numbers: tuple[int, ...]
    name: str
    means: str
    fix: str
    # The one that NVIDIA asks for all the same.
    action: Action = "none"


class SXids(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`fatal`: the action for a fatal SXid; `always`: the action for one of `always_fatal`. `names`: of those that are
    fatal, always or where the line says so."""

    fatal: Course
    always: Course
    always_fatal: tuple[int, ...]
    names: dict[int, str]
    quiet: tuple[QuietSXid, ...]


class XidsFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/xids.yaml"""

    resolutions: tuple[Resolution, ...]
    investigations: tuple[Investigation, ...]
    nvlink5: tuple[Nvlink5, ...]
    recoveries: tuple[Recovery, ...]
    sxids: SXids
    xids: tuple[Xid, ...]


read_xids_file = partial(load, "xids", XidsFile)


@cache
def index_by_number() -> dict[int, Xid]:
    return {number: entry for entry in read_xids_file().xids for number in entry.xids}


def find_xid(number: int) -> Xid | None:
    """Return the catalogue's entry of an Xid."""
    return index_by_number().get(number)


def find_resolution(key: str) -> Resolution | None:
    """Return NVIDIA's resolution with this name."""
    return next((entry for entry in read_xids_file().resolutions if entry.key == key), None)


# Xids whose lines contain their action.
NVLINK5 = range(144, 151)
_LINE = re.compile(
    r"\b([A-Z]+[A-Z0-9_]*)\s+(?:Fatal|Nonfatal)\b[^(]{0,80}\((0x[0-9a-f]{1,8})\b(?:[\s,]+(0x[0-9a-f]{1,8})\b)?",
    re.IGNORECASE,
)


def find_action(number: int, text: str) -> str:
    """Return the key of the resolution that a line of an Xid itself specifies; "" if it specifies none."""
    return find_nvlink5_resolution(number, text) if number in NVLINK5 else ""


def find_nvlink5_resolution(number: int, text: str) -> str:
    """Return the key of the resolution for a line of Xid 144 to 150.

    Lines without a matching row are decided by their word Fatal or Nonfatal, as are those whose word differs from the
    row's: NVIDIA may promote an error. A line does not name the driver version, and need not: for no unit do the same
    bits have different answers in both forms.
    """
    named = {row.nvidia for row in _match_rows(number, text)}
    if len(named) == 1:
        return named.pop()
    return (
        "IGNORE" if re.search(r"\bNonfatal\b", text, re.IGNORECASE) and not _is_fatal(text) else "WORKFLOW_NVLINK5_ERR"
    )


def blames_peer(number: int, text: str) -> bool:
    """True if a line of Xid 144 to 150 says that its error began elsewhere: at the other end of the link, or with
    another error."""
    investigation = find_investigation(number, text)
    return investigation is not None and investigation.elsewhere


def find_investigation(number: int, text: str) -> Investigation | None:
    """Return where NVIDIA looks for the cause of a line of Xid 144 to 150; None where its table does not say."""
    named = {row.look for row in _match_rows(number, text)} if number in NVLINK5 else set()
    known = read_xids_file().investigations
    return next((entry for entry in known if named == {entry.key}), None)


def _is_fatal(text: str) -> bool:
    return re.search(r"\bFatal\b", text, re.IGNORECASE) is not None


def _match_rows(number: int, text: str) -> list[Nvlink5]:
    """Return the rows of NVIDIA's table for a line, whatever the driver's version."""
    match = _LINE.search(text)
    if match is None:
        return []
    fatal, info = _is_fatal(text), f"{int(match[2], 16):032b}"
    status = int(match[3], 16) if match[3] else None
    return [
        row
        for row in read_xids_file().nvlink5
        if row.xid == number
        and (row.severity == "Fatal") == fatal
        and match[1].upper() in row.units
        and (not row.status or status in row.status)
        and any(all(a in ("-", b) for a, b in zip(bits, info, strict=True)) for bits in (row.before, row.since))
    ]


def get_recovery(name: str) -> Recovery:
    """Return the meaning of the driver's name of a recovery action, as nvidia-smi, Xid 154 or NVML's header spell it.

    Unknown names have the same meaning everywhere, which is never to do nothing.
    """
    known = index_recoveries()
    return known.get(strip_name(name)) or known[""]


def recovery_word(text: str) -> str:
    """Return the driver's word for what the GPU needs now, from the text of an Xid 154; empty if it has none."""
    match = re.search(r"to 0x[0-9a-fA-F]+ \(([^)]{0,200})\)", text)
    return match[1] if match else ""


@cache
def index_recoveries() -> dict[str, Recovery]:
    return {strip_name(name): row for row in read_xids_file().recoveries for name in row.names or ("",)}


def strip_name(name: str) -> str:
    words = name.strip().casefold().replace("_", " ").removeprefix("nvml ").removeprefix("gpu recovery action ")
    return words.removesuffix(" required")


def find_sxid_course(number: int, *, fatal: bool) -> Course:
    """Return the action for an SXid, whose line says whether it is fatal."""
    known = read_xids_file().sxids
    if number in known.always_fatal:
        return known.always
    if fatal:
        return known.fatal
    quiet = next((row for row in known.quiet if number in row.numbers and row.action != "none"), None)
    return Course(action=quiet.action, words=quiet.fix.rstrip(".")) if quiet else NOTHING


def describe_sxid(number: int) -> tuple[str, str] | None:
    """Return the meaning of an SXid and what is done about it; None for one that NVIDIA's tables do not have."""
    known = read_xids_file().sxids
    for row in known.quiet:
        if number in row.numbers:
            return f"SXid {number}, {row.name}. {row.means}", row.fix
    if number not in known.names:
        return None
    if number in known.always_fatal:
        return f"SXid {number}, {known.names[number]}. It is always fatal to the whole fabric.", known.always.words
    return (
        f"SXid {number}, {known.names[number]}. Where the line says Fatal, a GPU at that port logs Xid 74 too.",
        f"Fatal: {known.fatal.words}. Non-fatal: nothing is to be done.",
    )


def find_worst(actions: tuple[Action, ...]) -> Action:
    """The most severe of them."""
    return max(actions, key=SEVERITY.index, default="none")
