"""How GPUs are cut up: exported as a spec and as a mig-parted file, and drawn before an apply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from gpuprov.capabilities import mig
from gpuprov.capabilities.mig import host, reality
from gpuprov.capabilities.mig.fragment import LayoutEntry, Mig
from gpuprov.capabilities.mig.partitions import Partition, partitions
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.cli import cli
from gpuprov.export import Exported, mig_config, spec_of
from gpuprov.facts.probes.base import Facts, Output, ProbeFailed
from gpuprov.plan.fold import cuts, listed
from gpuprov.report import specs
from gpuprov.spec.build import convert
from gpuprov.spec.model import HostSpec
from tests.capabilities import asking
from tests.capabilities import mig_host as mh
from tests.capabilities.asking import H100, ask, facts, good
from tests.rows import run_each

WHOLE, OTHER = ("3g.40gb", 0, (3,)), ("3g.40gb", 4, (3,))
CASES: list[tuple[str, tuple[dict[str, Any], ...], dict[str, Any]]] = [
    ("all alike", (mh.gpu(WHOLE, OTHER), mh.gpu(WHOLE, OTHER, index=1)),
     {"layout": [{"gpus": "all", "instances": {"3g.40gb": 2}}]}),
    ("each its own", (mh.gpu(WHOLE, OTHER), mh.gpu(index=1, on=False)),
     {"layout": [{"gpus": [0], "instances": {"3g.40gb": 2}}, {"gpus": [1], "mode": "disabled"}]}),
    ("cut up inside", (mh.gpu(("3g.40gb", 0, (1, 1, 1))),), {"layout": [{"gpus": "all",
                                                                         "instances": {"1c.3g.40gb": 3}}]}),
    ("cut up as counts do not say", (mh.gpu(("3g.40gb", 0, (1, 1)), ("3g.40gb", 4, (1, 1))),),
     {"layout": [{"gpus": "all", "instances": [{"profile": "3g.40gb", "count": 2, "compute": {"1c": 2}}]}]}),
    ("whole and cut up", (mh.gpu(("3g.40gb", 0, (2, 1)), OTHER),),
     {"layout": [{"gpus": "all", "instances": {"3g.40gb": 1, "2c.3g.40gb": 1, "1c.3g.40gb": 1}}]}),
    ("MIG without instances", (mh.gpu(),), {"layout": [{"gpus": "all"}]}),
    ("beside a GPU without MIG", (mh.gpu(model=mh.T4, capable=False), mh.gpu(WHOLE, index=1)),
     {"layout": [{"gpus": "all", "instances": {"3g.40gb": 1}}]}),
]  # fmt: skip


def read(*gpus: dict[str, Any], unit: str = "", unread: list[str] | None = None) -> Facts:
    return facts(mig=mh.state(*gpus, unread=unread or []), mig_units=mh.units(unit))


@run_each(("name", "gpus", "spec"), CASES, ids=[case[0] for case in CASES])
def test_a_spec_that_is_true_of_the_host(name: str, gpus: tuple[dict[str, Any], ...], spec: dict[str, Any]) -> None:
    block = mig.CAPABILITY.export(read(*gpus))
    assert isinstance(block, Mig), name
    plain = msgspec.json.decode(msgspec.json.encode(block))
    assert plain["layout"] == spec["layout"]
    again, findings = convert(plain, Mig)
    assert again == block, findings
    assert ask("mig.instances", block, mig=mh.state(*gpus)).status == "pass"


@run_each(("name", "gpus", "spec"), CASES, ids=[case[0] for case in CASES])
def test_a_mig_parted_file_that_is_true_of_the_host(
    tmp_path: Path, name: str, gpus: tuple[dict[str, Any], ...], spec: dict[str, Any]
) -> None:
    config, missing = mig_config(read(*gpus))
    if name == "cut up as counts do not say":
        assert (config, "mig-parted would put these compute instances" in missing) == ([], True)
        return
    path = tmp_path / "mig.yaml"
    path.write_text(yaml.safe_dump({"version": "v1", "mig-configs": {"gpu1": config}}, sort_keys=False))
    block = Mig(config_file=str(path), selected="gpu1")
    assert [entry.parted for entry in host.entries(block)] == [True] * len(spec["layout"])
    assert ask("mig.instances", block, mig=mh.state(*gpus)).status == "pass"


def test_a_host_without_mig() -> None:
    off = mh.gpu(on=False)
    assert mig.CAPABILITY.export(read(off)) is None
    assert mig.CAPABILITY.export(read(off, unit="enabled")) == Mig(mode="disabled")
    assert mig.CAPABILITY.export(read(mh.gpu(model=mh.T4, capable=False), unit="enabled")) is None
    unit = mh.units()
    for complaint, bus in (("libnvidia-ml.so.1: cannot open shared object file", H100), ("Driver Not Loaded", "")):
        told = facts(mig=mh.state(complaint=complaint), mig_units=unit, nvidia_functions=bus)
        assert mig.CAPABILITY.export(told) is None
    with pytest.raises(ProbeFailed, match="Driver Not Loaded"):
        mig.CAPABILITY.export(facts(mig=mh.state(complaint="Driver Not Loaded"), mig_units=unit, nvidia_functions=H100))
    assert mig_config(read(mh.gpu(model=mh.T4, capable=False))) == ([], "no GPU has MIG")
    assert mig_config(facts(mig=mh.state(complaint="no library"))) == ([], "no library")


def test_what_no_spec_can_say() -> None:
    with pytest.raises(ProbeFailed, match=r"3g\.40gb has no compute instance"):
        mig.CAPABILITY.export(read(mh.gpu(("3g.40gb", 0, ()))))
    strange = json.loads(mh.state(mh.gpu(WHOLE)))
    strange["gpus"][0]["instances"][0]["profile"] = "half"
    with pytest.raises(ProbeFailed, match=r'GPU 0 .*"half" is not a MIG profile'):
        mig.CAPABILITY.export(facts(mig=json.dumps(strange), mig_units=mh.units()))
    told = ask("mig.instances", Mig(), mig=json.dumps(strange))
    assert (told.status, "half" in told.found) == ("fail", True)
    with pytest.raises(ProbeFailed, match="GPU is lost"):
        reality.parted(read(mh.gpu(WHOLE), unread=["GPU 1: GPU is lost"]))


def test_the_whole_export_has_it() -> None:
    texts = {**good(), "mig": mh.state(mh.gpu(WHOLE, OTHER))}
    spec, unread = spec_of(facts(**texts))
    assert spec["mig"] == {"layout": [{"gpus": "all", "instances": {"3g.40gb": 2}}]}
    assert [line for line in unread if line.startswith("mig")] == []
    assert yaml.safe_load(yaml.safe_dump(spec["mig"])) == spec["mig"]


def test_the_file_is_written_beside_the_inventory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, _ = mig_config(read(mh.gpu(WHOLE, OTHER)))
    inventory: dict[str, Any] = {"all": {"hosts": {"gpu1": {}}}}
    path = tmp_path / "mig.yaml"
    specs.show_export(Exported(inventory, (), (), {}), None, as_json=False, mig_parted=path)
    assert not path.exists()
    parted = {"version": "v1", "mig-configs": {"gpu1": config}}
    assert specs.show_export(Exported(inventory, (), (), parted), None, as_json=True, mig_parted=path) == 0
    assert yaml.safe_load(path.read_text()) == parted
    assert '"gpu1"' in capsys.readouterr().out


def test_the_command_refuses_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text("all: {hosts: {gpu1: {ansible_connection: local}}}\n")
    asked = [str(hosts), "--mig-parted", str(tmp_path / "no/such/folder/mig.yaml")]
    ran = CliRunner().invoke(cli, ["export", *asked])
    assert ran.exit_code != 0
    assert "mig.yaml" in str(ran.exception) + ran.output


SMALL = ("1g.10gb", 6, (1,))


def asked(instances: Any, *gpus: dict[str, Any]) -> tuple[Partition, ...]:
    block = Mig(layout=(LayoutEntry(gpus="all", instances=instances),))
    texts = {**good(), "mig": mh.state(*gpus), "container": "none\n"}
    return partitions(HostSpec(name="gpu1", capabilities={"mig": block}), facts(**texts))


def drawn(one: Partition) -> tuple[list[Any], ...]:
    return tuple([(p.start, p.size, p.name, p.fate) for p in parts] for parts in (one.before, one.after))


def test_what_stays_what_goes_and_what_comes() -> None:
    (one,) = asked({"3g.40gb": 2}, mh.gpu(WHOLE, SMALL))
    assert one.grid == 8
    assert (one.enabled_before, one.enabled_after) == (True, True)
    assert drawn(one) == (
        [(0, 4, "3g.40gb", "stays"), (6, 1, "1g.10gb", "destroyed")],
        [(0, 4, "3g.40gb", "stays"), (4, 4, "3g.40gb", "created")],
    )


def test_a_gpu_that_is_right_is_not_drawn() -> None:
    assert asked({"3g.40gb": 2}, mh.gpu(WHOLE, OTHER)) == ()


def test_mig_that_is_off_has_no_instance_before() -> None:
    (one,) = asked({"3g.40gb": 2}, mh.gpu(on=False))
    assert (one.enabled_before, one.enabled_after, one.before, listed(one.after)) == (False, True, (), "2 x 3g.40gb")


def test_an_instance_that_stays_and_is_cut_inside() -> None:
    (one,) = asked({"1c.3g.40gb": 3}, mh.gpu(WHOLE))
    assert drawn(one) == ([(0, 4, "3g.40gb", "cut anew")], [(0, 4, "3g.40gb with 1c, 1c, 1c", "cut anew")])


def test_gpus_of_which_the_same_is_done_are_one_picture() -> None:
    found = asked({"3g.40gb": 2}, mh.gpu(WHOLE), mh.gpu(WHOLE, index=1), mh.gpu(index=2))
    assert [cut.gpus for cut in cuts(found)] == ["GPUs 0, 1", "GPU 2 (0000:39:00.0)"]


TWO = asking.H100 + asking.H100.replace("0000:19", "0000:3b") + asking.NVSWITCH


def before_the_driver(spec: HostSpec, **changed: str) -> tuple[Partition, ...]:
    told = {"mig": mh.state(complaint="Driver Not Loaded"), "container": "none\n", "nvidia_functions": TWO, **changed}
    return partitions(spec, facts(**{**good(), **told}))


def with_driver(*entries: LayoutEntry) -> HostSpec:
    blocks = {"nvidia_driver": NvidiaDriver(version="580"), "mig": Mig(layout=entries)}
    return HostSpec(name="gpu1", capabilities=blocks)


def test_a_driver_that_comes_in_the_same_apply_has_the_gpus_of_the_bus() -> None:
    first, second = before_the_driver(with_driver(LayoutEntry(gpus="all", instances={"3g.40gb": 2})))
    assert (first.gpu, first.model, first.grid) == ("GPU 0 (0000:19:00.0)", "H100-SXM5-80GB", 8)
    assert (first.enabled_before, first.enabled_after, first.before) == (False, True, ())
    assert drawn(first)[1] == [(0, 4, "3g.40gb", "created"), (4, 4, "3g.40gb", "created")]
    assert second.gpu == "GPU 1 (0000:3b:00.0)"
    (one,) = before_the_driver(with_driver(LayoutEntry(gpus=("0000:3b:00.0",), instances={"7g.80gb": 1})))
    assert one.index == 1


@run_each(
    ("spec", "changed"),
    [
        (with_driver(LayoutEntry(gpus=("GPU-1",), instances={"3g.40gb": 2})), {}),
        (with_driver(LayoutEntry(gpus="all", instances={"3g.40gb": 2})), {"nvidia_functions": ""}),
        (with_driver(LayoutEntry(gpus="all", instances={"3g.40gb": 2})), {"container": "podman\n"}),
        (HostSpec(name="gpu1", capabilities={"mig": Mig(layout=(LayoutEntry(gpus="all", instances={"3g.40gb": 2}),
            ))}), {}),
    ],
    ids=["by-uuid", "no-gpu", "container", "no-driver-asked-for"],
)  # fmt: skip
def test_nothing_is_drawn_of_what_nobody_can_know_before_the_driver(spec: HostSpec, changed: dict[str, str]) -> None:
    assert before_the_driver(spec, **changed) == ()


def test_without_facts_nothing_is_drawn() -> None:
    spec = HostSpec(name="gpu1", capabilities={"mig": Mig(layout=(LayoutEntry(gpus="all", instances={"3g.40gb": 2}),))})
    assert partitions(spec, Facts({"mig": Output("")})) == ()
    assert partitions(HostSpec(name="gpu1"), Facts({})) == ()
