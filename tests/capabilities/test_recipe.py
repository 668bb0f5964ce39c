"""What check says where a spec differs from the recipe that it names."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov.catalog.instances import find_instance
from gpuprov.catalog.recipes import find_recipe, fitting_recipes, spec_of
from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.specs import judge
from gpuprov.spec.model import RawHost
from tests.rows import run_each


def spec(**changes: Any) -> dict[str, Any]:
    recipe = find_recipe("aws-p5")
    assert recipe
    return {**spec_of(recipe), **changes}


def warnings(values: dict[str, Any]) -> list[tuple[str, str]]:
    """The message and the fix of each warning about the recipe."""
    fleet = judge([RawHost(name="gpu01", values=values)])
    return [(one.message, one.fix) for one in fleet.warnings if "recipe" in one.message]


@run_each("version", ["580", "580.95.05", "580.178.04"])
def test_a_version_of_the_recipes_branch_follows_it(version: str) -> None:
    assert warnings(spec(nvidia_driver={"version": version, "source": "nvidia", "kernel_modules": "open"})) == []


@run_each("version", ["any", "595", "595.71.05"])
def test_another_branch_is_told_with_both_values_and_the_source(version: str) -> None:
    ((message, fix),) = warnings(spec(nvidia_driver={"version": version, "source": "nvidia", "kernel_modules": "open"}))
    assert message == f'nvidia_driver.version is "{version}", and recipe aws-p5 has "580"'
    assert fix.startswith("source: https://github.com/awslabs/amazon-eks-ami/")
    assert ", read 2026-" in fix


def test_a_block_with_other_fields_is_there_and_one_switched_off_is_not() -> None:
    assert warnings(spec(dcgm={"listen": "127.0.0.1:6000"})) == []
    ((message, _),) = warnings(spec(dcgm=False))
    assert message == "dcgm is not in the spec, and recipe aws-p5 has it"


def test_keys_of_a_mapping_are_told_one_by_one() -> None:
    told = [message for message, _ in warnings(spec(kernel={"sysctl": {"net.core.rmem_max": 1}}))]
    assert len(told) == 4
    assert "kernel.sysctl.net.core.rmem_max is 1, and recipe aws-p5 has 536870912" in told
    assert "kernel.sysctl.net.core.netdev_max_backlog is not in the spec, and recipe aws-p5 has 10000" in told


def test_other_gpus_are_told_with_the_recipes_for_them() -> None:
    ((message, fix),) = warnings(spec(gpu={"model": "B200", "count": 8}))
    assert message == "gpu is 8 x B200, and recipe aws-p5 is for 8 x H100-SXM5-80GB"
    assert "aws-p6-b200" in fix
    ((message, fix),) = warnings(spec(gpu={"model": "H100-SXM5-80GB", "count": 3}))
    assert message == "gpu is 3 x H100-SXM5-80GB, and recipe aws-p5 is for 8 x H100-SXM5-80GB"
    assert fix == "no recipe is for these GPUs: leave recipe out"


def test_an_instance_type_is_the_gpus_of_the_recipe() -> None:
    assert warnings(spec(gpu={"model": "p5.48xlarge"})) == []


def test_a_spec_without_a_recipe_is_compared_with_none() -> None:
    values = {name: value for name, value in spec(dcgm=False).items() if name != "recipe"}
    assert warnings(values) == []


@run_each(("name", "fix"), [("aws-p50", '"aws-p5"'), ("", ""), ("qqqq", "gpuprov catalog recipes lists all")])
def test_an_unknown_recipe_is_refused(name: str, fix: str) -> None:
    if not name:
        assert warnings(spec(recipe="")) == []
        return
    with pytest.raises(GpuprovError) as caught:
        judge([RawHost(name="gpu01", values=spec(recipe=name))])
    assert f'recipe "{name}" is not in the catalogue' in str(caught.value)
    assert fix in str(caught.value)


def test_recipes_that_fit() -> None:
    def keys(*arguments: Any) -> list[str]:
        return [recipe.key for recipe in fitting_recipes(*arguments)]

    assert keys("H100-SXM5-80GB", 8) == ["hgx-h100-infiniband", "hgx-h100-roce", "aws-p5", "azure-nd-h100"]
    assert keys("H100-SXM5-80GB", 8, find_instance("p5.48xlarge")) == ["aws-p5"]
    assert keys("H200-SXM", 8, find_instance("p5en.48xlarge")) == ["aws-p5e"]
    assert keys("H100-SXM5-80GB", 8, find_instance("a3-highgpu-8g")) == ["hgx-h100-infiniband", "hgx-h100-roce"]
    assert keys("H100-SXM5-80GB", 2) == []
    assert keys("T4", 1) == []
