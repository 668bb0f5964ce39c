"""The page of `gpuprov health`: its sentence, what is to be done, and no word of what it did not ask."""

from __future__ import annotations

import json
import re

from gpuprov.report import health_page
from gpuprov.report.states import LETTERS
from gpuprov.verify.evaluate import Result, ResultStatus
from gpuprov.verify.fitness import fitness
from tests.rows import run_each


def result(host: str, status: ResultStatus, check: str = "xid", **more: str) -> Result:
    return Result(host=host, capability="health", check=f"health.{check}", status=status, **more)  # type: ignore[arg-type]


GOOD = [result(f"gpu{number:03}", "pass") for number in range(1, 31)]
RESET = [result(host, "fail", action="reset", fix="reset the GPU") for host in ("gpu031", "gpu032")]
RETURN = [result("gpu033", "fail", "remapped_rows", action="return", fix="return the card")]
OPEN = [result("gpu034", "skip", found="the journal begins late")]


@run_each(
    ("results", "state", "sentence", "more"),
    [
        (GOOD[:1], "right", "gpu001 is fit for work", ""),
        (GOOD, "right", "All 30 hosts are fit for work", ""),
        (RESET[:1], "fail", "gpu031 is not fit for work until its GPUs are reset", ""),
        (OPEN, "unproven", "gpu034 is not proven to be fit for work: the journal begins late", ""),
        ([*GOOD, *OPEN], "unproven", "1 of 31 hosts is not proven to be fit for work", "30 fit; 1 not proven."),
        (
            [*GOOD, *RESET, *RETURN, *OPEN],
            "fail",
            "3 of 34 hosts are not fit for work",
            "30 fit; 2 fit after an action; 1 not fit; 1 not proven.",
        ),
        ([], "unproven", "No host was judged.", ""),
    ],
)
def test_the_first_sentence(results: list[Result], state: str, sentence: str, more: str) -> None:
    told = health_page.headline(fitness(results))
    assert (told.state, told.sentence, told.more) == (state, sentence, more)


def test_no_host_has_a_colour_that_says_otherwise_than_its_sentence() -> None:
    """What passed beside what was not proven does not make a host green."""
    part = [result("gpu035", "pass", "xid"), result("gpu035", "skip", "ecc", found="nvidia-smi does not answer")]
    gone = [result("gpu036", "unreachable", found="no route")]
    broken = [result("gpu037", "pass", "xid"), result("gpu037", "error", "ecc", found="it does not parse")]
    late = [result("gpu038", "fail", "ecc", action="reset", moment="next-boot")]
    page = health_page.render([*GOOD[:1], *RETURN, *OPEN, *part, *gone, *broken, *late])
    data = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert data
    found = json.loads(data[1])
    states = {found["texts"][host[0]]: list(LETTERS)[host[3]] for host in found["hosts"]}
    assert states == {
        "gpu001": "right",
        "gpu033": "fail",
        "gpu034": "unproven",
        "gpu035": "unproven",
        "gpu036": "gone",
        "gpu037": "error",
        "gpu038": "fail",
    }


def test_what_is_to_be_done_comes_first_the_most_severe_before_the_others() -> None:
    page = health_page.render([*GOOD, *RESET, *OPEN, *RETURN])
    done = [
        page.index(words)
        for words in ("drain it, and return the card", "until its GPUs are reset", "journal begins late", "Causes")
    ]
    assert done == sorted(done)
    assert 'data-copy="--limit gpu031,gpu032"' in page or 'data-copy="--limit &#39;gpu[031:032]&#39;"' in page


def test_hosts_that_fail_alike_for_which_another_thing_is_to_be_done_stand_apart() -> None:
    """Two Xids are one check, and each has its own way out."""
    fixes = {"gpu1": "reseat the riser", "gpu2": "look at the NVLink bridge", "gpu3": "reseat the riser"}
    page = health_page.render([result(host, "fail", action="drain", fix=fix) for host, fix in fixes.items()])
    todo = page[page.index("What is to be done") :].split("</section>", 1)[0]
    assert todo.count("<article") == 2
    assert todo.count("reseat the riser") == todo.count("look at the NVLink bridge") == 1


def test_it_says_nothing_of_specs_and_boots_and_escapes_what_hosts_say() -> None:
    page = health_page.render([*GOOD, result("gpu9<b>", "fail", found="<script>alert(1)</script>", action="drain")])
    assert "<script>alert" not in page
    assert "gpu9<b>" not in page
    for words in ("matches the spec", "match their specs", "After the next boot"):
        assert words not in page.split("<script", 1)[0], words
    assert '"boots":false' in page.replace(" ", "")
