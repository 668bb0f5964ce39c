"""kubernetes: what it refuses offline: two strategies on one node, and settings that the plugins ignore."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuprov.capabilities.kubernetes.rules import fleet_rules
from gpuprov.fleet.specs import build_spec
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.spec.problem import Problem
from tests.rows import run_each

H100 = {"model": "H100-SXM5-80GB", "count": 2}
MIG = {"layout": [{"gpus": "all", "instances": {"1g.10gb": 7}}]}
MIXED = {"layout": [{"gpus": [0], "instances": {"1g.10gb": 7}}, {"gpus": [1], "mode": "disabled"}]}
TWO = {"layout": [{"gpus": "all", "instances": {"1g.10gb": 2, "2g.20gb": 1}}]}


def share(way: str, replicas: int = 4, **more: Any) -> dict[str, Any]:
    """A device plugin with one shared resource."""
    fields = {key: more.pop(key) for key in ("rename_by_default", "mig_strategy") if key in more}
    strategy = {"mig_strategy": fields.pop("mig_strategy")} if "mig_strategy" in fields else {}
    return {"device_plugin": {**strategy, "sharing": {way: {**fields, "resources": [{"replicas": replicas, **more}]}}}}


def problems(block: dict[str, Any], **others: Any) -> list[Problem]:
    """What is wrong with kubernetes in a spec of these blocks."""
    raw = RawHost(name="gpu1", values={"gpu": H100, "kubernetes": block, **others})
    return build_spec(raw)[1]


OPERATOR = {"enabled": True}
SINGLE, ANY = {"mig_strategy": "single"}, {"mig_strategy": "mixed"}
MANAGER = {"gpu_operator": {**OPERATOR, "mig_manager": True}, "device_plugin": ANY}
DRIVER = {"gpu_operator": {**OPERATOR, "driver": True}}
TOOLKIT = {"gpu_operator": {**OPERATOR, "toolkit": True}}
MIG_MODE = {"plugin": "hami", "node": "n", "hami": {"mode": "mig"}}
FOREIGN = {"labels": {"nvidia.com/mig.config": "all-1g.10gb"}, "device_plugin": SINGLE}
ROLE = {"label_node": True, "labels": {"node-role.kubernetes.io/gpu": ""}}
TWICE = {"device_plugin": {"sharing": {"mps": {"resources": [{"replicas": 2}, {"replicas": 3}]}}}}
CDI_BOTH = {"device_list_strategy": ["cdi-annotations", "cdi-cri"]}
CDI = {"device_list_strategy": ["cdi-cri"]}
BOTH = {
    "device_plugin": {
        "sharing": {"mps": {"resources": [{"replicas": 2}]}, "time_slicing": {"resources": [{"replicas": 2}]}}
    }
}
PLACED = {"layout": [{"gpus": "all", "instances": [{"profile": "1g.10gb", "placement": 0}]}]}
BY_ADDRESS = {"layout": [{"gpus": ["0000:19:00.0"], "instances": {"1g.10gb": 7}}]}
NO_RESOURCES = {"device_plugin": {"sharing": {"mps": {"rename_by_default": True}}}}
NO_OPERATOR = {"gpu_operator": {"enabled": False, "driver": True}}
V100 = {"gpu": {"model": "V100-SXM2", "count": 8}}
DRA, DOMAINS = {"allocation": "dra"}, {"dra": {"compute_domains": True}}
GB200 = {"model": "GB200", "count": 4}
CONFIGS: dict[str, Any] = {"plain": {}, "sliced": share("time_slicing")["device_plugin"]}
REFUSED: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    ("DRA with another plugin", {"allocation": "dra", "plugin": "hami"}, {},
     "is dra, and plugin hami would give out the same GPUs", "one"),
    ("DRA with sharing", {**share("time_slicing"), "allocation": "dra"}, {},
        "has no effect: kubernetes.allocation is dra, and one node",
     "allocation: device-plugin"),
    ("DRA with the host's MPS", DRA, {"mps": {}}, "host's MPS (mps) has in EXCLUSIVE_PROCESS", "take mps out"),
    ("DRA with an old driver", DRA, {"nvidia_driver": {"version": "550"}},
        "whose driver for GPUs needs 565 or newer", "565 or newer"),
    ("domains with an old driver", DOMAINS, {"nvidia_driver": {"version": "565"}},
        "for ComputeDomains needs 570.158.01", "570 or newer"),
    ("domains beside an IMEX daemon", DOMAINS,
     {"gpu": GB200, "fabric_manager": {"imex": {"nodes": ["192.0.2.1"]}}}, "the host runs an IMEX daemon of its own",
        "service: disabled"),
    ("gates that exclude each other", {"dra": {"feature_gates": {"DynamicMIG": True, "MPSSupport": True}}}, {},
     "DynamicMIG is on, and so is MPSSupport", "one of the two"),
    ("a gate that needs another", {"dra": {"feature_gates": {"ComputeDomainCliques": True,
        "IMEXDaemonsWithDNSNames": False}}}, {},
     "ComputeDomainCliques is on, and needs IMEXDaemonsWithDNSNames", "true"),
    ("a gate that is not known", {"dra": {"feature_gates": {"DynamicMig": True}}}, {},
        "is not a feature gate that is known", "DynamicMIG"),
    ("MIG made twice", {"dra": {"feature_gates": {"DynamicMIG": True}}}, {"mig": MIG}, "so does the host (mig)",
        "take mig out"),
    ("a GPU without MIG devices under DRA", DRA, {"mig": {"layout": [{"gpus": "all", "instances": {}}]}},
     "and DRA offers neither it nor parts of it", "instances"),
    ("a configuration that there is not", {"configs": CONFIGS}, {},
     'config is "default", which kubernetes.configs does not have',
     "one of plain, sliced"),
    ("settings beside the cluster's", {"configs": CONFIGS, "device_plugin": {"config": "plain",
        "mig_strategy": "mixed"}}, {},
     "beside the configuration plain of kubernetes.configs, which would win", "move them to kubernetes.configs.plain"),
    ("a problem at its own place", {"configs": {"x": BOTH["device_plugin"]}, "device_plugin": {"config": "x"}}, {},
     "kubernetes.configs.x.sharing has mps and time_slicing", "leave one out"),
    ("MPS with time slicing", BOTH, {}, "sharing has mps and time_slicing", "leave one out"),
    ("MPS on MIG", share("mps"), {"mig": MIG}, "GPU 0 is in MIG mode, where the device plugin's MPS does not work",
     "time_slicing"),
    ("MPS with a MIG strategy", share("mps", mig_strategy="mixed"), {}, "does not work with mig_strategy mixed",
     "none"),
    ("MPS limits by GPU", share("mps", devices=[0, 1]), {}, "names devices, which the plugin ignores",
     "leave devices out"),
    ("MPS of MIG devices", share("mps", name="nvidia.com/mig-1g.10gb", mig_strategy="mixed"), {},
     "MPS shares nvidia.com/gpu", "gpu"),
    ("sharing by GPU", share("time_slicing", devices=2), {}, "names devices, which the plugin ignores",
     "leave devices out"),
    ("another name", share("time_slicing", rename="nvidia.com/slow"), {},
     'is "nvidia.com/slow", which the plugin ignores', ".shared"),
    ("one replica", share("time_slicing", 1), {}, "replicas is 1", "2 or more"),
    ("more clients than MPS has", share("mps", 49), {}, "replicas is 49, over 48: the device plugin's own limit",
     "2 to 48"),
    ("MPS on a V100", share("mps", 17), V100, "replicas is 17, over 16: the device plugin's limit for V100-SXM2",
     "2 to 16"),
    ("a driver with more clients than the plugin", share("mps", 60), {"nvidia_driver": {"version": "595"}}, "over 48",
     "48"),
    ("MIG resources without mixed", share("time_slicing", name="nvidia.com/mig-1g.10gb"), {}, "mig_strategy mixed only",
     "mixed"),
    ("sharing nothing", NO_RESOURCES, {}, "asks for nothing: it has no resources", "resources"),
    ("the host's MPS beside the plugin's", share("mps"), {"mps": {}}, "beside the host's (mps)", "take mps out"),
    ("time slicing beside the host's MPS", share("time_slicing"), {"mps": {}}, "EXCLUSIVE_PROCESS", "take mps out"),
    ("HAMi beside the host's MPS", {"plugin": "hami"}, {"mps": {}}, "plugin is hami, which shares GPUs by itself",
     "take mps"),
    ("sharing beside cGPU", share("time_slicing"), {"cgpu": {}}, "sharing shares GPUs that cgpu shares already",
     "cgpu: false"),
    ("HAMi beside cGPU", {"plugin": "hami"}, {"cgpu": {}}, "plugin shares GPUs that cgpu shares already",
     "cgpu: false"),
    ("strategy none on MIG", {}, {"mig": MIG}, "which strategy none offers as a whole GPU", "single or mixed"),
    ("strategy none on MIG of whatever GPUs", {}, {"mig": MIG, "gpu": False},
     "which strategy none offers as a whole GPU", "single"),
    ("MPS on MIG by address", share("mps"), {"mig": BY_ADDRESS, "gpu": False}, "MPS does not work", "time_slicing"),
    ("single with two profiles", {"device_plugin": {"mig_strategy": "single"}}, {"mig": TWO},
     "MIG devices of 2 profiles", "mixed"),
    ("single with one GPU of two", {"device_plugin": {"mig_strategy": "single"}}, {"mig": MIXED}, "GPU 1 is not",
     "mixed"),
    ("single without devices", {"device_plugin": {"mig_strategy": "single"}}, {"mig": {}}, "without MIG devices",
     "instances"),
    ("gpushare on MIG", {"plugin": "gpushare"}, {"mig": MIG}, "which gpushare does not know", "plugin: nvidia"),
    ("HAMi without MIG on MIG", {"plugin": "hami"}, {"mig": MIG}, "gives no MIG devices out", "mixed"),
    ("HAMi's MIG beside the host's", MIG_MODE, {"mig": MIG}, "and so does the host", "hami-core"),
    ("HAMi's MIG without a node", {"plugin": "hami", "hami": {"mode": "mig"}}, {}, "a table of nodes by name",
     "kubernetes.node"),
    ("a block of another plugin", {"plugin": "nvidia", "hami": {"split_count": 4}}, {}, "hami has no effect",
     "plugin: hami"),
    ("gpushare's block", {"plugin": "hami", "gpushare": {"master_count": 1}}, {}, "gpushare has no effect",
     "plugin: gpushare"),
    ("sharing beside HAMi", {"plugin": "hami", **share("time_slicing")}, {}, "one node has one strategy",
     "plugin: nvidia"),
    ("the operator's driver", DRIVER, {"nvidia_driver": {}}, "the host installs the driver", "leave it"),
    ("the operator's toolkit", TOOLKIT, {"container_toolkit": {}}, "installs the toolkit", "leave"),
    ("two fabric managers", DRIVER, {"fabric_manager": {}}, "a daemon of its own beside the host's (fabric_manager)",
     "leave"),
    ("a strategy of another plugin", {"plugin": "hami", "device_plugin": SINGLE}, {}, "device_plugin has no effect",
     "plugin: nvidia"),
    ("two DCGM", {"gpu_operator": {**OPERATOR, "dcgm_exporter": True}}, {"dcgm": {}}, "two engines", "dcgm.exporter"),
    ("values without the operator", NO_OPERATOR, {}, "no effect without the operator", "enabled: true"),
    ("half of CDI", {"gpu_operator": OPERATOR, "device_plugin": CDI}, {},
     "the operator sets cdi-annotations and cdi-cri", "[envvar]"),
    ("a placement for mig-parted", MANAGER, {"mig": PLACED}, "mig.layout[0].instances has a placement",
     "mig_manager: false"),
    ("an address for mig-parted", MANAGER, {"mig": BY_ADDRESS}, "mig.layout[0].gpus has 0000:19:00.0",
     "mig_manager: false"),
    ("gpushare", {"plugin": "gpushare"}, {"container_toolkit": {}}, "runtime as the default", "default_runtime: true"),
    ("a kubelet's engine", {}, {"container_toolkit": {"runtimes": ["docker"]}}, "a kubelet takes containerd or cri-o",
     "containerd"),
    ("a label that follows", {"labels": {"nvidia.com/device-plugin.config": "other"}}, {}, 'needs "default" there',
     "leave it out"),
    ("another's MIG layout", FOREIGN, {"mig": MIG}, "MIG manager change a layout", "mig_manager: true"),
    ("a label that starts another plugin", {"labels": {"gpushare": "true"}}, {}, "not of its strategy", "leave it out"),
    ("a label that starts the plugin's MPS", {"labels": {"nvidia.com/mps.capable": "true"}}, {}, "not of its strategy",
     "leave"),
    ("a label that HAMi goes by", {"labels": {"gpu": "on"}}, {}, "not of its strategy", "leave it out"),
    ("the operator's driver under the host's MIG", DRIVER, {"mig": MIG}, "mig needs one on the host", "mig: false"),
    ("the operator's driver under the host's DCGM", DRIVER, {"dcgm": {}}, "dcgm needs one on the host",
     "nvidia_driver in the spec"),
    ("a label for administrators", ROLE, {}, "NodeRestriction", "label_node: false"),
    ("no label's value", {"labels": {"team": "a b"}}, {}, 'kubernetes.labels.team is "a b"', "a label's value"),
    ("a resource twice", TWICE, {}, "again", "once"),
    ("a strategy twice", {"device_plugin": {"device_list_strategy": ["envvar", "envvar"]}}, {}, 'is "envvar" again',
     "take one out"),
    ("no strategy", {"device_plugin": {"device_list_strategy": []}}, {}, "is an empty list", "at least one"),
    ("no resource of NVIDIA's", share("time_slicing", name="amd.com/gpu"), {}, 'name is "amd.com/gpu"',
     "nvidia.com/gpu"),
]  # fmt: skip


@run_each(("block", "others", "told", "way"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED])
def test_refused(block: dict[str, Any], others: dict[str, Any], told: str, way: str) -> None:
    found = [one for one in problems(block, **others) if told in one.message]
    assert found, [str(one) for one in problems(block, **others)]
    assert way in found[0].fix, found[0]
    assert found[0].path, "a problem without a place"


TAKEN: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("the defaults", {}, {}),
    ("time slicing", share("time_slicing", 10), {}),
    ("the name that the plugin gives", share("time_slicing", rename="nvidia.com/gpu.shared", rename_by_default=True),
     {}),
    ("MPS up to the limit", share("mps", 48), {}),
    ("MPS on a V100", share("mps", 16), V100),
    ("MIG, single", {"device_plugin": {"mig_strategy": "single"}}, {"mig": MIG}),
    ("MIG of whatever GPUs, single", {"device_plugin": SINGLE}, {"mig": TWO, "gpu": False}),
    ("no MIG of whatever GPUs", {}, {"mig": {"mode": "disabled"}, "gpu": False}),
    ("MIG, mixed and shared", share("time_slicing", name="nvidia.com/mig-1g.10gb", mig_strategy="mixed"),
     {"mig": MIXED}),
    ("no MIG, single", {"device_plugin": {"mig_strategy": "single"}}, {"mig": {"mode": "disabled"}}),
    ("gpushare, for which cGPU is", {"plugin": "gpushare"}, {"cgpu": {}}),
    ("the host's MPS without sharing", {}, {"mps": {}}),
    ("the operator beside the host", {"gpu_operator": OPERATOR},
     {"nvidia_driver": {}, "container_toolkit": {}, "dcgm": {}}),
    ("the operator's own driver", {"gpu_operator": {**OPERATOR, "driver": True, "toolkit": True}}, {}),
    ("CDI with the operator", {"gpu_operator": OPERATOR, "device_plugin": CDI_BOTH}, {}),
    ("the MIG manager with the host's layout", {**MANAGER, "device_plugin": SINGLE}, {"mig": MIG}),
    ("HAMi with the host's MIG devices", {"plugin": "hami", "hami": {"mig_strategy": "mixed"}}, {"mig": MIG}),
    ("HAMi's own MIG", {"plugin": "hami", "node": "n1", "hami": {"mode": "mig"}}, {}),
    ("feature discovery's strategy", {"plugin": "hami", "device_plugin": SINGLE, "gpu_operator": OPERATOR}, {}),
    ("gpushare", {"plugin": "gpushare"}, {"container_toolkit": {"default_runtime": True}}),
    ("another label gpu", {"labels": {"gpu": "a100", "gpushare": "false"}}, {}),
    ("labels", {"label_node": True, "labels": {"team": "vision", "example.com/rack": "r1",
                                               "node.kubernetes.io/gpu": "h100"}}, {}),
]  # fmt: skip


@run_each(("block", "others"), [pytest.param(*row[1:], id=row[0]) for row in TAKEN])
def test_taken(block: dict[str, Any], others: dict[str, Any]) -> None:
    mine = [str(one) for one in problems(block, **others) if one.path[:1] == ("kubernetes",)]
    assert not mine


def test_one_name_is_one_configuration() -> None:
    def spec(name: str, block: dict[str, Any]) -> HostSpec:
        found, _ = build_spec(RawHost(name=name, values={"kubernetes": block}))
        assert found
        return msgspec.structs.replace(found, name=name)

    named = {"device_plugin": {**share("time_slicing")["device_plugin"], "config": "sliced"}}
    hosts = [
        spec("a", {}),
        spec("b", share("time_slicing")),
        spec("c", named),
        spec("d", {"plugin": "hami"}),
        spec("e", {}),
    ]
    found = list(fleet_rules(hosts, (), whole=True))
    assert [(name, problem.severity) for name, problem in found] == [("b", "warning")]
    assert 'config has "default", and a has another configuration of that name' in found[0][1].message


def test_one_cluster_has_one_map() -> None:
    def spec(name: str, configs: dict[str, Any], own: str) -> HostSpec:
        block = {"configs": configs, "device_plugin": {"config": own}}
        found, wrong = build_spec(RawHost(name=name, values={"kubernetes": block}))
        assert found, wrong
        return found

    hosts = [spec("a", CONFIGS, "plain"), spec("b", CONFIGS, "sliced"), spec("c", {"plain": {}}, "plain")]
    found = [(name, problem.message) for name, problem in fleet_rules(hosts, (), whole=True)]
    assert found == [("c", "kubernetes.configs differs from that of a in sliced")]
    other = spec("d", {**CONFIGS, "plain": {"mig_strategy": "mixed"}}, "plain")
    assert [problem.message for _, problem in fleet_rules([hosts[0], other], (), whole=True)] == [
        'kubernetes.configs has "plain", and a has another configuration of that name'
    ]
