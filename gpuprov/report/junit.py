"""Results as JUnit XML, for CI systems: a test suite per host, a test case per check."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from gpuprov.verify.evaluate import Result

_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, not even escaped. https://www.w3.org/TR/xml/#charsets"""
_TAGS = {"fail": "failure", "error": "error", "unreachable": "error", "skip": "skipped"}


def render(results: Sequence[Result]) -> str:
    """The document. The same results give the same text: no times, no host of origin."""
    root = ElementTree.Element("testsuites", {"name": "gpuprov", **_counts(results)})
    hosts: dict[str, list[Result]] = {}
    for result in results:
        hosts.setdefault(result.host, []).append(result)
    for host, rows in hosts.items():
        suite = ElementTree.SubElement(root, "testsuite", {"name": _clean(host), **_counts(rows)})
        for result in rows:
            _case(suite, result)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, result: Result) -> None:
    classname = _clean(f"{result.host}.{result.capability}")
    case = ElementTree.SubElement(suite, "testcase", classname=classname, name=_clean(result.check), time="0")
    tag = _TAGS.get(result.status)
    if tag == "skipped":
        ElementTree.SubElement(case, tag, message=_clean(result.found))
    elif tag:
        found = result.found.splitlines()[0] if result.found else result.status
        element = ElementTree.SubElement(case, tag, message=_clean(found), type=result.status)
        parts = (
            ("expected", result.expected),
            ("found", result.found),
            ("see", result.evidence),
            ("hint", result.hint),
        )
        element.text = _clean("\n".join(f"{name}: {value}" for name, value in parts if value))


def _counts(results: Iterable[Result]) -> dict[str, str]:
    tags = [_TAGS.get(result.status, "") for result in results]
    names = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    return {"tests": str(len(tags)), **{name: str(tags.count(tag)) for name, tag in names.items()}, "time": "0"}


def _clean(text: str) -> str:
    return _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text)
