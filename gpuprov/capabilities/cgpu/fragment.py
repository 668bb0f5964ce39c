"""The `cgpu` block, and the lines of its configuration on the host."""

from typing import Annotated, Literal

from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment

Node = Literal["max_inst", "policy", "prio_ratio"]
Index = Annotated[str, describe('a GPU\'s folder in /proc/cgpu_km, in quotes: "0"', pattern=r"^(0|[1-9][0-9]?)$")]


class Cgpu(Fragment, frozen=True):
    """Settings of an installed cGPU of Alibaba: each GPU's policy and limits, applied now and at each boot.

    A unit applies them before docker, containerd, CRI-O and kubelet start. cGPU itself is installed by Alibaba's own
    means.
    """

    policy: Annotated[
        int,
        describe(
            "how containers share a GPU's time: 0 average, 1 preemptive, 2 by weight, 3 fixed, 4 weak, 5 the "
            "driver's own scheduling",
            ge=0,
            le=5,
        ),
    ] = 1
    max_inst: Annotated[
        int, describe("how many containers a GPU takes at most, 1 to 25; 0 leaves what the module has", ge=0, le=25)
    ] = 0
    prio_ratio: Annotated[
        int,
        describe(
            "percent of a GPU that a high-priority container may take, 20 to 99; 0 leaves what the module has",
            ge=0,
            le=99,
        ),
    ] = 0
    gpus: Annotated[
        dict[Index, dict[Node, int]],
        describe(
            "by the index that cGPU gives a GPU, the nodes (policy, max_inst, prio_ratio) that are different on it"
        ),
    ] = {}


def general(block: Cgpu) -> dict[str, int]:
    """Return the settings that every GPU should have, in the order in which they are written; a 0 of max_inst and
    prio_ratio is not a request."""
    fields = {"max_inst": block.max_inst, "policy": block.policy, "prio_ratio": block.prio_ratio}
    return {key: value for key, value in fields.items() if value or key == "policy"}


def rows(block: Cgpu) -> list[tuple[str, str, str]]:
    """Return GPU, node and value; a later row overrides an earlier one."""
    single = [(index, str(key), values[key]) for index, values in block.gpus.items() for key in sorted(values)]
    triples = [*(("*", key, value) for key, value in general(block).items()), *single]
    return [(index, key, str(value)) for index, key, value in triples]


def lines(block: Cgpu) -> tuple[str, ...]:
    """Return the configuration on the host: `GPU NODE VALUE`."""
    return tuple(map(" ".join, rows(block)))
