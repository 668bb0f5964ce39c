"""Results as JUnit XML, for CI systems: a test suite per host, a test case per applicable check."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from xml.etree import ElementTree

from msgspec.structs import replace

from gpuprov.core.sanitize import cleaned
from gpuprov.report.fold import summed
from gpuprov.report.many import Many
from gpuprov.verify.evaluate import Result

_NOTHING = Result(
    host="gpuprov",
    capability="gpuprov",
    check="proven",
    status="error",
    expected="a check that passes",
    found="nothing was proven: every check was skipped, or there was none",
)
_TAGS = {"fail": "failure", "error": "error", "unreachable": "error", "skip": "skipped"}


def render(results: Sequence[Result] | Many, took: Mapping[str, float] | None = None) -> str:
    """Return the document. The same results and times give the same text.

    `took`: seconds by host, the time of its suite. All checks of a host are judged on facts read at once, so that each
    has the same share of the time.

    In folded results, all passed checks of a host are one test case. n/a results are left out. If nothing is proven, a
    further test case reports that and fails: most CI systems show a document without test cases, or with only skipped
    ones, in green.
    """
    listed = _list_results(results) if isinstance(results, Many) else results
    relevant = [result for result in listed if result.status != "n/a"]
    if summed(results).verdict == "not proven":
        relevant.append(_NOTHING)
    root = ElementTree.Element(
        "testsuites", {"name": "gpuprov", **_count_results(relevant, sum((took or {}).values()))}
    )
    hosts: dict[str, list[Result]] = {}
    for result in relevant:
        hosts.setdefault(result.host, []).append(result)
    for host, rows in hosts.items():
        seconds = (took or {}).get(host, 0.0)
        suite = ElementTree.SubElement(root, "testsuite", {"name": cleaned(host), **_count_results(rows, seconds)})
        for result in rows:
            _add_case(suite, result, seconds / len(rows))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _list_results(many: Many) -> Iterator[Result]:
    for host, entry in many.hosts.items():
        if passed := entry.counts.get("pass", 0):
            summary = f"{passed} check{'s' * (passed > 1)} passed"
            yield Result(host=host, capability="host", check=summary, status="pass")
        yield from (replace(row, host=host) for row in entry.rows)


def _add_case(suite: ElementTree.Element, result: Result, seconds: float) -> None:
    classname = cleaned(f"{result.host}.{result.capability}")
    case = ElementTree.SubElement(
        suite, "testcase", classname=classname, name=cleaned(result.check), time=_format_time(seconds)
    )
    tag = _choose_tag(result)
    if tag == "skipped":
        cause = f"follows from {result.follows}: " if result.follows else ""
        ElementTree.SubElement(case, tag, message=cleaned(cause + result.found))
    elif tag:
        message = result.found.splitlines()[0] if result.found else result.status
        element = ElementTree.SubElement(case, tag, message=cleaned(message), type=result.status)
        parts = (("expected", result.expected), ("found", result.found), ("see", result.evidence), ("fix", result.fix))
        element.text = cleaned("\n".join(f"{name}: {value}" for name, value in parts if value))


def _choose_tag(result: Result) -> str:
    """Return the element of a result; none for one that passed. A failure caused by another failure of the host is not
    a second failure."""
    return "skipped" if result.follows else _TAGS.get(result.status, "")


def _format_time(seconds: float) -> str:
    return f"{seconds:.3f}" if seconds else "0"


def _count_results(results: Iterable[Result], seconds: float) -> dict[str, str]:
    tags = [_choose_tag(result) for result in results]
    names = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    return {
        "tests": str(len(tags)),
        **{name: str(tags.count(tag)) for name, tag in names.items()},
        "time": _format_time(seconds),
    }
