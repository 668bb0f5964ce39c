"""Results as metrics, in the text format that node_exporter's textfile collector reads.

https://prometheus.io/docs/instrumenting/exposition_formats/ . Names and labels are documented in
docs/how-to/monitoring.md and do not change within a major version. Not written by prometheus_client: it takes 0.1 s to
import, three times as long for 10,000 hosts, and prints times as 1.763848800123e+09; what it would replace is `sample`.
"""

import time
from collections.abc import Iterator, Mapping, Sequence

from gpuprov import __version__
from gpuprov.core.sanitize import cleaned
from gpuprov.report.fold import host_lines
from gpuprov.report.folded import ORDER
from gpuprov.report.many import Many
from gpuprov.verify.evaluate import Result
from gpuprov.verify.verify import Verdict, verdict

NEXT_BOOT = {"right": 1, "wrong": 0, "unknown": -1}
# Name and help of each metric, in the order of the file; all are gauges.
METRICS = {
    "gpuprov_build_info": "The gpuprov that verified, as the label version.",
    "gpuprov_verify_timestamp_seconds": "When the verify that wrote this file ended, in Unix time.",
    "gpuprov_host_reachable": "1 if the host could be read.",
    "gpuprov_host_ok": "1 if something was proven on the host and nothing is wrong; 0 otherwise, also where nothing "
    "was proven.",
    "gpuprov_checks": "Checks of the host by status: unreachable, fail, error, skip, pass; follow are failures that "
    "only follow from another.",
    "gpuprov_check_failed": "1 for each check of the host that fails or cannot be judged, but for those that only "
    "follow.",
    "gpuprov_next_boot_ok": "1 if the host will be as its spec wants it after the next boot, 0 if not, -1 if nobody "
    "knows.",
    "gpuprov_reboot_required": "1 if a check fails that only a reboot fixes.",
    "gpuprov_verify_duration_seconds": "How long reading the host took.",
}


def render(results: Sequence[Result] | Many, took: Mapping[str, float] | None = None, now: float | None = None) -> str:
    """Return the file. A host that is no longer verified is no longer in it: alert on the timestamp, and on a host that
    is absent."""
    ended = time.time() if now is None else now
    samples: dict[str, list[str]] = {name: [] for name in METRICS}
    samples["gpuprov_build_info"].append(sample("gpuprov_build_info", 1, version=__version__))
    samples["gpuprov_verify_timestamp_seconds"].append(sample("gpuprov_verify_timestamp_seconds", round(ended, 3)))
    of_host: dict[str, list[Result]] = {}
    for result in () if isinstance(results, Many) else results:
        of_host.setdefault(result.host, []).append(result)
    for line in host_lines(results, fold=False):
        (host,) = line.hosts
        folded = results.hosts[host] if isinstance(results, Many) else None
        rows, judged = (folded.rows, folded.verdict) if folded else (of_host[host], verdict(of_host[host]))
        for name, value, labels in _list_host_samples(rows, judged, line.counts, NEXT_BOOT[line.next_boot.verdict]):
            samples[name].append(sample(name, value, host=host, **labels))
        if took and host in took:
            samples["gpuprov_verify_duration_seconds"].append(
                sample("gpuprov_verify_duration_seconds", round(took[host], 3), host=host)
            )
    return format_gauges(METRICS, samples)


def format_gauges(metrics: Mapping[str, str], samples: Mapping[str, Sequence[str]]) -> str:
    """Return the text of a file. `metrics`: the help of each, by name; `samples`: the lines of each."""
    lines = []
    for name, values in samples.items():
        lines += [f"# HELP {name} {metrics[name]}", f"# TYPE {name} gauge", *values] if values else []
    return "\n".join(lines) + "\n"


def _list_host_samples(
    rows: Sequence[Result], host_verdict: Verdict, counts: Mapping[str, int], next_boot: int
) -> Iterator[tuple[str, float, dict[str, str]]]:
    yield "gpuprov_host_reachable", int(not any(row.status == "unreachable" for row in rows)), {}
    yield "gpuprov_host_ok", int(host_verdict == "matches"), {}
    for status in (*ORDER, "follow"):
        yield "gpuprov_checks", counts.get(status, 0), {"status": status}
    failed = {
        row.check: row.capability for row in rows if row.status in ("fail", "error", "unreachable") and not row.follows
    }
    for check, capability in failed.items():
        yield "gpuprov_check_failed", 1, {"check": check, "capability": capability}
    yield "gpuprov_next_boot_ok", next_boot, {}
    yield "gpuprov_reboot_required", int(any(row.status == "fail" and row.reboot for row in rows)), {}


def sample(name: str, value: float, **labels: str) -> str:
    """Return a line of the text format; label values are escaped."""
    pairs = ",".join(f'{label}="{_escape_label(text)}"' for label, text in labels.items())
    return f"{name}{{{pairs}}} {value:.15g}" if pairs else f"{name} {value:.15g}"


def _escape_label(text: str) -> str:
    return cleaned(text).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
