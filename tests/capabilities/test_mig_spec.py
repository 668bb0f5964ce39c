"""mig in a spec: what does not go with the catalogue, the driver, the other blocks, or the mig-parted file that it
names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from gpuprov.capabilities.mig import config_file, host
from gpuprov.capabilities.mig.fragment import Mig
from gpuprov.fleet.specs import judge
from gpuprov.spec.model import RawHost
from gpuprov.spec.problem import Problem, SpecError, format_path
from tests.rows import run_each

H100: dict[str, Any] = {"gpu": {"model": "H100-SXM5-80GB", "count": 2}}
A100: dict[str, Any] = {"gpu": {"model": "A100-SXM4-40GB", "count": 2}}


def told(values: dict[str, Any]) -> list[Problem]:
    """Every problem and warning of a host with this spec."""
    try:
        return list(judge([RawHost(name="gpu1", values=values)]).warnings)
    except SpecError as error:
        return error.problems


def cut(instances: Any, gpus: Any = "all", **more: Any) -> dict[str, Any]:
    return {"mig": {"layout": [{"gpus": gpus, "instances": instances}], **more}}


GOOD = [
    H100 | cut({"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}),
    H100 | cut({"7g.80gb": 1}, [0, 1]),
    H100 | cut({"1c.3g.40gb": 3, "2c.3g.40gb": 1}),
    H100 | cut([{"profile": "3g.40gb", "placement": 4, "compute": {"1c": 1, "2c": 1}},
                {"profile": "1g.10gb", "count": 4}]),
    H100 | {"mig": {"mode": "disabled"}},
    cut({"3g.20gb": 1}, ["0000:3b:00.0", "00000000:5E:00.0", "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77"]),
    cut({"4g.24gb": 1}, ["A30"]),
    A100 | cut({"3g.20gb": 1, "4g.20gb": 1}) | {"nvidia_driver": {"version": "535"}},
    A100 | cut({"1g.10gb": 1}) | {"nvidia_driver": {}},
    {"gpu": {"model": "RTX-PRO-6000-SE"}} | cut({"1g.24gb+me": 1, "1g.24gb-me": 3}),
]  # fmt: skip

BAD = [
    (H100 | cut({"3g.40gb": 2, "1g.10gb": 1}), "mig.layout[0].instances", "does not fit on H100-SXM5-80GB",
     "fits: 2 x 3g.40gb"),
    (H100 | cut({"1g.10gb": 8}), "mig.layout[0].instances", "8 x 1g.10gb", "7 x 1g.10gb"),
    (H100 | cut({"1g.10gb+me": 2}), "mig.layout[0].instances", "1g.10gb+me", "fits: "),
    (H100 | cut([{"profile": "3g.40gb", "placement": 2}]), "mig.layout[0].instances", "memory slice 2",
     "gpuprov mig layouts"),
    (H100 | cut({"3x": 1}), "mig.layout[0].instances", '"3x" is not a MIG profile', "gpuprov catalog mig"),
    (H100 | cut({"3g.40gb+gfx": 1}), "mig.layout[0].instances.3g.40gb+gfx", "no profile 3g.40gb+gfx",
     'did you mean "3g.40gb"'),
    (H100 | cut({"4c.3g.40gb": 1}), "mig.layout[0].instances", "1 to all slices", "gpuprov"),
    (H100 | cut([{"profile": "3g.40gb", "placement": 0, "count": 2}]), "mig.layout[0]", "cannot all start",
     "gpuprov explain"),
    (H100 | cut([{"profile": "1c.3g.40gb"}]), "mig.layout[0]", "name the GPU instance here", "gpuprov explain"),
    (H100 | cut("3g.40gb"), "mig.layout[0].instances", "a mapping (key: value) or a list", ""),
    (H100 | cut({9: 2}), "mig.layout[0].instances", "9 is an id of nvidia-smi, and no profile's name",
     "its name is 3g.40gb"),
    (H100 | cut({"9": 2}), "mig.layout[0].instances", "9 is an id of nvidia-smi, and no profile's name",
     "its name is 3g.40gb"),
    (H100 | cut({"3g.40gb": 1}, ["0-1"]), "mig.layout[0].gpus[0]", '"0-1"', "write each index: [0, 1]"),
    (H100 | cut({"3g.40gb": 1}, ["all"]), "mig.layout[0].gpus[0]", '"all"', "gpus: all, without brackets"),
    (H100 | cut({"3g.40gb": 1}, []), "mig.layout[0].gpus", "empty list", "gpus: all"),
    (H100 | cut({"4g.24gb": 1}, ["A30"]), "mig.layout[0].gpus[0]", "the GPUs of the host are H100-SXM5-80GB",
     "gpu.model"),
    (cut({"4g.24gb": 2}, ["A30"]), "mig.layout[0].instances", "does not fit on A30", "2 x 2g.12gb"),
    (A100 | cut({"3g.20gb": 1, "4g.20gb": 1}) | {"nvidia_driver": {"version": "470"}}, "mig.layout[0].instances",
     "3g beside 4g needs driver branch 510", '510'),
    (A100 | cut({"1g.10gb": 1}) | {"nvidia_driver": {"version": "470.256.02"}}, "mig.layout[0].instances",
     "1g.10gb needs driver branch 525", '525'),
    (H100 | cut({"3g.40gb": 1}) | {"nvidia_driver": {"version": "525.60.13"}}, "mig", "needs driver 525.85.12", '525'),
    ({"gpu": {"model": "RTX-PRO-5000"}} | cut({"1g.24gb": 5}), "mig.layout[0].instances", "the GPU takes at most 2",
     "gpuprov"),
    (H100 | {"mig": {"layout": [{"gpus": "all", "mode": "disabled", "instances": {"1g.10gb": 1}}]}}, "mig.layout[0]",
     "mode: disabled has none", ""),
    (H100 | cut({"1g.10gb": 1}) | {"cgpu": {}}, "cgpu", "MIG", ""),
    (H100 | cut({"1g.10gb": 1}) | {"vgpu_guest": {}}, "vgpu_guest", "contradicts mig", "mig: false"),
]  # fmt: skip

WARNED = [
    (H100 | {"mig": {}}, "mig", "MIG mode without instances"),
    (A100 | cut({"1g.5gb": 1}) | {"nvidia_driver": {}, "fabric_manager": {"fabric_mode": "vgpu"}}, "mig",
     "cannot be activated in MIG mode"),
    ({"gpu": {"model": "RTX-PRO-5000"}} | cut({"1g.24gb": 2}), "mig.layout[0].instances", "the host decides"),
]  # fmt: skip


@run_each("values", GOOD, ids=str)
def test_a_good_spec(values: dict[str, Any]) -> None:
    assert [str(problem) for problem in told(values) if problem.path[:1] == ("mig",)] == []


@run_each(("values", "path", "message", "fix"), BAD, ids=lambda value: str(value)[:60])
def test_a_bad_spec(values: dict[str, Any], path: str, message: str, fix: str) -> None:
    found = [problem for problem in told(values) if problem.severity == "error"]
    assert [format_path(problem.path) for problem in found] == [path], found
    assert message in str(found[0])
    assert fix in found[0].fix


@run_each(("values", "path", "message"), WARNED, ids=lambda value: str(value)[:60])
def test_a_warning(values: dict[str, Any], path: str, message: str) -> None:
    (found,) = [problem for problem in told(values) if problem.path[:1] == ("mig",)]
    assert (found.severity, format_path(found.path), message in found.message, bool(found.fix)) == (
        "warning",
        path,
        True,
        True,
    )


FILE: dict[str, Any] = {
    "version": "v1",
    "mig-configs": {
        "all-disabled": [{"devices": "all", "mig-enabled": False}],
        "balanced": [
            {"device-filter": ["0x20B010DE", "0x20B110DE"], "devices": "all", "mig-enabled": True,
             "mig-devices": {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}},
            {"device-filter": "0x233010DE", "devices": [0], "mig-enabled": True,
             "mig-devices": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}},
        ],
        "of-h100": [{"device-filter": "0x233010DE:0x16C110DE", "devices": "all", "mig-enabled": True,
                     "mig-devices": {"1g.5gb": 1}}],
        "far": [{"devices": [7], "mig-enabled": True, "mig-devices": {"1g.10gb": 1}}],
    },
}  # fmt: skip


def written(folder: Path, content: Any) -> str:
    path = folder / "config.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
    return str(path)


@run_each(
    ("content", "selected", "field", "message", "fix"),
    [
        (FILE, "balancd", "selected", 'has no "balancd"', 'did you mean "balanced"?'),
        (FILE, "nothing-like-it", "selected", "has no", "selected: one of all-disabled, balanced"),
        (FILE, "", "selected", "has 4 configurations, and none is selected", "all-disabled"),
        (FILE, "of-h100", "selected", "has no profile 1g.5gb", 'did you mean "1g.10gb"'),
        (FILE | {"version": "v2"}, "balanced", "config_file", 'version is "v2", and not v1', "version: v1"),
        ({"mig-configs": {}}, "", "config_file", "version is empty, and not v1", "version: v1"),
        ({"version": "v1"}, "", "config_file", "mig-configs has no configuration", "name one"),
        ({"version": "v1", "mig-configs": {}}, "", "config_file", "mig-configs has no configuration", "name one"),
        (FILE | {"mig-config": {}}, "balanced", "config_file", 'unknown key "mig-config"',
         'did you mean "mig-configs"?'),
        ("[1, 2", "", "config_file", "not YAML", "correct the file"),
        ({"kind": "ConfigMap", "data": {"config.yaml": "[1, 2"}}, "", "config_file", "not YAML", "correct the file"),
        ({"kind": "ConfigMap", "data": {"other": "x"}}, "", "config_file", "is not a mig-parted file", "version: v1"),
        ({"kind": "ConfigMap", "data": {}}, "", "config_file", "its ConfigMap has no config.yaml", "correct the file"),
        ("just text", "", "config_file", "is not a mig-parted file", "version: v1"),
        ({"version": "v1", "mig-configs": {"a": []}}, "", "config_file", "has no entry", "at least one"),
        ({"version": "v1", "mig-configs": {"a": ["x"]}}, "a", "config_file", "a[0]", "correct the file"),
        ({"version": "v1", "mig-configs": {"a": [{"devices": "all"}]}}, "a", "config_file", "mig-enabled", "correct"),
        ({"version": "v1", "mig-configs": {"a": [{"device": "all", "mig-enabled": True}]}}, "a", "config_file",
         'unknown key "device"', 'did you mean "devices"?'),
        ({"version": "v1", "mig-configs": {"a": [{"devices": "all", "mig-enabled": True}]}}, "a", "config_file",
         "mig-devices", ""),
        ({"version": "v1", "mig-configs": {"a": [
            {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}},
            {"devices": [0], "mig-enabled": False, "mig-devices": {}},
        ]}}, "a", "config_file", "entry 1: entry 0 gives the same GPUs another mode", "one mode"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_taken(
    tmp_path: Path, content: Any, selected: str, field: str, message: str, fix: str
) -> None:
    found = told(H100 | {"mig": {"config_file": written(tmp_path, content), "selected": selected}})
    assert [format_path(problem.path) for problem in found] == [f"mig.{field}"], found
    assert message in found[0].message
    assert fix in found[0].fix


def test_a_file_that_is_not_there_or_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        (found,) = told(H100 | {"mig": {"config_file": str(path), "selected": "a"}})
        assert (format_path(found.path), "cannot be read here" in found.message) == ("mig.config_file", True)


def test_a_file_as_it_is(tmp_path: Path) -> None:
    path = written(tmp_path, FILE)
    assert told(H100 | {"mig": {"config_file": path, "selected": "balanced"}}) == []
    assert [entry.enabled for entry in host.entries(Mig(config_file=path, selected="all-disabled"))] == [False]
    assert len(host.entries(Mig(config_file=path, selected="balanced"))) == 2
    only = written(tmp_path, {"version": "v1", "mig-configs": {"one": FILE["mig-configs"]["all-disabled"]}})
    assert config_file.read(only, "").entries == FILE["mig-configs"]["all-disabled"]
    placed = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"config.yaml": yaml.safe_dump(FILE)}}
    assert config_file.read(written(tmp_path, placed), "all-disabled").entries == FILE["mig-configs"]["all-disabled"]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path, FILE)
    assert not config_file.read(path, "far").troubles
    written(tmp_path, {"version": "v1", "mig-configs": {"near": FILE["mig-configs"]["far"]}})
    assert config_file.read(path, "far").troubles


def test_filters_and_indexes_of_other_hosts(tmp_path: Path) -> None:
    path = written(tmp_path, FILE)
    (found,) = told({"gpu": {"model": "A30"}} | {"mig": {"config_file": path, "selected": "balanced"}})
    assert (found.severity, "no entry of balanced is for A30" in found.message) == ("error", True)
    assert "0x20B710DE" in found.fix
    (found,) = told(H100 | {"mig": {"config_file": path, "selected": "far"}})
    assert (found.severity, "names GPU 7" in found.message) == ("warning", True)


def test_a_minimum_that_is_published_for_another_machine_is_a_warning() -> None:
    """595.58.03 is told of DGX Station; racks of the same GPU run 580."""
    rack = {"gpu": {"model": "GB300", "count": 4}, "nvidia_driver": {"version": "580"}}
    problems = [one for one in told(rack | cut({"1g.35gb": 7})) if "595.58.03" in one.message]
    assert [(one.severity, format_path(one.path)) for one in problems] == [("warning", "mig")]
    old = H100 | cut({"3g.40gb": 1}) | {"nvidia_driver": {"version": "525.60.13"}}
    assert [one.severity for one in told(old) if "525.85.12" in one.message] == ["error"]
