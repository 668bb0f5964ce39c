"""One line of a kernel log has one verdict: from explain, by itself and in a log; from health, on a host and from a
record, as text, metrics and a page; and on the host's own page."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

from gpuprov.capabilities.base import Outcome
from gpuprov.capabilities.health.fragment import Health
from gpuprov.catalog.context import fold
from gpuprov.catalog.kernel import kernel_file, pattern
from gpuprov.catalog.nics import read_nics_file
from gpuprov.catalog.signatures import find_held
from gpuprov.catalog.verdicts import Verdict, explained, in_health, judge_line
from gpuprov.catalog.xids import find_worst
from gpuprov.explain import explain
from gpuprov.explain.messages import symptoms_in
from gpuprov.facts.captures import logs
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.facts.probes.kernel.kernel_log import KERNEL_LOG, parse
from gpuprov.facts.probes.kernel.stamps import read_stamp
from gpuprov.host_code.kernel_lines import join_messages
from gpuprov.host_page.kernel_log import list_kinds
from gpuprov.report import health_page
from gpuprov.report.health import as_metrics, as_text
from gpuprov.spec.model import HostSpec
from gpuprov.verify.evaluate import Result, evaluate
from tests.capabilities.asking import ask
from tests.capabilities.health_host import log
from tests.documents import read_yaml

TESTS = Path(__file__).parents[1]
CHECKS = ("xid", "programs", "sxid", "driver_log", "pcie_errors", "rdma_log", "kernel")
EXAMPLES = tuple(text for line in kernel_file().lines for text in line.examples)
SXID = "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"


@cache
def corpus() -> tuple[str, ...]:
    """Every line of the corpora that the kernel or a driver logged, without its stamp."""
    found = [SXID, *EXAMPLES, *(line.example for line in read_nics_file().lines)]
    for file in sorted((TESTS / "explain" / "corpus").glob("*.yaml")):
        found += [row["line"] for row in read_yaml(file)]
    for name in ("dmesg.txt", "journal.txt"):
        for file in sorted((TESTS / "real").glob(f"*/{name}")):
            found += join_messages(file.read_text(encoding="utf-8", errors="replace").splitlines())
    stamped = (read_stamp(line) for line in found)
    return tuple(dict.fromkeys(one.text.rstrip() for one in stamped if one.of_kernel and "\n" not in one.text))


@cache
def list_judged() -> tuple[str, ...]:
    return tuple(line for line in corpus() if (one := judge_line(line)) and one.standing != "recovered")


def outcomes(output: str) -> dict[str, Outcome]:
    return {check: ask(f"health.{check}", None, kernel_log=output) for check in CHECKS}


def test_the_corpora_have_lines_of_each_kind() -> None:
    kinds = {verdict.check for line in list_judged() if (verdict := judge_line(line))}
    assert kinds == set(CHECKS)
    assert len(list_judged()) > 130


def differences(line: str) -> list[str]:
    """Where the readers differ about a line that the kernel logged."""
    verdict = judge_line(line)
    assert verdict is not None
    symptom = explained(verdict)
    if symptom is None:  # an Xid without an entry
        return [] if verdict.number else ["no symptom"]
    found = []
    for how, text in (("explain LINE", line), ("explain -", f"[    1.000000] other\n[  100.000000] {line}\nlast\n")):
        judged = [(one.symptom.key, one.verdict) for one in symptoms_in(text) if one.verdict]
        found += [f"{how}: {judged}"] * (judged != [(symptom.key, verdict)])
    said = dict(explain(line)[0].lines).get("health")
    if verdict.standing == "unfit":
        words = f"health.{verdict.check} fails, unless something ended it since: {verdict.action}"
        found += [f"explain says {said}"] * (said != words)
    failing = {str(verdict.check): str(verdict.action)} if verdict.standing == "unfit" else {}
    unproven = {str(verdict.check)} if verdict.standing == "unknown" else set()
    recorded = logs.kernel_log(f"[    0.000000] Linux version 6.1\n[  100.000000] {line}\n")
    for how, output in (("health", log(line)), ("health --from", recorded or "")):
        outcome = outcomes(output)
        fails = {check: str(one.action) for check, one in outcome.items() if one.status == "fail"}
        skips = {check for check, one in outcome.items() if one.status not in ("pass", "fail")}
        found += [f"{how}: {fails}, {skips}"] * (fails != failing or skips != unproven)
    return found


def results(line: str) -> list[Result]:
    """The results of the checks of the kernel log alone, as `gpuprov health` prints them."""
    facts = Facts({KERNEL_LOG.name: Output(log(line))})
    every = evaluate(HostSpec(name="gpu1", capabilities={"health": Health()}), facts)
    return [one for one in every if one.check.removeprefix("health.") in CHECKS]


def printed_differences(line: str) -> list[str]:
    """Differences of text, metrics and pages of health, and of the host's own page, from the verdict on a line."""
    verdict = judge_line(line)
    assert verdict is not None
    unfit = verdict.standing == "unfit"
    judged, check = results(line), f"health.{verdict.check}"
    failed = {
        "text": f"because   {check} [{verdict.action}]" in as_text(judged),
        "metrics": f'check="{check}",action="{verdict.action}"' in as_metrics(judged, 0),
        "page": f'<p><span class="soft">{check}</span>' in health_page.render(judged),
    }
    found = [f"{how}: {failing}" for how, failing in failed.items() if failing != unfit]
    (row,) = list_kinds(parse(Output(log(line))))
    shown = (row.standing, row.health) != (verdict.standing, in_health(verdict))
    return found + [f"the host's page: {row.standing}, {row.health}"] * shown


def test_what_is_printed_of_a_line_is_its_verdict() -> None:
    wrong = {line: found for line in list_judged() if (found := printed_differences(line))}
    assert not wrong


def test_a_line_has_one_verdict() -> None:
    wrong = {line: found for line in list_judged() if (found := differences(line))}
    assert not wrong


def test_what_explain_calls_a_defect_of_the_host_is_one_to_health() -> None:
    """A symptom by which health fails is never found by its words alone in a line that the kernel logged in full."""
    unfit = {entry.key for entry in kernel_file().lines if entry.verdict == "unfit"}
    of_kernel = [line for line in corpus() if line.startswith(("NVRM: ", "pcieport ", "nvme ", "watchdog: "))]
    assert len(of_kernel) > 80
    wrong = {
        line: named
        for line in of_kernel
        if judge_line(line) is None and (named := {one.symptom.key for one in find_held(fold(line))} & unfit)
    }
    assert not wrong


def test_a_whole_log_has_the_same_defects_to_explain_and_to_a_record() -> None:
    count = 0
    for file in sorted((TESTS / "real").glob("*/dmesg.txt")):
        text = file.read_text(encoding="utf-8", errors="replace")
        recorded = logs.kernel_log(text)
        if recorded is None:
            continue
        count += 1
        failing = {check: one.action for check, one in outcomes(recorded).items() if one.status == "fail"}
        seen = [one for one in symptoms_in(text) if not one.ended]
        bad = [one.verdict for one in seen if one.verdict and one.verdict.standing == "unfit"]
        named = {
            check: find_worst(tuple(one.action for one in bad if one.check == check))
            for check in {v.check for v in bad}
        }
        assert named == failing, file.parent.name
    assert count > 5


def test_a_host_hands_on_what_is_judged(tmp_path: Path) -> None:
    (tmp_path / "journalctl").write_text(f"#!/bin/sh\ncat {tmp_path / 'log'}\n")
    (tmp_path / "journalctl").chmod(0o755)
    (tmp_path / "log").write_text(
        "".join(
            f"{1763800001 + number}.000000 gpu1 kernel: {line}\n{1763800001 + number}.500000 gpu1 kernel: usb 1-1: "
            "new\n"
            for number, line in enumerate(EXAMPLES)
        )
    )
    done = subprocess.run(
        ["sh", "-c", KERNEL_LOG.script],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert [one.text for one in parse(Output(done.stdout)).lines] == [*EXAMPLES]


def test_patterns_are_of_the_shell_as_well() -> None:
    for line in kernel_file().lines:
        assert not re.search(r"[\\'\"$`]|\(\?|[*+?}][+?]", pattern(line)), line.key
        assert any(re.match(pattern(line), text) for text in line.examples), line.key


def test_each_line_is_explained_by_a_symptom() -> None:
    for line in kernel_file().lines:
        verdict = Verdict(key=line.key, check=line.check, standing=line.verdict)
        assert (explained(verdict) is None) == (line.verdict == "recovered"), line.key


def test_a_log_that_is_well_is_silent() -> None:
    silent = log("usb 1-1: new device", "EXT4-fs (sda1): mounted filesystem with ordered data mode")
    assert {one.status for one in outcomes(silent).values()} == {"pass"}
    assert Facts({}).known(KERNEL_LOG) is None
