"""Cases that go through more than one reader: whole hosts, whole specs, inventories as files, and command lines."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import yaml

from gpuprov import plan
from gpuprov.capabilities.base import Moment
from gpuprov.core.errors import DEFECT, GpuprovError
from gpuprov.drift import judge as drift_judge
from gpuprov.drift import text as drift_text
from gpuprov.export import spec_of
from gpuprov.facts.collect.gather import HostFacts
from gpuprov.facts.probes.base import Facts, Output, ProbeFailed
from gpuprov.fleet import specs
from gpuprov.hardware.topology.judge import list_findings
from gpuprov.hardware.topology.model import read
from gpuprov.inventory import load
from gpuprov.plan.collect import host_plan
from gpuprov.plan.decide import decide
from gpuprov.report import as_json, document, health, junit, text
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import evaluate
from tests.fuzz import corpus, mutate

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

ROOT = corpus.TESTS.parent
MOMENTS: tuple[Moment, ...] = ("preflight", "now", "next-boot")


@cache
def inventories() -> tuple[str, ...]:
    """The inventories of the project: the example, and those of the scenarios."""
    found = [*ROOT.glob("molecule/*/inventory.yaml"), *ROOT.glob("inventories/*/*.yaml"), *ROOT.glob("tests/*.yaml")]
    return tuple(path.read_text(encoding="utf-8") for path in sorted(found))


@cache
def pairs() -> tuple[tuple[RawHost, HostSpec], ...]:
    """A host of each spec of the project's inventories."""
    found: list[tuple[RawHost, HostSpec]] = []
    for path in [*sorted(ROOT.glob("molecule/*/inventory.yaml")), ROOT / "inventories/example/inventory.yaml"]:
        with contextlib.suppress(GpuprovError):
            found += specs.load_fleet([str(path)], cache=False).pairs
    return tuple({id(raw.values): (raw, spec) for raw, spec in found}.values())


class Defect(AssertionError):
    """gpuprov itself broke somewhere, and said so."""


def warm() -> None:
    """Read what all cases share, which children have then without reading it: inventories, what a role's digest rests
    on."""
    inventories()
    names = {name for _, spec in pairs() for name in spec.capabilities}
    for number, (_, spec) in enumerate(pairs()):
        if names & set(spec.capabilities):  # a spec adds capabilities that none before it has
            names -= set(spec.capabilities)
            _judge_host((number, _host(Random(0))[1]))


def _host(random: Random) -> tuple[int, dict[str, Output]]:
    outputs = {}
    for name, probe in corpus.probes().items():
        seeds = corpus.seeds(corpus.home()[name], name)
        chosen = (
            random.choice(seeds) if random.random() < 0.6 else mutate.text(random, seeds, corpus.words(probe.script))
        )
        outputs[name] = Output(chosen, random.choice((0, 0, 0, 1, 127)))
    return random.randrange(len(pairs())), outputs


def _judge_host(case: tuple[int, dict[str, Output]]) -> None:
    raw, spec = pairs()[case[0]]
    facts: Facts = HostFacts(case[1])
    results = evaluate(spec, facts, MOMENTS)
    told = [one for one in results if DEFECT in one.fix]
    if told:
        raise Defect(told[0].found)
    decision = decide((raw, spec), results, facts)
    plans = [host_plan(spec, results, facts, decision, datetime.now(UTC))]
    plan.as_text(plans, verbose=True)
    document.as_json(plan.build_document(plans))
    text.render(results, verbose=True)
    document.as_json(as_json.build_document(results))
    junit.render(results)
    drift_text.as_text([drift_judge.judge(spec, results, facts)])
    health.as_text(results, verbose=True)
    document.as_json(health.build_document(results))
    health.as_metrics(results, 0.0)
    _, unread = spec_of(facts)
    if broken := [one for one in unread if DEFECT in one]:
        raise Defect(broken[0])
    with contextlib.suppress(ProbeFailed):
        list_findings(read(facts))


@cache
def _values() -> tuple[dict[str, Any], ...]:
    return tuple(dict(raw.values) for raw, _ in pairs())


def _judge_spec(values: Any) -> None:
    if not isinstance(values, dict):
        return
    raw = RawHost(name="gpu01", values=values, connection={"ansible_host": "192.0.2.1"})
    try:
        found = specs.judge([raw])
    except GpuprovError as error:
        str(error)
        return
    if broken := [told for _, spec in found.pairs for told in spec.defects]:
        raise Defect(broken[0][0])


INI = ("[a]\ngpu[01:03] ansible_host=192.0.2.1 x='[1, 2]'\n[a:vars]\ny=1\n[b:children]\na\n",)
TOML = ('[all.vars]\nx = 1\n[a.hosts]\n"gpu[1:3]" = {}\nb = { ansible_port = 2 }\n',)


def _inventory(random: Random) -> tuple[str, str]:
    kind = random.choice(("inventory.yaml", "inventory.yaml", "inventory.json", "hosts", "inventory.toml", "data.yaml"))
    if kind == "hosts":
        return kind, mutate.text(random, INI)
    if kind == "inventory.toml":
        return kind, mutate.text(random, TOML)
    if kind == "inventory.yaml":
        return kind, mutate.text(random, inventories())
    document = mutate.data(random, yaml.safe_load(random.choice(inventories())))
    try:
        return kind, yaml.safe_dump(document)
    except (yaml.YAMLError, ValueError):
        return kind, "{}"


def _judge_inventory(case: tuple[str, str]) -> None:
    Path(case[0]).write_text(case[1], encoding="utf-8", errors="replace")
    try:
        found = specs.judge(load([case[0]], cache=False).hosts)
    except GpuprovError as error:
        if error.exit_code != 2 or not str(error):
            raise Defect(f"exit status {error.exit_code}: {error}") from error
        return
    if broken := [told for _, spec in found.pairs for told in spec.defects]:
        raise Defect(broken[0][0])


COMMANDS = (
    "check",
    "plan",
    "verify",
    "export",
    "topology",
    "health",
    "accept",
    "explain",
    "catalog",
    "mig",
    "schema",
    "render",
    "fit",
    "layouts",
    "nothing",
)
OPTIONS = (
    "--limit", "-l", "--json", "-v", "--only", "--timeout",
    "--quick", "--vault-password-file", "--no-cache", "--help", "-h", "--gpu",
    "--svg", "--junit", "--html", "-o", "--out", "--serial",
    "--version", "--", "-", "--nothing", "--limit=", "--timeout=nan",
)  # fmt: skip
WORDS = (
    "inventory.yaml", "none.yaml", "gpus", "drivers", "cuda", "mig",
    "H100", "A100-SXM4-80GB", "nvidia_driver.version", "802", "²", "all",
    "!all", "&all", "gpu[0]", "gpu[²]", "gpu[99999999999999999999]",
    "all[0:" + "9" * 5000 + "]", "~(", "~(a+)+$", "*" * 200, "[" * 200, "@none",
    "@/dev/zero", "@inventory.yaml", "@.", "a,b", ",", "", " ", "\udcff",
    "é", "\x1b[2J", "x" * 5000, "1", "0", "-1", "nan", "inf", "1e999",
    "9" * 400, "nouveau", "nouveau,kernel", "no/such/file", "/dev/null",
    "/proc/self/mem", "1g.10gb", "1g.10gb:2", "1g.10gb:²", "3g.40gb,3g.40gb",
    "all=1g.10gb", "10de:2330", "--", "'", "0-9999999999", "%d", "{{ x }}",
)  # fmt: skip


def _command(random: Random) -> list[str]:
    argv = [random.choice(COMMANDS)]
    for _ in range(random.randrange(6)):
        argv.append(random.choice(WORDS) if random.random() < 0.6 else random.choice(OPTIONS))
    return argv


def _judge_command(argv: list[str]) -> None:
    """As the program does it; hosts that it would reach do not answer."""
    from gpuprov import __main__
    from gpuprov.facts.collect import children, rounds, transport

    def silent(jobs: Any, workers: int) -> None:
        for job in jobs:
            job.done(children.Ended(b"", b"no route to host", 255))

    modules: list[Any] = [rounds, transport]
    kept = [(module, module.run_all) for module in modules]
    old, hook = sys.argv, sys.excepthook
    Path("inventory.yaml").write_text(inventories()[0], encoding="utf-8")
    sys.argv = ["gpuprov", *argv]
    for module in modules:
        module.run_all = silent
    try:
        with contextlib.redirect_stdout(_Stream()), contextlib.redirect_stderr(_Stream()):
            __main__.main()
    except SystemExit as ended:
        if ended.code not in (0, 1, 2, 4):
            raise Defect(f"exit status {ended.code}") from None
    finally:
        sys.argv, sys.excepthook = old, hook
        for module, function in kept:
            module.run_all = function


class _Stream(io.TextIOWrapper):
    """Standard output of a terminal that knows ASCII only."""

    def __init__(self) -> None:
        super().__init__(open(os.devnull, "wb"), encoding="ascii")  # noqa: SIM115


def whole() -> tuple[Target, ...]:
    """The classes of whole things; the weights keep their time in proportion."""
    from tests.fuzz.targets import Target

    judge: Callable[[Any], object] = _judge_host
    return (
        Target("whole.host", _host, judge),
        Target("whole.spec", lambda random: mutate.data(random, random.choice(_values())), _judge_spec, 6.0),
        Target("whole.inventory", _inventory, _judge_inventory, 0.8),
        Target("whole.command", _command, _judge_command, 0.8),
    )
