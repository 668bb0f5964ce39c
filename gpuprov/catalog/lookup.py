"""Symptoms that people ask for: by a number, a key, a message, or a part of one."""

import re
from functools import cache

from gpuprov.catalog.context import find_xid, fold
from gpuprov.catalog.signatures import WORD, find_held, is_possible_for, list_signatures, parse_signature
from gpuprov.catalog.symptoms import SXIDS, Symptom, list_symptoms, resolve_for_line
from gpuprov.catalog.xids import describe_sxid
from gpuprov.core.safe_parse import is_whole, parse_whole

# Words for the state of anything: a text of these alone is no part of a message about something.
_STATES = frozenset(
    "a active argument connection denied disabled enabled error failed found in inactive invalid n no none not off on "
    "out permission refused reset supported timed timeout unknown use".split()
)
# A name, or a command with options: a message may have it, but it is no part of one.
_COMMAND = re.compile(r"\S+(?: --?[A-Za-z].*)?\Z", re.DOTALL)
_SXID = re.compile(r"(?:\A|\bsxid(?: \(pci:[^)]*\):?)? )([0-9]{5})(?=,|\Z)")


@cache
def index_texts() -> dict[str, tuple[int, ...]]:
    """Return, by the text of each signature, the places of its symptoms in `list_symptoms`."""
    index: dict[str, list[int]] = {}
    for place, symptom in enumerate(list_symptoms()):
        for signature in list_signatures(symptom):
            index.setdefault(signature.text, []).append(place)
    return {text: tuple(places) for text, places in index.items()}


@cache
def index_texts_by_word() -> dict[str, frozenset[str]]:
    """Return the texts of the signatures that have a word, by the word."""
    index: dict[str, set[str]] = {}
    for text in index_texts():
        for word in parse_signature(text).words:
            index.setdefault(word, set()).add(text)
    return {word: frozenset(texts) for word, texts in index.items()}


@cache
def join_texts() -> str:
    """Return the texts of all signatures as one, in which a text that none of them has is missed at once."""
    return "\n".join(index_texts())


@cache
def index_keys() -> dict[str, list[int]]:
    """Return, by the key of each symptom, its places in `list_symptoms`."""
    index: dict[str, list[int]] = {}
    for place, symptom in enumerate(list_symptoms()):
        index.setdefault(symptom.key, []).append(place)
    return index


def rank_matches(query: str, terms: list[str]) -> dict[int, int]:
    """Return the rank of each symptom that matches, by its place in `list_symptoms`: 3 if the query is a signature or
    the key; 2 if a longer message has it; 1 if all words are in one message."""
    texts, ranks = index_texts(), dict[str, int]()
    if len(terms) > 1 and not _STATES.issuperset(terms):
        by_word = index_texts_by_word()
        ranks = dict.fromkeys(frozenset.intersection(*(by_word.get(term, frozenset()) for term in terms)), 1)
        if query in join_texts():
            ranks |= dict.fromkeys((text for text in texts if query in text), 2)
    if query in texts:
        ranks[query] = 3
    best = dict.fromkeys(index_keys().get(query, ()), 3)
    for text, rank in ranks.items():
        for place in texts[text]:
            best[place] = max(best.get(place, 0), rank)
    return dict(sorted(best.items()))


def find_sxid(text: str) -> int:
    """Return the number of the SXid that a text names, or that it is; 0 if it names none that NVIDIA's tables have."""
    match = _SXID.search(fold(text))
    number = int(match[1]) if match else 0
    return number if describe_sxid(number) else 0


# Symptoms with the same few words in their messages ("not found") from which on these words tell nothing.
MOST = 8


def find_symptom(words: str) -> list[Symptom]:
    """Return matching symptoms, best first: those with a message in the words; else with a number ("79", "802"), a key,
    or a part of a message. Two and three words match anywhere; more are a message, as is text with a colon. A single
    word or a command with options is never a part of a message, nor are words that more than MOST symptoms share.

    A plain number is an Xid or a number inside a signature; "Xid 79" and kernel log lines are only an Xid.
    """
    if not (query := fold(words)):
        return []
    if sxid := find_sxid(words):
        return [resolve_for_line(symptom, sxid, words) for symptom in list_symptoms() if symptom.key == SXIDS]
    if named := find_xid(words):
        number = parse_whole(named)
        return [resolve_for_line(symptom, number or 0, words) for symptom in list_symptoms() if number in symptom.xids]
    if is_whole(query):
        exact = [symptom for symptom in list_symptoms() if int(query) in symptom.xids]
        places = {place for text in index_texts_by_word().get(query, ()) for place in index_texts()[text]}
        spoken = [
            symptom
            for place, symptom in enumerate(list_symptoms())
            if not symptom.xids and (place in places or int(query) in symptom.codes)
        ]
        return exact + spoken
    held = [entry.symptom for entry in find_held(query)]
    terms = WORD.findall(query)
    known = list_symptoms()
    ranks = {place: rank for place, rank in rank_matches(query, terms).items() if is_possible_for(known[place], query)}
    best = max(ranks.values(), default=0)
    if _COMMAND.match(words.strip()):
        least = 3
    else:
        message = ":" in words or len(terms) > 3  # a message of its own, which has words in common with another
        least = 2 if held or best == 3 or message else 1
    others = [known[place] for place in sorted(ranks, key=lambda place: -ranks[place]) if ranks[place] >= least]
    if not held and len(others) > MOST:
        return []
    return [*held, *(symptom for symptom in others if symptom not in held)]
