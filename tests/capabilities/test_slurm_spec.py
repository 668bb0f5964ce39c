"""slurm, known offline: what cannot work on any host, and which values a spec may give."""

from __future__ import annotations

import pytest

from gpuprov.capabilities import slurm
from gpuprov.capabilities.mig.fragment import Mig
from gpuprov.capabilities.slurm.fragment import Slurm
from gpuprov.spec.build import convert
from gpuprov.spec.model import Fragment, HostSpec

ON: dict[str, Fragment] = {"mig": Mig(layout=())}
OFF: dict[str, Fragment] = {"mig": Mig(mode="disabled")}


@pytest.mark.parametrize(
    ("block", "others", "said"),
    [
        (Slurm(), {}, ""),
        (Slurm(shards=4, type="h100"), {}, ""),
        (Slurm(shards=4), OFF, ""),
        (Slurm(), ON, ""),
        (Slurm(gres="nvml", constrain_devices=False), ON, ""),
        (Slurm(shards=4), ON,
            "slurm.shards is 4, and mig cuts GPUs into MIG devices, which Slurm does not share; shards: 0"),
        (Slurm(gres="nvml", type="h100"), {},
            'slurm.type is "h100", and has no effect with gres: nvml, as AutoDetect=nvml names'),
        (Slurm(gres="site", type="h100"), {}, "as gres.conf is the site's; gres: files"),
        (Slurm(gres="site", shards=2), {}, "slurm.shards has no effect with gres: site"),
        (Slurm(constrain_devices=False), ON,
            "slurm.constrain_devices is false, and jobs are kept to their MIG device by its device files"),
    ],
)  # fmt: skip
def test_rules(block: Slurm, others: dict[str, Fragment], said: str) -> None:
    host = HostSpec(name="h", capabilities={"slurm": block, **others})
    found = [str(problem) for problem in slurm.rules(host, block)]
    assert len(found) == bool(said), found
    assert not said or said in found[0], found


@pytest.mark.parametrize(
    "values",
    [
        {"gres": "rsmi"},
        {"type": "h100 Count=9"},
        {"type": "h100\nName=gpu"},
        {"shards": -1},
        {"shards": 2000},
        {"enroot": True},
    ],
)
def test_what_no_spec_may_say(values: dict[str, object]) -> None:
    assert convert(values, Slurm)[1], "it would be a line of gres.conf"
