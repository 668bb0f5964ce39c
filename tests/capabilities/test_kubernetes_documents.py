"""kubernetes: what its files say, in the words of the charts and of mig-parted, and that they are read as they were
meant."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import convert

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.kubernetes import documents, layout
from gpuprov.capabilities.kubernetes.desired import desired
from gpuprov.capabilities.mig.fragment import Mig
from gpuprov.catalog import kubernetes as catalogue
from gpuprov.facts.probes.base import Facts
from gpuprov.fleet.specs import build_spec
from gpuprov.host_code.mig import layout as mig_layout
from gpuprov.resources import File
from gpuprov.spec.model import HostSpec, RawHost
from tests.rows import run_each

EIGHT = {"gpu": {"model": "A100-SXM4-80GB", "count": 8}}
MANAGER = {"gpu_operator": {"enabled": True, "mig_manager": True}, "device_plugin": {"mig_strategy": "mixed"}}
LAYOUT = [{"gpus": "all", "instances": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}}]
FILE = """version: v1
mig-configs:
  small: [{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}]
  none: [{devices: all, mig-enabled: false}]
"""


def host_of(block: dict[str, Any], **others: Any) -> HostSpec:
    spec, problems = build_spec(RawHost(name="gpu1", values={"kubernetes": block, **others}))
    assert spec, problems
    return spec


def texts(spec: HostSpec) -> dict[str, str]:
    """The text of each file, by its name in gpuprov's folder."""
    found = desired(Context(spec, spec.capabilities["kubernetes"], Facts({})))  # type: ignore[arg-type]
    return {one.path.rpartition("/")[2]: one.text for one in found if isinstance(one, File)}


def rendered(block: dict[str, Any], **others: Any) -> dict[str, Any]:
    """Each file as YAML says it."""
    spec = host_of(block, **others)
    made = texts(spec)
    assert all(text.startswith("# Managed by gpuprov") for text in made.values())
    return {name: yaml.safe_load(text) for name, text in made.items()}


def test_the_defaults() -> None:
    made = rendered({})
    assert set(made) == {
        "device-plugin.yaml",
        "device-plugin-values.yaml",
        "allocatable.yaml",
        "runtimeclass.yaml",
        "node-labels.yaml",
    }
    assert made["device-plugin.yaml"]["flags"]["migStrategy"] == "none"
    assert "sharing" not in made["device-plugin.yaml"]
    assert "allocatable" not in made["allocatable.yaml"], "the spec does not say how many GPUs there are"
    assert made["node-labels.yaml"] == {"metadata": {"labels": {"nvidia.com/device-plugin.config": "default"}}}


def test_a_configuration_inside_of_values_is_the_configuration() -> None:
    sharing = {"mps": {"rename_by_default": True, "resources": [{"replicas": 4}]}}
    block = {"device_plugin": {"config": "shared", "sharing": sharing}}
    made = rendered(block, **EIGHT)
    config = made["device-plugin.yaml"]
    shared = {"name": "nvidia.com/gpu", "replicas": 4}
    assert config["sharing"] == {
        "mps": {"renameByDefault": True, "failRequestsGreaterThanOne": True, "resources": [shared]}
    }
    values = made["device-plugin-values.yaml"]["config"]
    assert (values["default"], yaml.safe_load(values["map"]["shared"])) == ("shared", config)
    operator = rendered({**block, "gpu_operator": {"enabled": True}}, **EIGHT)["gpu-operator-values.yaml"]
    assert yaml.safe_load(operator["devicePlugin"]["config"]["data"]["shared"]) == config
    assert made["node-labels.yaml"]["metadata"]["labels"]["nvidia.com/mps.capable"] == "true"
    assert made["allocatable.yaml"]["allocatable"] == {"nvidia.com/gpu.shared": 32}


def test_each_node_has_the_file_of_the_whole_cluster() -> None:
    sliced = {"sharing": {"time_slicing": {"resources": [{"replicas": 4}]}}}
    configs = {"sliced": sliced, "mig": {"mig_strategy": "mixed"}}
    nodes = {name: rendered({"configs": configs, "device_plugin": {"config": name}}, **EIGHT) for name in configs}
    assert nodes["sliced"]["device-plugin-values.yaml"] == nodes["mig"]["device-plugin-values.yaml"]
    values = nodes["mig"]["device-plugin-values.yaml"]["config"]
    assert (list(values["map"]), values["default"]) == (["mig", "sliced"], "")
    assert {name: yaml.safe_load(text) for name, text in values["map"].items()} == {
        name: made["device-plugin.yaml"] for name, made in nodes.items()
    }
    named = rendered({"configs": {**configs, "default": {}}, "device_plugin": {"config": "mig"}})
    assert named["device-plugin-values.yaml"]["config"]["default"] == "default"
    assert nodes["sliced"]["allocatable.yaml"]["allocatable"] == {"nvidia.com/gpu": 32}
    assert nodes["mig"]["node-labels.yaml"]["metadata"]["labels"] == {"nvidia.com/device-plugin.config": "mig"}
    operators = [
        rendered({"configs": configs, "device_plugin": {"config": name}, "gpu_operator": {"enabled": True}})
        for name in configs
    ]
    data = [made["gpu-operator-values.yaml"]["devicePlugin"]["config"] for made in operators]
    assert data[0] == data[1]
    assert data[0]["data"] == values["map"]


def test_the_operator_brings_nothing_that_the_host_brings() -> None:
    others = {"nvidia_driver": {}, "container_toolkit": {}, "dcgm": {}, "mig": {"layout": LAYOUT}, **EIGHT}
    made = rendered({"gpu_operator": {"enabled": True}, "device_plugin": {"mig_strategy": "mixed"}}, **others)
    values = made["gpu-operator-values.yaml"]
    off = ("driver", "toolkit", "migManager", "dcgm", "dcgmExporter", "cdi")
    assert {name: values[name]["enabled"] for name in off} == dict.fromkeys(off, False)
    assert values["mig"] == {"strategy": "mixed"}
    assert "runtimeclass.yaml" not in made, "the operator makes the RuntimeClass itself"
    assert "nvidia.com/mig.config" not in made["node-labels.yaml"]["metadata"]["labels"]


def test_the_mig_manager_knows_the_hosts_layout_and_no_other() -> None:
    made = rendered(MANAGER, mig={"layout": LAYOUT}, **EIGHT)
    entry = {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}}
    assert made["mig-parted.yaml"] == {"version": "v1", "mig-configs": {"gpuprov": [entry]}}
    manager = made["gpu-operator-values.yaml"]["migManager"]
    assert yaml.safe_load(manager["config"]["data"]["config.yaml"]) == made["mig-parted.yaml"]
    assert (manager["enabled"], manager["config"]["default"]) == (True, "gpuprov")
    assert made["node-labels.yaml"]["metadata"]["labels"]["nvidia.com/mig.config"] == "gpuprov"
    counts = {"nvidia.com/mig-1g.10gb": 16, "nvidia.com/mig-2g.20gb": 8, "nvidia.com/mig-3g.40gb": 8}
    assert made["allocatable.yaml"]["allocatable"] == counts


@run_each(
    ("mig", "entries"),
    [
        ({"mode": "disabled"}, [{"devices": "all", "mig-enabled": False}]),
        ({}, [{"devices": "all", "mig-enabled": True, "mig-devices": {}}]),
        ({"layout": [*LAYOUT, {"gpus": [6, 7], "mode": "disabled"}]}, [{"devices": [0, 1, 2, 3, 4, 5],
            "mig-enabled": True, "mig-devices": LAYOUT[0]["instances"]}, {"devices": [6, 7], "mig-enabled": False}]),
        ({"layout": [{"gpus": ["A100-SXM4-80GB"], "instances": [{"profile": "3g.40gb", "count": 2,
            "compute": {"1c": 3}}]}]}, [{"device-filter": ["0x20B210DE"], "devices": "all", "mig-enabled": True,
            "mig-devices": {"1c.3g.40gb": 6}}]),
    ],
)  # fmt: skip
def test_a_layout_in_the_form_of_mig_parted(mig: dict[str, Any], entries: list[dict[str, Any]]) -> None:
    host = host_of({"plugin": "hami", "hami": {"mig_strategy": "mixed"}}, mig=mig, **EIGHT)
    assert layout.parted(host) == entries


ENTRIES: list[dict[str, Any]] = [
    {"gpus": "all", "instances": {"1g.10gb": 7}},
    {"gpus": "all", "mode": "disabled"},
    {"gpus": [0, 7], "mode": "disabled"},
    {"gpus": [6, 7], "instances": {"3g.40gb": 2}},
    {"gpus": ["A100-SXM4-80GB"], "instances": {"7g.80gb": 1}},
    {"gpus": [5, "H100-SXM5-80GB"], "instances": {"2g.20gb": 3}},
]


# mig-parted refuses a GPU with two modes, and one with two sets of devices is what neither entry asks for.
def test_a_gpu_is_in_one_entry_of_mig_parteds_and_it_is_the_last_of_the_spec() -> None:
    block = {"plugin": "hami", "hami": {"mig_strategy": "mixed"}}
    here = [mig_layout.Gpu(i, "", "", "A100-SXM4-80GB", "", "0x20B210DE", "", capable=True) for i in range(8)]
    for first, second, third in itertools.permutations(ENTRIES, 3):
        wanted = [first, second, third]
        host = HostSpec(
            name="gpu1", gpu=host_of(block, **EIGHT).gpu, capabilities={"mig": convert({"layout": wanted}, Mig)}
        )
        entries = mig_layout.normalize_layout("enabled", [], layout.parted(host))
        told = mig_layout.select_targets(entries, here)
        named = [
            {**one, "gpus": "all" if one["gpus"] == "all" else [n for n in one["gpus"] if n != "H100-SXM5-80GB"]}
            for one in wanted
        ]
        assert told == mig_layout.select_targets(mig_layout.normalize_layout("enabled", named, None), here), wanted
        indexes = [index for entry in entries for index in (range(8) if entry.gpus is None else entry.gpus)]
        assert len(indexes) == len(set(indexes)), wanted


def test_a_gpu_named_twice_without_a_count_cannot_be_said_to_mig_parted() -> None:
    twice = {"layout": [*LAYOUT, {"gpus": [7], "mode": "disabled"}]}
    host = HostSpec(name="gpu1", capabilities={"mig": convert(twice, Mig)})
    with pytest.raises(layout.NotExpressible, match=r"names a GPU twice.*gpu\.count"):
        layout.parted(host)


MAP = yaml.safe_dump({"kind": "ConfigMap", "apiVersion": "v1", "data": {"config.yaml": FILE}})


@run_each("text", [FILE, MAP, MAP.replace("config.yaml", "site.yaml")])
def test_a_file_of_mig_parteds_is_taken_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    made = rendered(MANAGER, mig={"config_file": str(path), "selected": "small"}, **EIGHT)
    assert made["mig-parted.yaml"] == yaml.safe_load(FILE), "all layouts: it is the file of the whole cluster"
    assert made["node-labels.yaml"]["metadata"]["labels"]["nvidia.com/mig.config"] == "small"
    assert made["gpu-operator-values.yaml"]["migManager"]["config"]["default"] == "small"
    assert made["allocatable.yaml"]["allocatable"] == {"nvidia.com/mig-1g.10gb": 56}


@run_each(
    ("text", "label", "told"),
    [
        (None, "x", "cannot be read"),
        ("a: [", "x", "cannot be read"),
        ("version: v1", "x", "has no mig-configs"),
        (FILE, "large", 'no layout "large"; it has: small, none'),
        (FILE, "", 'no layout ""'),
        ("kind: ConfigMap\ndata: {a: x, b: y}", "x", "its ConfigMap has no config.yaml"),
        ("kind: ConfigMap\ndata: {config.yaml: 'a: ['}", "x", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_taken(tmp_path: Path, text: str | None, label: str, told: str) -> None:
    path = tmp_path / "config.yaml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(layout.NotExpressible, match=told):
        layout.selected({"config_file": str(path), "selected": label})


def test_strategies_of_others() -> None:
    hami = rendered({"plugin": "hami", "node": "n1", "hami": {"split_count": 4, "mode": "mig"}})
    values = hami["hami-values.yaml"]["devicePlugin"]
    assert (values["deviceSplitCount"], values["runtimeClassName"]) == (4, "nvidia")
    node = yaml.safe_load(values["nodeConfiguration"]["config"])["nodeconfig"]
    assert [(one["name"], one["operatingmode"]) for one in node] == [("n1", "mig")]
    assert hami["node-labels.yaml"]["metadata"]["labels"] == {"gpu": "on"}
    assert "device-plugin.yaml" not in hami
    gpushare = rendered({"plugin": "gpushare", "gpushare": {"master_count": 1}})
    assert gpushare["gpushare-values.yaml"] == {"masterCount": 1}
    assert gpushare["node-labels.yaml"]["metadata"]["labels"] == {"gpushare": "true"}
    both = rendered({"plugin": "hami", "gpu_operator": {"enabled": True}})
    assert both["gpu-operator-values.yaml"]["devicePlugin"] == {"enabled": False}


def test_dra_takes_the_place_of_the_device_plugin() -> None:
    made = rendered({"dra": {"compute_domains": True, "feature_gates": {"TimeSlicingSettings": True}}}, **EIGHT)
    assert set(made) == {"dra-driver-values.yaml", "node-labels.yaml"}
    assert made["dra-driver-values.yaml"] == {
        "nvidiaDriverRoot": "/",
        "gpuResourcesEnabledOverride": True,
        "resources": {"gpus": {"enabled": True}, "computeDomains": {"enabled": True}},
        "featureGates": {"TimeSlicingSettings": True},
    }
    assert made["node-labels.yaml"]["metadata"]["labels"] == {"nvidia.com/gpu.present": "true"}
    operator = rendered({"allocation": "dra", "gpu_operator": {"enabled": True, "driver": True}})
    assert operator["dra-driver-values.yaml"]["nvidiaDriverRoot"] == "/run/nvidia/driver"
    values = operator["gpu-operator-values.yaml"]
    assert (values["devicePlugin"], values["cdi"]) == ({"enabled": False}, {"enabled": True})


def test_every_file_is_known_so_that_it_can_be_removed() -> None:
    blocks: tuple[dict[str, Any], ...] = (
        {},
        {"gpu_operator": {"enabled": True}},
        {"plugin": "hami"},
        {"plugin": "gpushare"},
        {"allocation": "dra"},
    )
    names = {name for block in blocks for name in rendered(block)} | set(
        rendered(MANAGER, mig={"layout": LAYOUT}, **EIGHT)
    )
    assert names == set(catalogue.FILES)


@run_each(
    ("key", "may"),
    [
        ("nvidia.com/device-plugin.config", True),
        ("gpu", True),
        ("topology.kubernetes.io/zone", True),
        ("node.kubernetes.io/gpu", True),
        ("rack.node.kubernetes.io/gpu", True),
        ("node-role.kubernetes.io/gpu", False),
        ("example.k8s.io/gpu", False),
        ("node-restriction.kubernetes.io/gpu", False),
        ("site.node-restriction.kubernetes.io/gpu", False),
    ],
)
def test_labels_that_a_kubelet_may_set(key: str, *, may: bool) -> None:
    assert catalogue.is_settable_by_kubelet(key) == may


def test_text_is_yaml_of_the_same_meaning() -> None:
    document: dict[str, Any] = {"a": "x: 1\ny: [2]\n", "b": ["yes", "1.0", 1.0, "on", ""], "c": {"d": {}}, "e": None}
    assert yaml.safe_load(documents.text(document)) == document
