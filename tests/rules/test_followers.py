"""What follows the driver's version beside it, by the board and by what else the spec has."""

from __future__ import annotations

from gpuprov.capabilities.fabric_manager.fragment import FabricManager, Imex
from gpuprov.catalog import fabric
from gpuprov.rules.resolve import fitting
from gpuprov.spec.model import Fragment
from tests.rows import run_each

A100, H100, B200, V100 = "10de:20b2", "10de:2330", "10de:2901", "10de:1db8"
UBUNTU, DEBIAN, EL = ("ubuntu", "24.04"), ("debian", "12"), ("rhel", "9.4")


class Dcgm(Fragment, frozen=True):
    """As far as it counts here: that it is there."""


def names(
    block: FabricManager, *gpus: str, of: tuple[str, str] = DEBIAN, branch: str = "580", dcgm: bool = True
) -> list[list[str]]:
    given: dict[str, object] = {"fabric_manager": block} | ({"dcgm": Dcgm()} if dcgm else {})
    return [list(fitting(rules, branch)) for rules, _ in fabric.list_beside(given, lambda: gpus, *of)]


def test_the_board_decides_which_library() -> None:
    block = FabricManager()
    assert names(block, H100) == [["nvidia-fabricmanager"], ["libnvidia-nscq"]]
    assert names(block, A100, branch="535") == [["nvidia-fabricmanager-535"], ["libnvidia-nscq-535"]]
    assert names(block, B200) == [["nvidia-fabricmanager"], ["libnvsdm"]]
    assert names(block, B200, branch="570") == [["nvidia-fabricmanager-570"], ["libnvsdm-570"]]
    assert names(block, V100) == [["nvidia-fabricmanager"]], "no document says that NSCQ knows HGX-2"


def test_names_by_distribution() -> None:
    assert names(FabricManager(), H100, of=EL, branch="570")[1] == ["libnvidia-nscq-570"]
    assert names(FabricManager(), B200, of=EL)[1] == ["libnvsdm"]
    both = names(FabricManager(), H100, of=UBUNTU)[1]
    assert both == ["libnvidia-nscq-580", "libnvidia-nscq"], "of Ubuntu's archive, and of NVIDIA's"
    first, _ = fabric.list_beside({"fabric_manager": FabricManager(query_library="always")}, lambda: [H100], *UBUNTU)[1]
    assert next(rule.get("needs", "") for rule in first if "-{branch}" in rule["name"]).startswith(
        "nvidia-kernel-common"
    )


@run_each(
    ("block", "dcgm", "number"),
    [
        (FabricManager(), False, 1),
        (FabricManager(query_library="always"), False, 2),
        (FabricManager(query_library="never"), True, 1),
        (FabricManager(imex=Imex(nodes=("192.0.2.1",))), True, 1),
    ],
)
def test_who_has_it(block: FabricManager, dcgm: bool, number: int) -> None:
    assert len(names(block, H100, dcgm=dcgm)) == number


def test_what_a_distribution_lacks() -> None:
    """Only `always` names a library that the distribution does not have."""
    given = {"fabric_manager": FabricManager(), "dcgm": Dcgm()}
    assert fabric.list_beside({"dcgm": Dcgm()}, lambda: [H100], *EL) == ()
    assert "libnvidia-nscq-575" in fabric.list_beside(given, lambda: [H100], *EL)[1][1]
    assert len(fabric.list_beside(given, lambda: [H100], "arch", "")) == 1
    always = {"fabric_manager": FabricManager(query_library="always")}
    assert fabric.list_beside(always, lambda: [H100], "arch", "")[1] == ((), ())
