"""Questions to `kubernetes` about the good host, and the ways in which a host differs from it."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from gpuprov.capabilities.base import Context, Outcome
from gpuprov.facts.probes.base import Output
from gpuprov.fleet.specs import build_spec
from gpuprov.spec.model import RawHost
from tests.capabilities import kubernetes_host
from tests.capabilities.asking import CHECKS, GOOD, expect, facts
from tests.capabilities.kubernetes_host import node

UNASKED, NO_KUBECTL = "", "kubeconfig|/etc/kubernetes/kubelet.conf\nname|gpu1\n"
NOT_FOUND = node().split("@node")[0] + '@node\nError from server (NotFound): nodes "gpu1" not found\n'
ONE = {"gpu": {"model": "H100-SXM5-80GB", "count": 1}}
EIGHT = {"gpu": {"model": "H100-SXM5-80GB", "count": 8}}
MIG = {"mig": {"layout": [{"gpus": "all", "instances": {"1g.10gb": 7}}]}, **ONE}
SLICED = {"device_plugin": {"sharing": {"time_slicing": {"resources": [{"replicas": 4}]}}}}
MPS = {"device_plugin": {"sharing": {"mps": {"resources": [{"replicas": 20}]}}}}
SINGLE, MIXED = {"device_plugin": {"mig_strategy": "single"}}, {"device_plugin": {"mig_strategy": "mixed"}}
OPERATOR = {"gpu_operator": {"enabled": True}}


def gpus(*profiles: tuple[str, ...] | None, compute: int = 0) -> str:
    """What the reader of NVML says: for each GPU its instances, None without MIG mode."""
    made = []
    for index, names in enumerate(profiles):
        one: dict[str, Any] = {"index": index, "number": index, "minor": index, "address": f"0000:{index:02x}:00.0"}
        one |= {
            "uuid": f"GPU-{index}",
            "name": "NVIDIA H100",
            "pci": "0x233010DE",
            "subsystem": "0x16C110DE",
            "capable": True,
        }
        one["current"] = one["pending"] = names is not None
        one["instances"] = [
            {
                "id": n,
                "profile": p,
                "start": n,
                "compute": [{"id": 0, "slices": compute or int(p[0]), "uuid": f"MIG-{index}-{n}"}],
            }
            for n, p in enumerate(names or ())
        ]
        made.append(one)
    return json.dumps({"gpus": made})


SEVEN = ("1g.10gb",) * 7


def host_of(block: dict[str, Any], others: dict[str, Any]) -> Any:
    spec, problems = build_spec(RawHost(name="gpu1", values={"kubernetes": block, **others}))
    assert spec, problems
    return spec


def answer(check: str, block: dict[str, Any], others: dict[str, Any], changed: dict[str, Output | str]) -> Outcome:
    """What the check says of the good host with these probes changed; its files are those of the spec."""
    spec = host_of(block, others)
    mine = spec.capabilities["kubernetes"]
    texts = {**GOOD, "kubernetes_node": node(), "mig": gpus(None)}
    texts["kubernetes_files"] = kubernetes_host.files(mine, spec)
    declared = {probe.name for probe in CHECKS[check].probes}
    assert set(changed) <= declared
    given = {name: text for name, text in {**texts, **changed}.items() if name in declared}
    return CHECKS[check].run(Context(spec, mine, facts(**given)))


class Row(NamedTuple):
    """A question: the check, kubernetes and the other blocks of the spec, what is changed on the host, and the
    answer."""

    name: str
    check: str
    block: dict[str, Any]
    others: dict[str, Any]
    changed: dict[str, Output | str]
    status: str
    found: str = ""
    fix: str = ""
    change: str = ""


def judge(row: Row) -> None:
    """The answer is the row's, and a failure says what was wanted and what to do."""
    expect(answer(row.check, row.block, row.others, row.changed), row.status, row.found, row.fix, row.change)


def told(**node_of: Any) -> dict[str, Output | str]:
    """Another answer of the cluster, or another kubelet."""
    return {"kubernetes_node": node(**node_of)}


def managed(*managers: str) -> dict[str, Output | str]:
    """Others who manage GPUs."""
    return {"kubernetes_node": node(None, *managers)}
