"""A rehearsal in the reports: what failed, and what nobody knows because of it, stands on the page and in the test
cases."""

from __future__ import annotations

from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

import gpuprov.simulate.hosts  # which the command imports late
import gpuprov.simulate.tools  # noqa: F401
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.rehearse import Options, Rehearsed, command, format_text
from gpuprov.rehearse.acts import rehearse
from gpuprov.rehearse.document import build_document
from gpuprov.rehearse.model import ACTS, Rehearsal
from gpuprov.rehearse.page import render_page
from gpuprov.rehearse.results import list_results
from gpuprov.report import html, junit
from gpuprov.spec.kernel import Kernel
from gpuprov.verify.verify import verdict
from tests.rehearse.stage import Noting, pair, scripted
from tests.rows import run_each


def rehearsed(*names: str) -> Rehearsed:
    with scripted():
        return rehearse([pair(name) for name in names], Options(all_hosts=True), Noting())


def test_a_failed_apply_is_on_the_page_and_in_the_test_cases() -> None:
    whole = rehearsed("failing")
    told = {one.check: one for one in list_results(whole)}
    assert told["rehearsal.apply"].status == "fail"
    assert "no space" in told["rehearsal.apply"].found
    for act in ("verify", "reboot", "verify_again", "second_apply"):
        assert told[f"rehearsal.{act}"].status == "skip"
        assert told[f"rehearsal.{act}"].found.startswith("unknown: not done")
    page = html.render(list_results(whole), "gpuprov rehearse")
    assert "Nothing is wrong" not in page
    assert "differs from its spec" in page
    assert "no space" in page
    root = ElementTree.fromstring(junit.render(list_results(whole)))
    assert (root.get("failures"), root.get("tests")) == ("1", str(len(ACTS)))
    text = format_text(whole)
    assert "production would see: unknown, because apply did not succeed" in text
    assert "unchanged" not in text


@run_each(("name", "check"), [("broken", "rehearsal.bring_up"), ("lost", "rehearsal.reboot")])
def test_a_host_that_does_not_come_up_is_unreachable(name: str, check: str) -> None:
    told = list_results(rehearsed(name))
    assert [one.check for one in told if one.status == "unreachable"] == [check]
    assert verdict(told) == "differs"


def test_what_cannot_be_simulated_and_what_was_interrupted_is_an_error() -> None:
    impossible = Rehearsal(name="re-1", hosts=("gpu1",), problem="no such GPU", fix="another")
    cut = Rehearsal(name="re-2", hosts=("gpu2",))
    for whole in (Rehearsed(run="r", rehearsals=[impossible]), Rehearsed(run="r", rehearsals=[cut], interrupted=True)):
        told = list_results(whole)
        assert {one.status for one in told} == {"error"}
        assert verdict(told) == "differs"


def test_a_green_rehearsal_says_what_it_did_not_prove() -> None:
    whole = rehearsed("gpu01")
    told = {one.check: one for one in list_results(whole)}
    assert [told[f"rehearsal.{act.replace(' ', '_')}"].status for act in ACTS] == ["pass"] * len(ACTS)
    assert "waived: the host was described without GPUs" in told["host.gpu"].found
    assert verdict(told.values()) == "matches"
    assert "gpu01: green, but 1 check is not proven here" in format_text(whole)
    assert "but 1 check is not proven" in html.render(list_results(whole))


def test_what_was_left_out_is_said_everywhere_and_never_passes() -> None:
    blocks = {"kernel": Kernel(), "rdma": Rdma(fabric="efa")}
    with scripted():
        whole = rehearse([pair("gpu01", capabilities=blocks)], Options(), Noting())
    assert whole.exit_code == 0
    lines = format_text(whole).splitlines()
    assert lines[0] == "gpu01: green, but 1 check is not proven here and 1 part of the spec was left out"
    assert any(line.startswith("  left out: rdma: fabric efa: AWS's own installer") for line in lines)
    assert "1 simulated host for 1 real host: 1 green; parts of 1 spec left out; " in lines[-1]
    (row,) = [one for one in list_results(whole) if one.check == "rehearsal.left_out"]
    assert row.status == "skip"
    assert row.found.startswith("not rehearsed: rdma: fabric efa")
    document = build_document(whole)
    assert document.rehearsals[0].left_out[0].startswith("rdma: fabric efa")
    assert "parts of 1 spec left out" in document.summary.sentence
    page = render_page(whole)
    assert '<span class="soft">left out</span> rdma: fabric efa' in page
    assert "and 1 part of the spec was left out" in page
    assert 'name="rehearsal.left_out"' in junit.render(list_results(whole))


def test_the_command_writes_the_acts_into_its_files(tmp_path: Path) -> None:
    with scripted(), mock.patch("gpuprov.simulate.tools.require"), mock.patch("gpuprov.simulate.hosts", Noting()):
        code = command.run([pair("failing")], Options(), junit=tmp_path / "r.xml", html=tmp_path / "r.html")
    assert code == 3
    assert 'failures="1"' in (tmp_path / "r.xml").read_text()
    assert "<h1>The rehearsal is not green: apply failed</h1>" in (tmp_path / "r.html").read_text()
