"""Each recipe of the catalogue is valid and can be rehearsed in containers; what it warns of and what is left out is
known."""

from __future__ import annotations

from gpuprov.catalog.recipes import Recipe, recipes, spec_of
from gpuprov.fleet.specs import judge
from gpuprov.rehearse.model import Options
from gpuprov.rehearse.shape import plan_shapes
from gpuprov.spec.model import RawHost
from tests.rows import run_each

SYSCTL = "kernel.sysctl "
ACS = "pcie.acs rdma_topo"
IOMMU = "pcie.iommu passthrough"
BUFFERS = f"{SYSCTL}net.core.rmem_max, net.core.wmem_max, net.core.netdev_max_backlog"
LEFT_OUT: dict[str, list[str]] = {
    "hgx-a100-infiniband": [],
    "hgx-a100-roce": [],
    "hgx-h100-infiniband": [BUFFERS],
    "hgx-h100-roce": [BUFFERS],
    "hgx-h200-infiniband": [],
    "hgx-h200-roce": [],
    "hgx-b200-infiniband": [],
    "hgx-b200-roce": [],
    "hgx-b300-infiniband": [ACS],
    "hgx-b300-roce": [ACS],
    "gb200-nvl72-infiniband": [IOMMU, f"{BUFFERS}, vm.min_free_kbytes, kernel.numa_balancing", ACS],
    "gb300-nvl72-infiniband": [IOMMU, f"{SYSCTL}vm.min_free_kbytes, kernel.numa_balancing", ACS],
    "aws-p5": ["rdma", BUFFERS],
    "aws-p5e": ["rdma"],
    "aws-p6-b200": ["rdma"],
    "aws-p6-b300": ["rdma"],
    "aws-p6e-gb200": ["rdma", "gpudirect_rdma"],
    "azure-nd-a100": ["gpudirect_rdma", f"{SYSCTL}vm.zone_reclaim_mode"],
    "azure-nd-h100": ["gpudirect_rdma", f"{SYSCTL}vm.zone_reclaim_mode"],
    "azure-nd-h200": ["gpudirect_rdma", f"{SYSCTL}vm.zone_reclaim_mode"],
    "azure-nd-gb200": ["gpudirect_rdma", f"{SYSCTL}vm.zone_reclaim_mode, net.core.rmem_max, net.core.wmem_max"],
    "gcp-a3-ultra": [],
    "alibaba-gn8v": ["rdma.count 2"],
    "l40s-inference": [f"{SYSCTL}vm.swappiness"],
    "rtx-pro-6000-server": [f"{SYSCTL}vm.swappiness"],
    "workstation": [],
}

WARNED = {key: [("gpudirect_rdma", "topology_check")] for key in ("gb300-nvl72-infiniband", "azure-nd-gb200")}
"""Some such machines need topology_check: allow, and no source says that these do."""


@run_each("recipe", recipes(), ids=lambda recipe: recipe.key)
def test_a_recipe_can_be_rehearsed(recipe: Recipe) -> None:
    fleet = judge([RawHost(name="node01", values=spec_of(recipe))])
    assert [warning.path for warning in fleet.warnings] == WARNED.get(recipe.key, [])
    pairs = fleet.pairs
    (shape,) = plan_shapes(pairs, Options(), "1f3a")
    assert shape.description, shape.problem
    assert shape.description.gpu
    assert shape.description.gpu.count == recipe.count
    assert [entry.partition(":")[0] for entry in shape.left_out] == LEFT_OUT[recipe.key]
    assert shape.description.distribution == ("amazon2023" if recipe.key.startswith("aws-") else "debian12")
    left = {entry for entry in LEFT_OUT[recipe.key] if "." not in entry}
    assert {*shape.spec.capabilities} == {*pairs[0][1].capabilities} - left


def test_the_table_has_no_other_recipes() -> None:
    assert {*LEFT_OUT} == {recipe.key for recipe in recipes()}
