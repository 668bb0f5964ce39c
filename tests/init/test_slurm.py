"""gres.conf and slurm.conf of others -> groups of hosts, and what is not known of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import Unreadable
from gpuprov.init import judged, slurm
from gpuprov.init.slurm import expanded
from tests.rows import run_each

SAMPLES = Path(__file__).parent / "samples"


def files(*names: str) -> list[Path]:
    return [SAMPLES / f"{name}.conf" for name in names]


def test_a_cluster_with_several_kinds_of_nodes() -> None:
    draft = slurm.draft(files("ocotillo.gres", "ocotillo.slurm"))
    assert {group.name: list(group.shown()) for group in draft.groups} == {
        "m2070q": ["ibnodo1", "ibnodo2"],
        "gtx1060_gtx970": ["visualizacion1"],
        "rtx2080": ["visualizacion2"],
        "v100": ["ibtesla"],
    }
    assert not any("gpu" in group.spec for group in draft.groups), "no file says which V100 it is"
    (v100,) = (group.notes for group in draft.groups if group.name == "v100")
    assert '"v100" may be V100-SXM2, V100-SXM3, V100-PCIE' in v100[0]
    assert "gpu: {model: V100-SXM2, count: 4}" in v100[0]
    assert draft.notes == ["24 nodes without GPUs"]
    text, fleet = judged(draft)
    assert len(fleet.pairs) == 5
    assert "# * 24 nodes without GPUs\n" in text


def test_the_name_that_autodetect_makes_is_a_model() -> None:
    (group,) = slurm.draft(files("charmed.slurm")).groups
    assert group.spec == {"gpu": {"model": "A100-PCIE-80GB", "count": 1}}
    assert group.name == "a100_pcie_80gb"
    both = slurm.draft(files("charmed.slurm", "charmed.gres"))
    assert [one.spec for one in both.groups] == [group.spec]
    assert both.notes == [], "both files say the same"


def test_count_and_files_are_one_number() -> None:
    (group,) = slurm.draft(files("count.gres")).groups
    assert group.shown() == {"vmssn7x5l000001": {}}
    assert "gpu: nothing says which GPUs these hosts have" in group.notes[0]
    assert "count: 8" in group.notes[0]


@run_each("name", ["everywhere.gres", "autodetect.gres"])
def test_a_file_for_every_node_needs_the_one_that_names_them(name: str, tmp_path: Path) -> None:
    with pytest.raises(GpuprovError) as refused:
        slurm.draft(files(name))
    assert "give slurm.conf too" in refused.value.fix
    nodes = tmp_path / "slurm.conf"
    nodes.write_text("NodeName=DEFAULT Gres=gpu:tesla_t4:8(S:0-1),mps:800\nNodeName=gpu[08-11],extra State=UNKNOWN\n")
    (group,) = slurm.draft([*files(name), nodes]).groups
    assert list(group.shown()) == ["gpu[08:11]", "extra"]
    assert group.spec == {"gpu": {"model": "T4", "count": 8}}


def test_a_board_of_nvswitches_comes_with_fabric_manager(tmp_path: Path) -> None:
    file = tmp_path / "slurm.conf"
    file.write_text(
        "NodeName=big[001-300] \\\n   Gres=gpu:nvidia_h100_80gb_hbm3:8\n"
        "NodeName=few Gres=gpu:nvidia_h100_80gb_hbm3:4 NodeAddr=10.0.0.9  # half a board\n"
    )
    draft = slurm.draft([file])
    assert draft.groups[0].spec == {"gpu": {"model": "H100-SXM5-80GB", "count": 8}, "fabric_manager": {}}
    assert draft.groups[1].spec == {"gpu": {"model": "H100-SXM5-80GB", "count": 4}}
    assert draft.groups[1].shown() == {"few": {"ansible_host": "10.0.0.9"}}
    assert draft.groups[1].name == "h100_sxm5_80gb_2"
    text, fleet = judged(draft)
    assert len(fleet.pairs) == 301
    assert "        big[001:300]: {}\n" in text


def test_what_slurm_counts_may_be_instances(tmp_path: Path) -> None:
    file = tmp_path / "gres.conf"
    file.write_text(
        "NodeName=mig1 Name=gpu Type=a100_3g.20gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap21\n"
    )
    (group,) = slurm.draft([file]).groups
    assert "gpu" not in group.spec
    assert any("count instances" in note for note in group.notes)


def test_two_files_that_do_not_agree(tmp_path: Path) -> None:
    gres, conf = tmp_path / "gres.conf", tmp_path / "slurm.conf"
    gres.write_text("NodeName=a[1-3] Name=gpu Type=l40s File=/dev/nvidia[0-7]\nInclude more.conf\n")
    conf.write_text("NodeName=a[1-3] Gres=gpu:l40s:4\n")
    draft = slurm.draft([gres, conf])
    assert draft.groups[0].spec["gpu"]["count"] == 4
    assert "a[1:3]: gres.conf has 8 GPUs, slurm.conf 4; slurm.conf's number is taken" in draft.notes
    assert "gres.conf:2: Include more.conf; give that file too, with --from-slurm" in draft.notes


def test_names_are_data(tmp_path: Path) -> None:
    file = tmp_path / "slurm.conf"
    file.write_text("NodeName={{lookup('pipe','id')}},good Gres=gpu:l40s:1\n")
    draft = slurm.draft([file])
    assert [list(group.hosts) for group in draft.groups] == [["good"]]
    assert any("is not a name of a host" in note for note in draft.notes)
    assert len(judged(draft)[1].pairs) == 1


@run_each(
    ("text", "names"),
    [
        ("gpu[01-03,7]", ["gpu01", "gpu02", "gpu03", "gpu7"]),
        ("r[1-2]n[1-2],login", ["r1n1", "r1n2", "r2n1", "r2n2", "login"]),
        ("/dev/nvidia[0-1]", ["/dev/nvidia0", "/dev/nvidia1"]),
        ("a,a", ["a"]),
    ],
)
def test_lists_of_hosts(text: str, names: list[str]) -> None:
    assert expanded(text) == names


@run_each("text", ["a[1-", "a[1-999999]", "a[3-1]", "a[x]", "a[0-999][0-999]", "a[1][1][1][1]"])
def test_lists_that_are_none_or_too_long(text: str) -> None:
    with pytest.raises(Unreadable):
        expanded(text)


def test_a_bare_family_is_every_model_of_it_though_one_has_that_very_name(tmp_path: Path) -> None:
    """The driver calls one H100 of several just so; Slurm's administrators call any of them h100."""
    file = tmp_path / "slurm.conf"
    file.write_text("NodeName=a Gres=gpu:h100:8\nNodeName=b Gres=gpu:nvidia_h100_nvl:4\n")
    first, second = slurm.draft([file]).groups
    assert "gpu" not in first.spec
    assert "H100-SXM5-80GB" in first.notes[0]
    assert second.spec == {"gpu": {"model": "H100-NVL", "count": 4}}
