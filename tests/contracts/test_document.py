"""What commands print with --json is one document: each is made here of its own tests' hosts, and judged by the one
schema."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from typing import get_args

from gpuprov.accept.document import build_document as accept
from gpuprov.apply.document import build_document as apply
from gpuprov.apply.model import ApplyRun, HostOutcome, State
from gpuprov.cli.reference import VERBS
from gpuprov.core.errors import Outcome
from gpuprov.drift.document import build_document as drift
from gpuprov.drift.model import HostDrift
from gpuprov.plan.document import build_document as plan
from gpuprov.plan.model import HostPlan
from gpuprov.rehearse.document import build_document as rehearse
from gpuprov.rehearse.model import Rehearsal, Rehearsed
from gpuprov.repair.document import build_document as repair
from gpuprov.repair.model import OUTCOMES, HostRepair, Repaired
from gpuprov.repair.model import HostPlan as HostPlanned
from gpuprov.report.as_json import build_document as verify
from gpuprov.report.document import Document
from gpuprov.report.health import build_document as health
from gpuprov.verify.evaluate import Result
from tests import documents
from tests.accept.test_show import outcome as measured
from tests.contracts.test_imports import FILES, PACKAGE, dotted, nodes, shown
from tests.plan.test_plan_text import FULL
from tests.report.test_numbers import ROWS
from tests.rows import run_each

HEALTH = (
    Result(host="gpu0", capability="health", check="health.xid", status="pass"),
    Result(host="gpu1", capability="health", check="health.xid", status="fail"),
)
COMMON = ("verb", *Document.__struct_fields__)
MADE: dict[str, tuple[Callable[[], Document], dict[str, Outcome]]] = {
    "plan": (
        lambda: plan([FULL, HostPlan(host="idle"), HostPlan(host="away", unreachable="timed out")], 1.0),
        {"idle": "ok", "away": "unreachable", FULL.host: "differs"},
    ),
    "apply": (
        lambda: apply(ApplyRun(run="r", hosts=[HostOutcome(host=state, state=state) for state in get_args(State)])),
        {
            "unchanged": "ok",
            "changed": "ok",
            "failed": "failed",
            "blocked": "failed",
            "locked": "locked",
            "unreachable": "unreachable",
            "not-started": "locked",
            "prepared": "ok",
        },
    ),
    "verify": (
        lambda: verify(ROWS),
        {'a"b\\c\nd': "differs", "bad": "differs", "dark": "not proven", "gone": "unreachable", "good": "ok"},
    ),
    "drift": (
        lambda: drift([HostDrift(host="a", state="as applied"), HostDrift(host="b", state="unknown")]),
        {"a": "ok", "b": "not proven"},
    ),
    "rehearse": (
        lambda: rehearse(Rehearsed(run="r", rehearsals=[Rehearsal(name="s", hosts=("a", "b"), problem="no such GPU")])),
        {"a": "unusable", "b": "unusable"},
    ),
    "health": (lambda: health(HEALTH), {"gpu0": "ok", "gpu1": "differs"}),
    "repair": (
        lambda: repair(
            Repaired(
                run="r",
                hosts=[HostRepair(plan=HostPlanned(host=state, step="reset"), state=state) for state in OUTCOMES],
            )
        ),
        {str(state): outcome for state, outcome in OUTCOMES.items()},
    ),
    "accept": (
        lambda: accept(measured()),
        {"gpu1": "differs", "gpu2": "differs", "gpu3": "differs", "gpu4": "unreachable"},
    ),
}


@run_each("verb", VERBS)
def test_each_document_has_the_common_keys_and_each_hosts_outcome(verb: str) -> None:
    make, outcomes = MADE[verb]
    told = documents.read_document(make())
    assert (told["verb"], told["gpuprov_document"]) == (verb, 1)
    assert tuple(key for key in told if key in COMMON) == COMMON
    assert told["summary"]["sentence"]
    assert {host["host"]: host["outcome"] for host in told["hosts"]} == outcomes


def test_the_schema_has_a_branch_for_each_command() -> None:
    schema = json.loads((documents.REFERENCE / "document.schema.json").read_text(encoding="utf-8"))
    kinds = {verb: schema["$defs"][at.rpartition("/")[2]] for verb, at in schema["discriminator"]["mapping"].items()}
    assert set(kinds) == set(VERBS) == set(MADE)
    optional = {"gpuprov_document", "gpuprov"}
    assert {verb for verb, kind in kinds.items() if not set(COMMON) - optional <= set(kind["required"])} == set()


def test_one_function_writes_it() -> None:
    rooms = ("plan", "apply", "drift", "rehearse", "accept", "verify", "repair")
    writers = {
        shown(path)
        for path in FILES
        if path.relative_to(PACKAGE).parts[0] in rooms
        for node in nodes(path)
        if isinstance(node, ast.Call) and dotted(node.func) == "format_document"
    }
    assert writers == set()
