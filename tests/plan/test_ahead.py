"""What waits for a package source, decided by a reading in which the source is there: as apply decides it then."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuprov import plan as planning
from gpuprov.capabilities.cuda_toolkit.fragment import CudaToolkit
from gpuprov.capabilities.dcgm.fragment import Dcgm
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.probes.base import Facts
from gpuprov.host_code import look, sources, streams
from gpuprov.plan import ahead, exact
from gpuprov.plan.ahead import decide_ahead
from gpuprov.plan.exact import Answer, Source, Transaction
from gpuprov.plan.foresee import Foreseen, Keys, foresee, request, with_keys
from gpuprov.plan.host_code import HostAnswer
from gpuprov.plan.model import Item
from gpuprov.plan.planning import Planner, plans_of
from gpuprov.plan.read import ALL, Reading
from gpuprov.plan.show import Show
from gpuprov.play.preflight import judging
from gpuprov.resources import Packages
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.spec.problem import Origin, Path
from gpuprov.spec.repository import Repository
from gpuprov.verify.evaluate import Result, evaluate
from tests.capabilities.asking import facts, good
from tests.capabilities.test_cuda_toolkit import REQUIRES
from tests.capabilities.test_cuda_toolkit_desired import NO_TOOLKIT
from tests.contracts.test_desired import MORE
from tests.public_keys import GOOD

URL = "https://mirror.example/cuda"
VERSION = "580.95.05-1"
NAMES = (
    "nvidia-kernel-dkms nvidia-kernel-support firmware-nvidia-gsp nvidia-alternative nvidia-smi libnvidia-ml1 libcuda1 "
    "libnvidia-ptxjitcompiler1 libnvidia-cfg1 nvidia-driver-cuda libnvidia-nvvm4 libnvidia-pkcs11-openssl3 "
    "libcudadebugger1 nvidia-cuda-mps nvidia-persistenced nvidia-modprobe nvidia-kernel-open-dkms"
).split()
INDEX = "".join(f"{name} | {VERSION} | {URL}  Packages\n" for name in NAMES)
SPEC = HostSpec(
    name="gpu1",
    capabilities={
        "nvidia_driver": NvidiaDriver(version="any", source="mirror", repository=Repository(url=URL, key_file="/k")),
        "cuda_toolkit": CudaToolkit(versions=("12.4",)),
        "dcgm": Dcgm(),
    },
)
SEEN = Answer(sources=(Source("", ()),), printed=streams.pack_streams("true"))


def host(*, there: bool, **changed: Any) -> Facts:
    """A host without a driver and without the source; or as it is read with the source beside its own."""
    texts = {**good(), **MORE, "login": "", "cuda_packages": "", "cuda_toolkits": NO_TOOLKIT, "cuda_requires": REQUIRES}
    texts |= {"packages": "", "driver_libraries": "", "nvidia_driver": "", "dcgm_packages": "", "package_index": INDEX}
    if there:
        block: sources.Source = {"name": "nvidia", "url": URL, "suite": "/", "components": [], "signed": "packages"}
        lines = "".join(f" {line}\n" for line in sources.format_text(block, "debian").splitlines())
        told = f"@file {sources.derive_path('nvidia', 'debian')}\n{lines}"
        texts["repositories"] = texts["repositories"].replace("@end", f"{told}@end")
    else:
        texts |= dict.fromkeys(("package_index", "cuda_index", "cuda_requires", "dcgm_index"), "")
    return facts(**{**texts, **changed})


def read(there: Facts, spec: HostSpec = SPEC) -> Reading:
    results = tuple(evaluate(spec, there, ALL))
    return Reading(there, results, foreseen=foresee(spec, there, results))


def decided(
    monkeypatch: pytest.MonkeyPatch, second: Facts | Exception, answer: Answer = SEEN
) -> tuple[Reading, Reading]:
    """The first reading, and the one that is planned by."""

    def told(_: bytes) -> Facts:
        if isinstance(second, Exception):
            raise second
        return second

    monkeypatch.setattr(judging, "facts_of", told)
    first = read(host(there=False))
    assert first.foreseen
    return first, decide_ahead(SPEC, first, first.foreseen, answer, None)


def test_versions_are_those_of_the_new_source(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = decided(monkeypatch, host(there=True))
    assert first.foreseen
    assert second.foreseen
    assert first.foreseen.waits.keys() == {"nvidia_driver", "cuda_toolkit", "dcgm"}
    assert not any(first.foreseen.packages.values())
    assert second.foreseen.waits == {}
    (driver,), (toolkit,), (dcgm,) = (second.foreseen.packages[name] for name in first.foreseen.waits)
    assert f"libcuda1={VERSION}" in driver.install
    assert toolkit.install[0] == "cuda-toolkit-12-4=12.4.1-1"
    assert any(one.startswith("datacenter-gpu-manager-4-cuda13=") for one in dcgm.install), "by the driver that comes"
    assert second.foreseen.sources == first.foreseen.sources, "which is still to be added"
    assert second.foreseen.driver["coming"]["version"] == "580.95.05"


def test_checks_of_the_host_stay_and_what_stops_an_apply_is_asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = decided(monkeypatch, host(there=True, clock="1"))
    before, after = ({one.check: one for one in each.results} for each in (first, second))
    assert before.keys() == after.keys()
    assert (before["nvidia_driver.resolvable"].status, after["nvidia_driver.resolvable"].status) == ("skip", "pass")
    assert after["nvidia_driver.resolvable"].version == "580.95.05"
    for name in ("host.clock", "nvidia_driver.package_source", "nvidia_driver.packages"):
        assert after.get(name) == before.get(name)
    moves = {change.after for change in second.foreseen.moves["nvidia_driver"]} if second.foreseen else set()
    assert not [one for one in moves if "resolved when" in one]


def test_a_source_that_lacks_what_is_wanted_blocks_the_host_as_apply_refuses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, second = decided(monkeypatch, host(there=True, cuda_index="", cuda_requires=""))
    failed = [one.check for one in second.results if one.refuses and one.capability != "host"]
    assert failed == ["cuda_toolkit.resolvable"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            Answer(sources=(Source("this host cannot use it. Fix: the URL", ()),)),
            "this host cannot use it. Fix: the URL",
        ),
        (Answer(problem="no route to host"), "its package source could not be tried: no route to host"),
    ],
)
def test_where_the_index_cannot_be_had_the_plan_says_what_waits(
    monkeypatch: pytest.MonkeyPatch, answer: Answer, why: str
) -> None:
    first, second = decided(monkeypatch, AssertionError("nothing was read"), answer)
    assert first.foreseen
    assert second.foreseen
    assert second.results == first.results
    assert second.foreseen.unknown["nvidia_driver"] == why
    assert second.foreseen.sources == {}, "it is not tried a second time"
    assert second.foreseen.waits == first.foreseen.waits


@pytest.mark.parametrize(
    ("second", "answer"),
    [
        (GpuprovError("reading the host was cut off", "x"), SEEN),
        (AssertionError("nothing was read"), msgspec.structs.replace(SEEN, printed="no base64")),
        (AssertionError("nothing was read"), msgspec.structs.replace(SEEN, printed="AAAA")),
        (AssertionError("nothing was read"), msgspec.structs.replace(SEEN, printed="")),
    ],
)
def test_a_reading_that_cannot_be_used_costs_only_the_decision(
    monkeypatch: pytest.MonkeyPatch, second: Exception, answer: Answer
) -> None:
    first, found = decided(monkeypatch, second, answer)
    assert first.foreseen
    assert found.foreseen
    assert "what waits for its package source could not be decided: " in found.foreseen.unknown["nvidia_driver"]
    assert (found.results, found.foreseen.sources) == (first.results, first.foreseen.sources)


def test_an_answer_that_unfolds_without_end_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MOST", 100)
    with pytest.raises(ValueError, match="more than"):
        streams.unpack_streams(streams.pack_streams("head -c 1000 /dev/zero"))
    monkeypatch.setattr(streams, "MOST", 1001)
    assert streams.unpack_streams(streams.pack_streams("head -c 1000 /dev/zero")) == b"\0" * 1000 + b"\n"


class Hosts:
    """Answers in the place of hosts, and what they were asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, second: Facts, first: Answer = SEEN) -> None:
        self.asked: list[dict[str, Any]] = []
        self._first = first
        for place in (ahead, exact):
            monkeypatch.setattr(place, "run_on_hosts", self.run)
        monkeypatch.setattr(judging, "facts_of", lambda _: second)
        # What else this host lacks is no part of this.
        monkeypatch.setattr(
            Result, "refuses", property(lambda one: one.status == "fail" and one.check.endswith(".resolvable"))
        )

    def run(self, module: object, requests: Any, _form: object, **_more: object) -> dict[str, HostAnswer[Answer]]:
        assert module is look
        ((name, (_, request)),) = requests.items()
        self.asked.append(request)
        if "reading" in request:
            return {name: HostAnswer(self._first)}
        rows = [
            tuple(f"Inst {one.replace('=', ' ')}" for one in wanted["install"]) for wanted in request["transactions"]
        ]
        trials = tuple(Transaction((*each, *("Inst along 1",) * bool(each)), "", False) for each in rows)
        return {name: HostAnswer(Answer(transactions=trials, sources=(Source("", ()),) * len(request["sources"])))}


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> Planner:
    monkeypatch.setattr("gpuprov.host_code.repository_key.fetch_key", lambda *_: (GOOD, []))
    return Planner([(RawHost(name="gpu1"), SPEC)])


def test_the_first_plan_is_exact(monkeypatch: pytest.MonkeyPatch, planner: Planner) -> None:
    hosts = Hosts(monkeypatch, host(there=True))
    planner.note("gpu1", read(host(there=False)))
    (found,) = planner.plans(10, Pace(), Show())
    reading, trying = hosts.asked
    assert (len(reading["sources"]), reading["transactions"], reading["without"]) == (1, [], [])
    assert "probe package_index" in reading["reading"]
    assert reading["sources"] == trying["sources"]
    assert {one["of"] for one in trying["transactions"]} == {"580.95.05", "the CUDA toolkit 12.4", "DCGM"}
    told = {one.name: one.after for one in found.section("package")}
    assert (told["libcuda1"], told["cuda-toolkit-12-4"], told["along"]) == (VERSION, "12.4.1-1", "1")
    assert "resolved when" not in planning.as_text([found], width=0)
    assert found.versions["nvidia_driver"] == "580.95.05"
    assert not found.blocked


def test_roles_run_by_the_first_reading_as_apply_decides(monkeypatch: pytest.MonkeyPatch, planner: Planner) -> None:
    """A saved plan is refused where other roles would run."""
    Hosts(monkeypatch, host(there=True))
    first = read(host(there=False))
    (before,) = plans_of([(RawHost(name="gpu1"), SPEC)], {"gpu1": first})
    planner.note("gpu1", first)
    (found,) = planner.plans(10, Pace(), Show())
    assert (found.run, found.skipped) == (before.run, before.skipped)


def test_a_refused_source_is_told_with_what_waits_for_it(monkeypatch: pytest.MonkeyPatch, planner: Planner) -> None:
    refused = "the site: this host cannot use it. Fix: the key"
    hosts = Hosts(monkeypatch, host(there=True), Answer(sources=(Source(refused, ()),)))
    planner.note("gpu1", read(host(there=False)))
    (found,) = planner.plans(10, Pace(), Show())
    assert [one["sources"] for one in hosts.asked[1:]] == [[]] * (len(hosts.asked) - 1)
    told = planning.as_text([found], width=0)
    assert f"resolved when apply has added {URL}: driver any" in told
    assert f"nvidia_driver: {refused}" in found.unpredicted


def test_a_blocked_plan_asks_no_package_manager(monkeypatch: pytest.MonkeyPatch, planner: Planner) -> None:
    hosts = Hosts(monkeypatch, host(there=True, cuda_index="", cuda_requires=""))
    planner.note("gpu1", read(host(there=False)))
    (found,) = planner.plans(10, Pace(), Show())
    assert len(hosts.asked) == 1
    assert [one.check for one in found.blocked] == ["cuda_toolkit.resolvable"]


def test_a_refusal_has_the_place_in_the_spec_that_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuprov.host_code.repository_key.fetch_key", lambda *_: (GOOD, []))
    Hosts(monkeypatch, host(there=True, cuda_index="", cuda_requires=""))
    origins: dict[Path, Origin] = {
        ("cuda_toolkit",): Origin("gpu.yaml", 9, 3),
        ("cuda_toolkit", "version"): Origin("gpu.yaml", 9, 12),
    }
    pair = (RawHost(name="gpu1"), msgspec.structs.replace(SPEC, origins=origins))
    reading, places = read(host(there=False)), []
    for one in (pair, (RawHost(name="gpu1"), SPEC)):
        planner = Planner([one])
        planner.note("gpu1", reading)
        (found,) = planner.plans(10, Pace(), Show())
        places.append(found.places)
    assert places == [{"cuda_toolkit.resolvable": "gpu.yaml:9:3"}, {}]


def test_what_a_hold_alone_is_tried_for_still_says_what_waits() -> None:
    """A toolkit is held whatever comes of its source; that says nothing of its versions."""
    first = read(host(there=False))
    waits = next(one for result in first.results for one in result.changes if one.after.startswith("resolved when"))
    plan = planning.HostPlan(host="gpu1", changes=(Item.of("dcgm", waits),))
    foreseen = Foreseen(
        packages={"dcgm": (Packages(of="DCGM", hold=("a",)),)},
        moves={"dcgm": frozenset((waits,))},
        waits={"dcgm": "it waits"},
    )
    found = exact.with_answer(plan, foreseen, Answer(transactions=(Transaction(("hold a",), "", False),)))
    assert Item.of("dcgm", waits) in found.changes


def test_what_follows_the_driver_is_foreseen_by_the_version_that_comes() -> None:
    """Also where no source is to be added: dcgm chooses its build by the driver's branch."""
    spec = msgspec.structs.replace(
        SPEC, capabilities={**SPEC.capabilities, "nvidia_driver": NvidiaDriver(version="any", source="mirror")}
    )
    found = foresee(spec, host(there=True))
    assert found.waits == {}
    assert found.driver["coming"]["version"] == "580.95.05"
    (dcgm,) = found.packages["dcgm"]
    assert any("cuda13" in one for one in dcgm.install)


def test_debians_components_are_a_source_whose_file_stays_in_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host that is read with them lacks none, and would write no file."""
    spec = HostSpec(name="gpu1", capabilities={"nvidia_driver": NvidiaDriver(source="distribution")})
    archive = "archive|http://deb.debian.org/debian/|bookworm|main|Debian\n"
    main = "dkms | 3.0.10-8 | http://deb.debian.org/debian bookworm/main\n"
    first = read(host(there=False, debian_archives=archive, package_index=main), spec)
    assert first.foreseen
    place = "/etc/apt/sources.list.d/gpuprov-non-free.sources"
    keys: Keys = {}
    source = with_keys(first.foreseen, keys).sources["nvidia_driver"]
    assert ({*source["files"]}, keys) == ({place}, {})
    monkeypatch.setattr(judging, "facts_of", lambda _: host(there=False, package_index=good()["package_index"]))
    second = decide_ahead(spec, first, first.foreseen, SEEN, None).foreseen
    assert second
    assert second.waits == {}
    assert [one.path for one in second.texts["nvidia_driver"] if one.path == place] == [place]
    assert [one.of for one in second.packages["nvidia_driver"]] == ["535.309.01"]
    asked = request(second)
    assert (asked["sources"], place in asked["texts"]) == ([source], True)
