"""A policy from command-line options, with the types and error messages of the policy's file."""

import re
from typing import Any

import msgspec

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.policy.decide import REBOOT
from gpuprov.fleet.policy.planned import CANARY
from gpuprov.fleet.policy.policy import (
    MOST,
    Batches,
    Budget,
    Canary,
    Count,
    Limits,
    Policy,
    Retry,
    Size,
    at_least_one,
)
from gpuprov.spec.build import convert

OPTIONS = {CANARY: "--canary", "batches.size": "--serial", "budget.whole": "--max-fail", REBOOT: "--reboot"}
# The option for each key of the policy.
AT_ONCE = "limits.at_once"
REPAIR_OPTIONS = {**OPTIONS, AT_ONCE: "--max-out", "limits.per_domain": "--max-out"}
NUMBER = re.compile(r"\s*-?\d{1,18}\s*%?\s*")


def policy_of(*, canary: str = "", serial: str = "", max_fail: str = "0", reboot: bool = False) -> Policy:
    """Return the policy of a process that does each batch in one job, never retries a host, and ends where it stops.
    Raises GpuprovError for a number that the policy's file could not have either."""
    by_number = NUMBER.fullmatch(canary)
    return Policy(
        gpuprov_rollout=1,
        canary=Canary(count=_parse_number("canary.hosts", canary, Size))
        if by_number
        else Canary(hosts=_split_words(canary)),
        batches=Batches(size=_parse_number("batches.size", serial, Size)) if serial else Batches(),
        limits=Limits(at_once=MOST, jobs=1, job_size=MOST),
        budget=Budget(batch="100%", whole=_parse_number("budget.whole", max_fail, Count)),
        retry=Retry(attempts=1, after="0s"),
        reboot="if-needed" if reboot else "as-specified",
    )


def policy_of_repairs(max_out: str, max_fail: str, total: int) -> Policy:
    """Return the policy of repairs: as many hosts as may be out at once, and those that were given up count. Raises
    GpuprovError."""
    most = at_least_one(_parse_number(AT_ONCE, max_out, Size), total)
    return msgspec.structs.replace(
        policy_of(max_fail=max_fail), limits=Limits(at_once=most, per_domain=most, jobs=1, job_size=MOST)
    )


def _split_words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (word.strip() for word in text.split(","))))


def _parse_number(key: str, text: str, kind: Any) -> int | str:
    """Return `"5"` or `"20%"` as the policy's file has it."""
    plain = "".join(text.split())
    value = plain if "%" in plain or not NUMBER.fullmatch(plain) else int(plain)
    number, problems = convert(value, kind, (REPAIR_OPTIONS[key],))
    if problems:
        _, message, fix = problems[0]
        raise GpuprovError(message, fix)
    assert isinstance(number, int | str)
    return number
