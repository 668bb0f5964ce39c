"""Problems as users see them: their meaning, where to look, the fix."""

import re
from functools import cache

import msgspec

from gpuprov.catalog.context import compile_any, fold, strip_host
from gpuprov.catalog.dcgm_errors import DCGM, DcgmError, find_dcgm_error, list_names
from gpuprov.catalog.kernel import Context, KernelLine, kernel_file
from gpuprov.catalog.lists import ErrorList, ErrorListsFile, index_lists
from gpuprov.catalog.nics import NicLine, read_nics_file
from gpuprov.catalog.rdma.gpudirect import Message, read_gpudirect_file
from gpuprov.catalog.reader import Fact, File, load
from gpuprov.catalog.xids import Xid, describe_sxid, find_action, find_investigation, find_resolution, read_xids_file
from gpuprov.core.fill import fill

# Key of the one symptom of all SXids.
SXIDS = "nvswitch-sxid"


class Cause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cause with the read-only command that shows it, and the fix."""

    cause: str
    check: str
    fix: str
    # What a line has beside the message, a signal or an error of the system for example, if this is its cause.
    when: tuple[str, ...] = ()


class Symptom(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`signatures`: text as printed. `xids`: kernel error numbers. `check`: a read-only command that shows it, or "".

    `codes`: numbers of CUDA's errors, in whatever words a program prints them. `fallbacks`: text by which a part of a
    program is known; a line with it is of this symptom if no row has its message.

    `cause`, `check` and `fix` are of the likeliest cause; `others` follow in order of likelihood, unless the line
    itself decides for one of them. `action`: of an Xid,
    the action that NVIDIA specifies. `decided_by`: keys of symptoms that decide its cause if they are seen beside it.
    `follows`: the message says that something failed, and another line says why: the answers to other lines come before
    it. `harmless`: those of its signatures that hosts print that are well, too: a message pasted by itself is answered,
    and one among others is not.

    `needs`: required text in lines with signatures that other programs print too, unless the signature is the whole
    line. `unless`: words of lines that are not this symptom.
    """

    key: str
    signatures: tuple[str, ...]
    needs: tuple[Context, ...] = ()
    unless: tuple[str, ...] = ()
    xids: tuple[int, ...] = ()
    codes: tuple[int, ...] = ()
    fallbacks: tuple[str, ...] = ()
    cause: str
    check: str = ""
    fix: str
    action: str = ""
    others: tuple[Cause, ...] = ()
    decided_by: tuple[str, ...] = ()
    follows: bool = False
    harmless: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class SymptomsFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/symptoms.yaml"""

    symptoms: tuple[Symptom, ...]


FILES = (
    "symptoms_programs",
    "symptoms_services",
    "symptoms",
    "symptoms_public",
    "symptoms_cuda",
    "symptoms_communication",
    "symptoms_host",
    "symptoms_cluster",
    "symptoms_runs",
    "symptoms_sharing",
    "symptoms_schedulers",
    "symptoms_orchestration",
    "symptoms_networks",
    "symptoms_installs",
    "symptoms_transports",
    "symptoms_starts",
    "symptoms_general",
    "symptoms_families",
    "symptoms_builds",
)


def list_addresses(symptom: Symptom) -> tuple[str, ...]:
    """Return the address of each of its sources, or its description if it has no address."""
    return tuple(index_sources()[key] for key in symptom.source)


@cache
def index_sources() -> dict[str, str]:
    others = (read_xids_file(), read_gpudirect_file(), read_nics_file(), kernel_file())
    files = (*(load(name, SymptomsFile) for name in FILES), load("lists_errors", ErrorListsFile), *others)
    return {key: source.url or source.description for file in files for key, source in file.sources.items()}


@cache
def list_symptoms() -> tuple[Symptom, ...]:
    """Return all symptoms: messages first, then Xids by subject, then kernel messages about peer memory modules,
    network adapters and the host itself, then whole lists of messages."""
    known = read_gpudirect_file()
    spoken = (build_from_message(message) for message in (*known.messages, known.bad_context))
    files = (load(name, SymptomsFile).symptoms for name in FILES)
    nics = (build_from_nic_line(line) for line in read_nics_file().lines if line.verdict != "recovered" and line.cause)
    of_files = [_add_kernel_signatures(symptom) for file in files for symptom in file]
    named = {text for symptom in of_files for text in symptom.signatures}
    of_files = [
        msgspec.structs.replace(symptom, signatures=(*symptom.signatures, *(n for n in list_names() if n not in named)))
        if symptom.key == DCGM[0]
        else symptom
        for symptom in of_files
    ]
    keys = {symptom.key for symptom in of_files}
    kernel = (_make_kernel_symptom(line) for line in kernel_file().lines if line.cause and line.key not in keys)
    lists = map(build_from_list, index_lists().values())
    return (*of_files, *map(build_from_xid, read_xids_file().xids), *spoken, *nics, *kernel, *lists)


def _add_kernel_signatures(symptom: Symptom) -> Symptom:
    """Return a symptom with the signatures that lines of the kernel's log add."""
    more = [line for line in kernel_file().lines if line.key == symptom.key]
    added = tuple(text for line in more for text in line.signatures)
    needs = tuple(context for line in more for context in line.needs)
    return (
        msgspec.structs.replace(symptom, signatures=(*symptom.signatures, *added), needs=(*symptom.needs, *needs))
        if added
        else symptom
    )


def build_from_xid(xid: Xid) -> Symptom:
    known = find_resolution(xid.nvidia)
    return fill(Symptom, xid, action=f"{known.key}: {known.words}" if known else "")


def resolve_for_line(symptom: Symptom, number: int, line: str) -> Symptom:
    """Return a symptom with the action and the cause of this very line, if the line specifies them."""
    if symptom.key in DCGM:
        error = find_dcgm_error(line)
        return _make_dcgm_symptom(symptom, error) if error else symptom
    if known_list := index_lists().get(symptom.key):
        return msgspec.structs.replace(symptom, **known_list.narrow(line)._asdict())
    if symptom.key == SXIDS:
        meaning = describe_sxid(number)
        return msgspec.structs.replace(symptom, cause=meaning[0], fix=meaning[1]) if meaning else symptom
    known = find_resolution(find_action(number, line))
    if known is None:
        return _put_first(symptom, line)
    look = find_investigation(number, line)
    fix = f"{known.words}; {look.words}" if look else known.words
    action = f"{known.key}: {known.words}" + (f"; {look.key}: {look.words}" if look else "")
    return msgspec.structs.replace(symptom, fix=fix, action=action)


def _make_dcgm_symptom(symptom: Symptom, error: DcgmError) -> Symptom:
    texts = {"cause": error.cause, "check": error.check, "fix": error.fix}
    return fill(Symptom, symptom, **texts, confidence="confirmed")


def _put_first(symptom: Symptom, line: str) -> Symptom:
    """Return a symptom with the cause that a line decides for before the others."""
    folded = strip_host(fold(line)) if any(cause.when for cause in symptom.others) else ""
    decided = next((cause for cause in symptom.others if cause.when and _compile_when(cause).search(folded)), None)
    if decided is None:
        return symptom
    likeliest = Cause(cause=symptom.cause, check=symptom.check, fix=symptom.fix)
    others = (likeliest, *(cause for cause in symptom.others if cause is not decided))
    return msgspec.structs.replace(symptom, cause=decided.cause, check=decided.check, fix=decided.fix, others=others)


@cache
def _compile_when(cause: Cause) -> re.Pattern[str]:
    """Return a pattern for the words of a cause; a number ends where that of the line does."""
    return re.compile(rf"(?:{compile_any(cause.when).pattern})(?!\d)")


def build_from_list(errors: ErrorList) -> Symptom:
    """Return the symptom of a list, which each error narrows."""
    return fill(Symptom, errors)


def build_from_message(message: Message) -> Symptom:
    return fill(Symptom, message, key=f"peermem-{message.key}", fix=message.way)


def build_from_nic_line(line: NicLine) -> Symptom:
    return fill(Symptom, line, action="", notes=(f"As the kernel prints it: {line.example}",))


def _make_kernel_symptom(line: KernelLine) -> Symptom:
    notes = (f"As the kernel prints it: {line.examples[0]}",)
    return fill(Symptom, line, check=line.look, action="", notes=notes)
