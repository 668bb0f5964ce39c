"""A block inside a block that is there was asked for, be it empty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gpuprov.capabilities import BY_NAME
from gpuprov.fleet.specs import load_fleet
from gpuprov.spec.declared import list_inner_blocks
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.spec.problem import SpecError
from tests.rows import run_each

BY_ITSELF = {
    "acceptance.dcgm": "its diagnostics run with the defaults",
    "acceptance.nccl": "its test runs with the defaults",
    "acceptance.nccl.source": "the tool is used where it is",
    "acceptance.nvbandwidth": "its tests run with the defaults",
    "acceptance.nvbandwidth.source": "the tool is used where it is",
    "acceptance.rdma": "its tests run with the defaults",
    "health.firmware_versions": "no board is judged",
    "host.gpu": "its model is required",
    "gpu_settings.application_clocks": "both clocks are required",
    "kubernetes.device_plugin": "its configuration is written with the defaults",
    "kubernetes.device_plugin.sharing": "it holds the two ways, each of which is a block",
    "nvidia_driver.signing": "DKMS's own key",
    "rdma.nccl": "its file is written with the defaults",
}
"""Blocks that mean something without a word in them, and what."""


def spec(folder: Path, outer: dict[str, Any], inner: dict[str, Any] | None = None) -> HostSpec:
    group = {"vars": {"gpuprov": outer}, "children": {"low": {"vars": {"gpuprov": inner or {}}, "hosts": {"gpu1": {}}}}}
    (folder / "inventory.yaml").write_text(yaml.safe_dump({"all": {"children": {"top": group}}}))
    return load_fleet([str(folder / "inventory.yaml")], cache=False).pairs[0][1]


def field(of: HostSpec, path: str) -> Any:
    found: Any = of.capabilities
    for part in path.split("."):
        found = found[part] if isinstance(found, dict) else getattr(found, part)
    return found


ERDMA = {"compat_mode": True, "mtu": "jumbo"}
SHARED = {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}


@run_each(
    ("block", "path", "value"),
    [
        ({"rdma": {"efa": {}}}, "rdma.fabric", "efa"),
        ({"rdma": {"roce": {}}}, "rdma.fabric", "roce"),
        ({"rdma": {"erdma": ERDMA}}, "rdma.fabric", "erdma"),
        ({"rdma": {"soft": {}}}, "rdma.fabric", "soft"),
        ({"rdma": {"opensm": {}}}, "rdma.fabric", "infiniband"),
        ({"rdma": {}}, "rdma.fabric", "infiniband"),
        ({"rdma": {"ofed": {}}}, "rdma.stack", "doca-ofed"),
        ({"rdma": {"stack": "auto", "ofed": {}}}, "rdma.stack", "doca-ofed"),
        ({"kubernetes": {"hami": {}}}, "kubernetes.plugin", "hami"),
        ({"kubernetes": {"gpushare": {}}}, "kubernetes.plugin", "gpushare"),
        ({"kubernetes": {"gpu_operator": {}}}, "kubernetes.gpu_operator.enabled", True),
        ({"kubernetes": {"gpu_operator": {"enabled": False}}}, "kubernetes.gpu_operator.enabled", False),
        ({"kubernetes": {}}, "kubernetes.gpu_operator.enabled", False),
        ({"gpudirect_rdma": {"gdrcopy": {"tests": True}}, "rdma": {}}, "gpudirect_rdma.gdrcopy.install", True),
        ({"gpudirect_rdma": {"gdrcopy": {"install": False}}, "rdma": {}}, "gpudirect_rdma.gdrcopy.install", False),
        ({"acceptance": {"stream": {}}}, "acceptance.stream.seconds", 30),
        ({"acceptance": {}}, "acceptance.stream.seconds", 0),
    ],
)
def test_a_block_that_is_there_is_meant(tmp_path: Path, block: dict[str, Any], path: str, value: object) -> None:
    more: dict[str, Any] = {"container_toolkit": {"default_runtime": True}} if path.startswith("kubernetes") else {}
    more |= {"nvidia_driver": {"version": "580"}} if "gpudirect_rdma" in block else {}
    assert field(spec(tmp_path, {**more, **block}), path) == value


@run_each(
    ("outer", "inner", "path", "value"),
    [
        ({"fabric": "roce"}, {"roce": {}}, "rdma.fabric", "roce"),
        ({"efa": {}}, {"efa": False, "fabric": "infiniband"}, "rdma.fabric", "infiniband"),
        ({"opensm": {}}, {"opensm": False}, "rdma.fabric", "infiniband"),
        ({"fabric": "roce"}, {"efa": False}, "rdma.fabric", "roce"),
        ({"ofed": {}}, {"ofed": False}, "rdma.stack", "auto"),
        ({"efa": {}}, {"efa": False, "roce": {}}, "rdma.fabric", "roce"),
        ({"efa": False}, {"efa": {}}, "rdma.fabric", "efa"),
    ],
)
def test_groups_are_merged_before(
    tmp_path: Path, outer: dict[str, Any], inner: dict[str, Any], path: str, value: object
) -> None:
    assert field(spec(tmp_path, {"rdma": outer}, {"rdma": inner}), path) == value


@run_each(
    ("block", "told"),
    [
        (
            {"rdma": {"fabric": "infiniband", "efa": {}}},
            "rdma.efa has no effect: rdma.fabric is infiniband; fabric: efa, or",
        ),
        ({"rdma": {"fabric": "roce", "efa": {"installer": "1.47.0"}}}, "rdma.efa has no effect: rdma.fabric is roce"),
        ({"rdma": {"efa": {}, "roce": {}}}, "has no effect: rdma.fabric is"),
        (
            {"rdma": {"fabric": "infiniband", "soft": {"netdevs": ["ens3"]}}},
            "rdma.soft has no effect: rdma.fabric is infiniband",
        ),
        (
            {"rdma": {"stack": "inbox", "ofed": {}}},
            "rdma.ofed has no effect: rdma.stack is inbox; stack: doca-ofed, or",
        ),
        (
            {"kubernetes": {"plugin": "nvidia", "hami": {}}},
            "kubernetes.hami has no effect: kubernetes.plugin is nvidia",
        ),
        (
            {"nvidia_driver": {"source": "nvidia", "runfile": {}}},
            "nvidia_driver.runfile has no effect: nvidia_driver.source is",
        ),
        ({"nvidia_driver": {"runfile": {}}}, "nvidia_driver.runfile has neither a url nor a file"),
        ({"nvidia_driver": {"repository": {}}}, "nvidia_driver.repository asks for nothing: it has no url"),
        (
            {"kubernetes": {"device_plugin": {"sharing": {"time_slicing": {}}}}},
            "time_slicing asks for nothing: it has no resources",
        ),
        (
            {"kubernetes": {"device_plugin": {"sharing": {"mps": {}}}}},
            "sharing.mps asks for nothing: it has no resources",
        ),
        ({"fabric_manager": {"imex": {}}}, "fabric_manager.imex asks for nothing: it has no nodes or service"),
        (
            {"gpu_settings": {"locked_clocks": {}}},
            "gpu_settings.locked_clocks asks for nothing: it has no graphics or memory",
        ),
        ({"rdma": {"erdma": {}}}, "rdma.erdma.compat_mode is missing"),
    ],
)
def test_a_block_that_would_do_nothing_is_refused(tmp_path: Path, block: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec(tmp_path, block)
    found = [one for one in caught.value.problems if told in str(one)]
    assert found, [str(one) for one in caught.value.problems]
    assert found[0].origin, "a problem without a place"
    assert found[0].fix


DECIDING = [
    (capability.name, name, *decided)
    for capability in BY_NAME.values()
    for name, decided in capability.fragment.IMPLIES.items()
]


@pytest.mark.parametrize("outer", [True, False], ids=["outer", "alone"])
@pytest.mark.parametrize(("owner", "name", "decided", "meaning"), DECIDING)
def test_a_block_switched_off_is_no_choice_of_another(
    tmp_path: Path, owner: str, name: str, decided: str, meaning: str, outer: bool
) -> None:
    """Where it decided a field, another choice is not made in its place; a field that may be left open, or says the
    same, may be."""
    more: dict[str, Any] = {"container_toolkit": {"default_runtime": True}} if owner == "kubernetes" else {}
    block = {name: ERDMA if name == "erdma" else {"file": "a.run"} if name == "runfile" else {}}
    default = {one.encode_name: one.default for one in msgspec.structs.fields(BY_NAME[owner].fragment)}[decided]
    above = {**more, owner: block if outer else {}}
    if default in ("auto", meaning):
        assert field(spec(tmp_path, above, {owner: {name: False}}), f"{owner}.{decided}") == default
        return
    with pytest.raises(SpecError) as caught:
        spec(tmp_path, above, {owner: {name: False}})
    (found,) = caught.value.problems
    assert found.message == (
        f"{owner}.{name} is false, and nothing else says which {decided}: what is left would be {default}"
    )
    assert found.fix == f"{owner}: false for none of it, or {decided}: {default} if that is meant"
    assert found.origin
    assert found.origin.line
    assert field(spec(tmp_path, above, {owner: {name: False, decided: default}}), f"{owner}.{decided}") == default


def test_what_a_block_says_when_it_is_there_is_off_where_it_is_not() -> None:
    """So `false` in its place means off, and nothing else."""
    for capability in BY_NAME.values():
        for _, _, kind in blocks(capability.name, capability.fragment):
            defaults = {one.encode_name: one.default for one in msgspec.structs.fields(kind)}
            assert not any(defaults[name] for name in kind.WHEN_PRESENT)


def blocks(name: str, kind: type[Fragment]) -> list[tuple[str, type[Fragment], type[Fragment]]]:
    found = []
    for inner, of in list_inner_blocks(kind).items():
        found += [(f"{name}.{inner}", kind, of), *blocks(f"{name}.{inner}", of)]
    return found


def test_what_an_empty_block_means_is_known_of_each() -> None:
    """A new block inside a block says it in its type, or here."""
    unknown = set()
    for capability in BY_NAME.values():
        for path, above, kind in blocks(capability.name, capability.fragment):
            if not (path.rpartition(".")[2] in above.IMPLIES or kind.WHEN_PRESENT or kind.ONE_OF):
                unknown.add(path)
    assert unknown == set(BY_ITSELF)


def test_what_a_type_says_of_its_blocks_is_true_of_its_fields() -> None:
    for capability in BY_NAME.values():
        kinds = [capability.fragment, *(kind for _, _, kind in blocks(capability.name, capability.fragment))]
        for kind in kinds:
            names = {one.encode_name for one in msgspec.structs.fields(kind)}
            assert {*kind.ONE_OF, *kind.WHEN_PRESENT, *kind.IMPLIES} <= names
            for field_, value in kind.IMPLIES.values():
                msgspec.convert({field_: value}, kind)
