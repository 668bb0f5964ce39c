"""From what a host prints to what a person reads: the checks, the decision, the plan and the report together."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gpuprov import plan as planning
from gpuprov.capabilities import BY_NAME
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.plan.collect import host_plan
from gpuprov.plan.decide import decide
from gpuprov.report import text
from gpuprov.spec.build import convert
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import MOMENTS, evaluate
from tests.capabilities import contents_host, rdma_host
from tests.capabilities import mig_host as mh
from tests.capabilities.asking import facts, good
from tests.capabilities.test_fabric_manager_desired import MISSING
from tests.capabilities.test_host import CENTOS, FOCAL
from tests.rows import run_each

NOW = datetime(2026, 1, 3, 1, 0, tzinfo=UTC)
SEVEN = {"layout": [{"gpus": "all", "instances": {"1g.10gb": 7}}]}
EIGHT = tuple(mh.gpu(index=number) for number in range(8))


def read(blocks: Mapping[str, Any], **changed: Output | str) -> tuple[HostSpec, Facts]:
    """A host that is right in everything but `changed`, and a spec of these blocks."""
    fragments = {}
    for name, block in blocks.items():
        fragment, findings = convert(block, BY_NAME[name].fragment)
        assert fragment is not None, findings
        fragments[name] = fragment
    spec, texts = HostSpec(name="gpu1", capabilities=fragments), {**good(), **changed}
    own = contents_host.whole(spec, facts(**texts)) + str(changed.get("contents", ""))
    return spec, facts(**{**texts, "contents": own})


def planned(blocks: Mapping[str, Any], **changed: Output | str) -> str:
    spec, told = read(blocks, receipt="", **changed)
    results = evaluate(spec, told, MOMENTS, stops=True)
    decision = decide((RawHost(name="gpu1"), spec), results, told)
    return planning.as_text([host_plan(spec, results, told, decision, NOW)], width=0)


def verified(blocks: Mapping[str, Any], **changed: Output | str) -> str:
    spec, told = read(blocks, **changed)
    return text.render(evaluate(spec, told, ("now", "next-boot"), only=set(blocks)), width=120)


def test_a_plan_beside_a_driver_that_stays_names_the_fabric_managers_package() -> None:
    told = planned({"nvidia_driver": {"version": "535"}, "fabric_manager": {}}, **MISSING)
    assert "    + 2 packages: nvidia-fabricmanager-535 535.261.03-1, nvidia-modprobe newest\n" in told


@run_each(("release", "name"), [(FOCAL, "Ubuntu 20.04.6 LTS, which gpuprov reads"), (CENTOS, "CentOS Linux 7 (Core)")])
def test_a_host_that_is_only_read_is_refused_by_one_message(release: str, name: str) -> None:
    """Whatever else its old Python and its packages would be refused for."""
    told = planned({"nvidia_driver": {}, "kernel": {}}, os_release=release, python="")
    assert told.count(": blocked by") == told.count("fix:") == 1, told
    assert "not predicted" not in told
    assert f"blocked by host.supported: {name}" in told
    assert "health, topology, export, show and explain read it" in told


def test_a_plan_shows_fifty_six_instances_as_one_layout() -> None:
    told = planned({"mig": SEVEN}, mig=mh.state(*EIGHT))
    assert "    ~ GPUs 0, 1, 2, 3, 4, 5, 6, 7: no instance -> 7 x 1g.10gb\n" in told
    assert "created" not in told


def test_instances_that_are_gone_come_back_at_boot_and_verify_says_so() -> None:
    told = verified({"mig": SEVEN}, mig=mh.state(mh.gpu()))
    assert "FAIL  mig.instances  gpu1" in told
    assert "next boot right: a reboot leaves it as it is" in told
    assert "does not fix" not in told
    gone = contents_host.unit("gpuprov-mig.service", "inactive", "")
    lost = verified({"mig": SEVEN}, mig=mh.state(mh.gpu()), contents=gone)
    assert "next boot NOT right: mig.files" in lost
    assert "mig.enabled: gpuprov-mig.service is not-found" in lost


def test_docker_beside_rdma_where_no_limit_may_be_lifted_is_said_and_not_tried() -> None:
    bound = rdma_host.host(daemons=("docker.service|8192|infinity",), bound=True)
    told = verified({"rdma": {"fabric": "infiniband"}}, rdma_host=bound)
    assert "skip  rdma.memlock  root may lift no limit here" in told
    assert "--ulimit memlock=-1" in told, "where it is set instead"
