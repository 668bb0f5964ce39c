"""cgpu, known offline: what a spec must not say, what a host's settings are as a spec, and the file that the role
writes."""

from __future__ import annotations

import msgspec
import pytest

from gpuprov.capabilities import BY_NAME, cgpu
from gpuprov.capabilities.cgpu.desired import config
from gpuprov.capabilities.cgpu.fragment import Cgpu, lines
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.catalog import cgpu as catalogue
from gpuprov.spec.build import convert
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from tests.capabilities.asking import facts
from tests.capabilities.cgpu_host import ABSENT, said

EIGHT = GpuSpec(model="A100-SXM4-80GB", count=8)


def told(block: Cgpu, gpu: GpuSpec | None = None, **others: Fragment) -> list[str]:
    host = HostSpec(name="h", gpu=gpu, capabilities={"cgpu": block, **others})
    return [str(problem) for problem in cgpu.rules(host, block)]


class Mode(Fragment, frozen=True):
    mode: str = "enabled"


@pytest.mark.parametrize(
    ("block", "others", "said_"),
    [
        (Cgpu(), {}, ""),
        (Cgpu(max_inst=25, prio_ratio=20, gpus={"7": {"max_inst": 1}}), {}, ""),
        (Cgpu(prio_ratio=19), {}, "cgpu.prio_ratio is 19; allowed: a whole number from 20 to 99, or 0, which leaves"),
        (Cgpu(gpus={"0": {"policy": 6}}), {}, "cgpu.gpus.0.policy is 6; allowed: a whole number from 0 to 5"),
        (Cgpu(gpus={"0": {"max_inst": 0}}), {}, "cgpu.gpus.0.max_inst is 0; allowed: a whole number from 1 to 25"),
        (Cgpu(gpus={"0": {"prio_ratio": 100}}), {}, "cgpu.gpus.0.prio_ratio is 100"),
        (Cgpu(gpus={"8": {"policy": 3}}), {}, 'cgpu.gpus names GPU "8", and the host has 8; allowed: 0 to 7'),
        (Cgpu(gpus={"0": {}}), {}, 'cgpu.gpus: "0" says nothing; allowed: max_inst, policy, prio_ratio'),
        (Cgpu(), {"mig": Mode()}, "cgpu contradicts mig: MIG cuts the GPUs up, too; cgpu: false, or mig: false"),
        (Cgpu(), {"mig": Mode(mode="disabled")}, ""),
        (Cgpu(), {"mps": Mode()}, "cgpu contradicts mps: MPS shares the GPUs, too"),
        (Cgpu(), {"mps": BY_NAME["mps"].fragment(scope="none")}, ""),
        (Cgpu(), {"nvidia_driver": NvidiaDriver(version="570")}, ""),
        (Cgpu(), {"nvidia_driver": NvidiaDriver(version="580")}, "warning: cgpu: nvidia_driver.version is 580, and cGPU 1.5.3"),
    ],
)  # fmt: skip
def test_rules(block: Cgpu, others: dict[str, Fragment], said_: str) -> None:
    found = told(block, EIGHT, **others)
    assert [one for one in found if said_ in one] == found
    assert len(found) == bool(said_)


def test_the_other_capabilities_are_what_the_rules_look_at() -> None:
    """By their own defaults MIG is on, and MPS shares."""
    for name in ("mig", "mps"):
        assert len(told(Cgpu(), EIGHT, **{name: BY_NAME[name].fragment()})) == 1


@pytest.mark.parametrize(
    ("values", "place", "hint"),
    [
        ({"policy": 6}, "cgpu.policy is 6", "a whole number from 0 to 5"),
        ({"policy": "1"}, 'cgpu.policy is "1"', "write 1 without quotes"),
        ({"max_inst": 26}, "cgpu.max_inst is 26", "from 0 to 25"),
        ({"gpus": {0: {"policy": 1}}}, "cgpu.gpus: the key 0 is no text", 'quote it: "0"'),
        ({"gpus": {"GPU-1": {"policy": 1}}}, 'cgpu.gpus: the key is "GPU-1"', "a GPU's folder"),
        ({"gpus": {"0": {"polici": 1}}}, 'unknown key "polici" in cgpu.gpus.0', 'did you mean "policy"?'),
    ],
)
def test_values_that_no_model_takes(values: object, place: str, hint: str) -> None:
    _, findings = convert(values, Cgpu, ("cgpu",))
    ((_, message, way),) = findings
    assert place in message
    assert hint in way


@pytest.mark.parametrize(
    ("text", "block"),
    [
        (said("20 1 80", "20 1 80"), Cgpu(policy=1, max_inst=20, prio_ratio=80)),
        (said("20 1 80", "5 3 80", "20 1 80"), Cgpu(policy=1, max_inst=20, prio_ratio=80, gpus={"1": {"max_inst": 5, "policy": 3}})),
        (said("16 0 -", version="0.8.8"), Cgpu(policy=0, max_inst=16)),
        (said("64 1 0"), Cgpu(policy=1)),
        (said("20 - 80"), None),
        (said("- - -"), None),
        (ABSENT, None),
    ],
)  # fmt: skip
def test_export(text: str, block: Cgpu | None) -> None:
    found = cgpu.export(facts(cgpu=text))
    assert found == block
    if block:
        assert convert(msgspec.to_builtins(found), Cgpu) == (block, [])


@pytest.mark.parametrize(
    "block",
    [
        Cgpu(),
        Cgpu(policy=0),
        Cgpu(policy=5, max_inst=25, prio_ratio=99, gpus={"1": {"prio_ratio": 20, "max_inst": 1}, "0": {"policy": 0}}),
    ],
)
def test_the_role_writes_the_lines_that_the_check_expects(block: Cgpu) -> None:
    assert tuple(line for line in config(block).splitlines() if not line.startswith("#")) == lines(block)


@pytest.mark.parametrize(
    ("version", "driver", "said_"),
    [
        ("1.5.20", "575", ""),
        ("1.5.3", "545.23.08", "not with 545.23.08"),
        ("1.5.2", "470.161.03", ""),
        ("1.5.2", "470.199.02", "drivers of 470 up to 470.161.03, not with 470.199.02"),
        ("1.0.3", "510", "not with 510"),
        ("0.8.8", "580", ""),
        ("1.5.20", "", ""),
        ("1.5.2-ack", "550", "not with 550"),
        ("", "550", ""),
    ],
)
def test_the_table_of_drivers(version: str, driver: str, said_: str) -> None:
    why = catalogue.explain_unfit(version, driver)
    assert said_ in why
    assert bool(why) == bool(said_)


def test_the_model_and_the_table_of_nodes_have_the_same_bounds() -> None:
    for node in catalogue.read_cgpu_file().nodes:
        assert convert({node.key: node.most}, Cgpu)[1] == []
        assert convert({node.key: node.most + 1}, Cgpu)[1]
        assert convert({node.key: node.least}, Cgpu)[1] == []
    assert [one.value for one in catalogue.read_cgpu_file().policies] == [*range(6)]
