"""Reads numbers as people write them: with a unit, as a word, with a count's x. The unit of a field is in its
description."""

import re

from gpuprov.core.safe_parse import parse_whole

_MEASURE = re.compile(r"([0-9]{1,15}) ?([A-Za-z%]+(?:/s)?)")
_COUNT = re.compile(r"x ?([0-9]{1,4})|([0-9]{1,4}) ?(?:x|gpus?|cards?|hosts?|ports?)", re.IGNORECASE)
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# Units of fields, as descriptions name them, and how many of these others are.
UNITS: dict[str, dict[str, float]] = {
    "Gb/s": {**dict.fromkeys(("G", "Gb", "Gb/s", "Gbps", "Gbit", "Gbit/s", "GbE"), 1), "T": 1000, "Tb/s": 1000},
    "GB/s": {**dict.fromkeys(("G", "GB", "GB/s", "GBps"), 1), "TB/s": 1000},
    "KiB": {f"{unit}{end}": size / 1024 for unit, size in _BYTES.items() if unit for end in ("", "B", "iB", "b")},
    "bytes": {f"{unit}{end}": size for unit, size in _BYTES.items() for end in ("", "B", "iB") if unit or end},
    "MHz": {"MHz": 1, "Mhz": 1, "GHz": 1000},
    "W": {"W": 1, "kW": 1000},
    "watts": {"W": 1, "w": 1, "watt": 1, "watts": 1, "kW": 1000},
    "percent": {"%": 1, "percent": 1},
    "seconds": {**dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1), "m": 60, "min": 60, "h": 3600},
    "minutes": {**dict.fromkeys(("m", "min", "mins", "minutes"), 1), "h": 60},
    "us": {"us": 1, "ms": 1000},
}
# Gb/s of InfiniBand's generations, on a port of the usual width: https://www.infinibandta.org/infiniband-roadmap/
RATES = {"qdr": 40, "fdr": 56, "edr": 100, "hdr": 200, "hdr100": 100, "ndr": 400, "ndr200": 200, "xdr": 800}
WORDS = {word: number for number, word in enumerate("one two three four five six seven eight nine ten".split(), 1)}


def find_measure(text: str, description: str) -> int | None:
    """Return the whole number of the field's unit that a text means: 400G, NDR and 400 Gb/s where a port's rate is
    asked for."""
    plain = text.strip()
    unit = next((word for word in re.split(r"[^\w/]+", description) if word in UNITS), "")
    if "MTU" in description:  # 9k is 9000 to some, and 9216 to others
        return None
    if unit == "Gb/s" and plain.casefold() in RATES:
        return RATES[plain.casefold()]
    measure = _MEASURE.fullmatch(plain)
    number = parse_whole(measure[1]) if measure else None
    of = {name.casefold() if unit != "GB/s" else name: size for name, size in UNITS.get(unit, {}).items()}
    factor = (of.get(measure[2]) or of.get(measure[2].casefold())) if measure else None
    if number is None or factor is None or number * factor != int(number * factor):
        return None
    if unit == "Gb/s" and measure and measure[2] in ("GB", "GB/s"):  # bytes, eight times as much
        return None
    return int(number * factor)


def find_count(text: str) -> int | None:
    """Return the number that a text counts: 8x, x8, 8 GPUs, eight."""
    counted = _COUNT.fullmatch(text.strip())
    return parse_whole(counted[1] or counted[2]) if counted else WORDS.get(text.strip().casefold())
