"""How GPUs are cut up, exported as a spec and as a mig-parted file; both are true of the host that they were read from."""

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
from gpuprov.capabilities.mig.fragment import Mig
from gpuprov.cli import cli
from gpuprov.export import Exported, mig_config, spec_of
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.report import specs
from gpuprov.spec.build import convert
from tests.capabilities import mig_host as mh
from tests.capabilities.asking import H100, ask, facts, good

WHOLE, OTHER = ("3g.40gb", 0, (3,)), ("3g.40gb", 4, (3,))
CASES: list[tuple[str, tuple[dict[str, Any], ...], dict[str, Any]]] = [
    ("all alike", (mh.gpu(WHOLE, OTHER), mh.gpu(WHOLE, OTHER, index=1)), {"layout": [{"gpus": "all", "instances": {"3g.40gb": 2}}]}),
    ("each its own", (mh.gpu(WHOLE, OTHER), mh.gpu(index=1, on=False)),
     {"layout": [{"gpus": [0], "instances": {"3g.40gb": 2}}, {"gpus": [1], "mode": "disabled"}]}),
    ("cut up inside", (mh.gpu(("3g.40gb", 0, (1, 1, 1))),), {"layout": [{"gpus": "all", "instances": {"1c.3g.40gb": 3}}]}),
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


@pytest.mark.parametrize(("name", "gpus", "spec"), CASES, ids=[case[0] for case in CASES])
def test_a_spec_that_is_true_of_the_host(name: str, gpus: tuple[dict[str, Any], ...], spec: dict[str, Any]) -> None:
    block = mig.CAPABILITY.export(read(*gpus))
    assert isinstance(block, Mig), name
    plain = msgspec.json.decode(msgspec.json.encode(block))
    assert plain["layout"] == spec["layout"]
    again, findings = convert(plain, Mig)
    assert again == block, findings
    assert ask("mig.instances", block, mig=mh.state(*gpus)).status == "pass"


@pytest.mark.parametrize(("name", "gpus", "spec"), CASES, ids=[case[0] for case in CASES])
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
    with pytest.raises(ProbeFailed, match=r'GPU 0 .*"half" is no MIG profile'):
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
