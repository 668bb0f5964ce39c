"""State of each host in one word, and the sentence about all of them."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpuprov.report.page import Headline, State
from gpuprov.report.text import unproven
from gpuprov.verify.evaluate import FAILING, Result
from gpuprov.verify.verify import NextBoot, Verdict, verdict

# Letters by state, the worst first: shown without colour.
LETTERS: Mapping[State, str] = {
    "gone": "U",
    "fail": "F",
    "error": "E",
    "boot": "B",
    "unproven": "?",
    "part": "~",
    "right": "✓",
}
WORDS: Mapping[State, str] = {
    "gone": "unreachable",
    "fail": "failed",
    "error": "error: could not be judged",
    "boot": "right until the next boot",
    "unproven": "not proven",
    "part": "matches the spec, in part not proven",
    "right": "matches the spec",
}
BAD: tuple[State, ...] = ("gone", "fail", "error", "boot")


def state(results: Sequence[Result], host_verdict: Verdict | None = None) -> State:
    """Return the state of one host. `host_verdict`: the verdict, if passed checks are not among the results."""
    statuses = {result.status for result in results}
    if "unreachable" in statuses:
        return "gone"
    if "fail" in statuses:
        now = any(result.status in FAILING and result.moment != "next-boot" for result in results)
        return "fail" if now else "boot"
    if "error" in statuses:
        return "error"
    if (host_verdict or verdict(results)) != "matches":
        return "unproven"
    return "part" if "skip" in statuses else "right"


def headline(overall: Verdict, hosts: Mapping[str, State], boots: Iterable[NextBoot], skipped: int) -> Headline:
    """Return the verdict as a sentence about hosts; then the number of each kind, and the outcome of the next boot."""
    counted = Counter(hosts.values())
    many = len(hosts)
    name = next(iter(hosts)) if many == 1 else ""
    if overall == "differs":
        bad = sum(counted[status] for status in BAD)
        worst = max(BAD, key=lambda status: counted[status])
        if name or bad == many:
            return Headline(state=worst, sentence=_describe_none(name, many), more=_describe_more(counted, boots))
        subject = f"{bad:,} of {many:,} hosts {'differs from its spec' if bad == 1 else 'differ from their specs'}"
        return Headline(state=worst, sentence=subject, more=_describe_more(counted, boots))
    if overall == "not proven":
        open_ = counted["unproven"]
        if not many:
            return Headline(state="unproven", sentence="Nothing was proven.", more="No host has anything to verify.")
        if open_ == many:
            more = f"No check that asks something of {name or 'these hosts'} has passed."
            return Headline(state="unproven", sentence="Nothing was proven.", more=more)
        verb = "is" if name or open_ == 1 else "are"
        subject = f"{open_:,} of {many:,} hosts {verb}" if open_ else f"{_describe_all(name, many)} {verb}"
        return Headline(state="unproven", sentence=f"{subject} not proven", more=_describe_more(counted, boots))
    sentence = matching(name, many) + (f", but {unproven(skipped)}" if skipped else "")
    return Headline(state="part" if skipped else "right", sentence=sentence, more=_describe_more(counted, boots))


def _describe_all(name: str, many: int) -> str:
    return name or ("Both hosts" if many == 2 else f"All {many:,} hosts")


def matching(name: str, many: int) -> str:
    """Return the sentence for hosts of which all match: `gpu1 matches its spec`, `All 3 hosts match their specs`."""
    return f"{name} matches its spec" if name else f"{_describe_all(name, many)} match their specs"


def _describe_none(name: str, many: int) -> str:
    return f"{name} differs from its spec" if name else f"{_describe_all(name, many)} differ from their specs"


def _choose_plural(word: str, many: int) -> str:
    """Return the word after a number of hosts: `1 matches the spec`, `2 match the spec`."""
    return word if many == 1 else re.sub(r"\Amatches ", "match ", word)


def _describe_more(counted: Mapping[State, int], boots: Iterable[NextBoot]) -> str:
    """Return the number of each kind, if there is more than one; and the next boot."""
    named = [
        f"{many:,} {_choose_plural(word, many)}" for status, word in WORDS.items() if (many := counted.get(status))
    ]
    later: Counter[str] = Counter(boot.verdict for boot in boots)
    after = {"right": "right", "wrong": "NOT right", "unknown": "not known"}
    counts = [(later[status], word) for status, word in after.items() if later[status]]
    boot = ", ".join(f"{count:,} {word}" if len(counts) > 1 else word for count, word in counts)
    kinds = f"{'; '.join(named)}. " if len(named) > 1 else ""
    return f"{kinds}After the next boot: {boot}." if counts else ""
