"""The one judge of a line of the kernel's log: what it reports, of which device, how severe that is, and what is to be
done. Health, explain and records all ask here; the lines themselves are in xids.yaml, nics.yaml and kernel.yaml."""

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Literal

import msgspec

from gpuprov.catalog.context import fold
from gpuprov.catalog.kernel import NVIDIA, Check, find_kernel_line, kernel_file
from gpuprov.catalog.nics import NicLine, find_nic_line, speaker
from gpuprov.catalog.signatures import find_held, is_listed
from gpuprov.catalog.symptoms import SXIDS, Symptom, list_symptoms, resolve_for_line
from gpuprov.catalog.xids import (
    RECOVERY,
    SEVERITY,
    SXID,
    XID,
    Action,
    find_action,
    find_investigation,
    find_resolution,
    find_sxid_course,
    find_xid,
    get_recovery,
    recovery_word,
)
from gpuprov.core.fill import fill
from gpuprov.host_code.kernel_lines import OF_A_PROGRAM

# Whether a line makes the host unfit for work, is only reported, has no documented meaning, or ends earlier lines.
Standing = Literal["unfit", "reported", "unknown", "recovered"]
_OF_A_PROGRAM = re.compile(OF_A_PROGRAM)
# Number of characters of a line that are judged.
LONGEST = 4000


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement of one line. `key`: of the symptom that explains it; `check`: of the check of health that counts
    it.

    `device`: as the line names it; `number` and `text`: of an Xid or SXid. `words`: what is to be done, in NVIDIA's
    words, and `fix`: what a person does; both empty where the symptom has them. `clears`, `ends`: see `KernelLine`;
    `nic`: entry of an adapter's line.
    """

    key: str
    check: Literal[Check, "xid", "sxid", "rdma_log"]
    standing: Standing
    action: Action = "none"
    device: str = ""
    number: int = 0
    text: str = ""
    words: str = ""
    fix: str = ""
    clears: tuple[str, ...] = ()
    ends: tuple[Action, ...] = ()
    nic: NicLine | None = None


@lru_cache(maxsize=4096)
def judge_line(text: str) -> Verdict | None:
    """Judge a message of the kernel or of a driver, without its time stamp; None for an irrelevant one.

    What a program may have written counts only where a line about programs is looked for.
    """
    if of_program := _OF_A_PROGRAM.match(text) is not None:
        return _judge_kernel_line(text, of_program)
    if match := XID.match(text):
        return judge_xid(int(match[2]), (match[3] or "").strip(), match[1].lower())
    if match := SXID.match(text):
        message = match[4].strip()
        return judge_sxid(int(match[3]), message, match[1]) if re.match(r"(?i)(non-)?fatal", message) else None
    return _judge_kernel_line(text, of_program) or _judge_nic_line(text) or _judge_driver_line(text)


def judge_xid(number: int, text: str, device: str = "") -> Verdict:
    """Judge an Xid by the text after its number: an Xid 154 by the recovery that it names."""
    known = find_xid(number)
    key = known.key if known else ""
    if number == RECOVERY:
        needs = get_recovery(recovery_word(text))
        return _make_xid_verdict(key, number, text, device, needs.action, words=needs.words, fix=needs.fix)
    resolution = find_resolution(find_action(number, text) or (known.nvidia if known else ""))
    if resolution is None:
        words = "NVIDIA's catalogue names nothing that is to be done"
        return _make_xid_verdict(key, number, text, device, "none", words=words, named=False)
    words = f"{resolution.key}, {resolution.words}" if resolution.named else resolution.words
    if investigation := find_investigation(number, text):
        words = f"{words}; {investigation.key}, {investigation.words}"
    return _make_xid_verdict(key, number, text, device, resolution.action, words=words, named=resolution.named)


def _make_xid_verdict(
    key: str, number: int, text: str, device: str, action: Action, *, words: str, fix: str = "", named: bool = True
) -> Verdict:
    severe = SEVERITY.index(action) > SEVERITY.index("restart")
    return Verdict(
        key=key,
        check="programs" if action == "restart" else "xid",
        standing="unfit" if severe else "reported" if named else "unknown",
        action=action,
        device=device,
        number=number,
        text=text,
        words=words,
        fix=fix,
    )


def judge_sxid(number: int, text: str, device: str = "") -> Verdict:
    """Judge an SXid by the text after its number, which begins with Fatal or Non-fatal."""
    course = find_sxid_course(number, fatal=text.lower().startswith("fatal"))
    return Verdict(
        key=SXIDS,
        check="sxid",
        standing="unfit" if course.action != "none" else "reported",
        action=course.action,
        device=device,
        number=number,
        text=text,
        words=course.words,
    )


def _judge_kernel_line(text: str, of_program: bool) -> Verdict | None:
    line = find_kernel_line(text, of_program=of_program)
    if line is None:
        return None
    match = re.search(line.device, text) if line.device else None
    return fill(Verdict, line, standing=line.verdict, device=match[1] if match else "", fix="")


def _judge_nic_line(text: str) -> Verdict | None:
    source = speaker(text)
    line = find_nic_line(source.drivers, text) if source else None
    if source is None or line is None:
        return None
    return Verdict(
        key=line.key, check="rdma_log", standing=line.verdict, action=line.action, device=source.device, nic=line
    )


def _judge_driver_line(text: str) -> Verdict | None:
    """Judge another line of NVIDIA's driver: it is reported where a symptom has its words."""
    if not text.startswith(NVIDIA):
        return None
    judged = {line.key for line in kernel_file().lines}
    every = (entry for entry in find_held(fold(text)) if not entry.is_harmless and not is_listed(entry.symptom))
    held = next((entry for entry in every if entry.symptom.key not in judged), None)
    return Verdict(key=held.symptom.key, check="driver_log", standing="reported") if held else None


def find_complaints(lines: Iterable[str], key: str) -> list[str]:
    """Return the lines of a daemon or of nvidia-smi that the symptom with this key explains: one rule for checks and
    for explain."""
    return [line for line in lines if any(entry.symptom.key == key for entry in find_held(fold(line[:LONGEST])))]


@cache
def _by_key() -> dict[str, Symptom]:
    return {symptom.key: symptom for symptom in list_symptoms()}


def explained(verdict: Verdict) -> Symptom | None:
    """Return the symptom of a verdict, with the action of its very line; None if it has none."""
    entry = _by_key().get(verdict.key)
    if entry is None or not (entry.xids or entry.key == SXIDS):
        return entry
    entry = resolve_for_line(entry, verdict.number, verdict.text)
    return msgspec.structs.replace(entry, fix=verdict.fix) if verdict.fix else entry


def fix_of(verdict: Verdict) -> str:
    """Return what a person does about a line, and how to read more of it."""
    symptom = explained(verdict)
    fix = verdict.fix or verdict.words or (symptom.fix if symptom else "")
    word = f"'SXid {verdict.number}'" if verdict.key == SXIDS else verdict.number or verdict.key
    return f"{fix}{'' if fix.endswith('.') else ';'} gpuprov explain {word}"


def in_health(verdict: Verdict, *, decided: bool = False, past: str = "") -> str:
    """Return what a check of health makes of a line, in words. `decided`: an Xid 154 decides in place of it; `past`:
    what ended it."""
    check = f"health.{verdict.check}"
    if past:
        return f"past for {check}: {past}"
    if decided:
        return f"{check} goes by the Xid {RECOVERY} of the same GPU, which says what it needs now"
    if verdict.standing == "unfit":
        return f"{check} fails, unless something ended it since: {verdict.action}"
    return (
        f"{check} reports it, and does not fail"
        if verdict.standing == "reported"
        else f"{check} is not proven: no action is documented"
    )
