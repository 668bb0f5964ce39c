"""GPUs are found by key, name and PCI id."""

from __future__ import annotations

from gpuprov.catalog import Gpu, find_by_pci_id, find_gpu, find_nearest, list_profiles
from gpuprov.catalog.gpus import list_gpus
from gpuprov.catalog.mig import find_class
from tests.rows import run_each


def gpu(key: str) -> Gpu:
    found = find_gpu(key)
    assert found
    return found


@run_each(
    ("text", "key"),
    [
        ("H100-SXM5-80GB", "H100-SXM5-80GB"),
        ("h100-sxm5-80gb", "H100-SXM5-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("NVIDIA H100", "H100-SXM5-94GB"),
        ("NVIDIA  h200 ", "H200-SXM"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2"),
        ("NVIDIA GH200 480GB", "GH200-96GB"),
        ("A16", "A16/A2"),
        ("A2", "A16/A2"),
        ("A16/A2", "A16/A2"),
        ("10de:2330", "H100-SXM5-80GB"),
        ("10DE:2330", "H100-SXM5-80GB"),
        ("0x233010DE", "H100-SXM5-80GB"),
        ("0x233010DE:0x16C110DE", "H100-SXM5-80GB"),
        ("2330", "H100-SXM5-80GB"),
        ("NVIDIA A10G", "A10G"),
        ("A10G", "A10G"),
        ("Tesla P40", "P40"),
        ("P100", "P100-PCIE"),
        ("RTX A6000", "RTX-A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-ADA"),
        ("NVIDIA GB10", "GB10"),
        ("T4G", "T4G"),
        ("NVIDIA L20", "L20"),
        ("NVIDIA RTX PRO 4500 Blackwell Server Edition", "RTX-PRO-4500-SE"),
        ("10de:2c3a", "RTX-PRO-4500-SE"),
        ("NVIDIA RTX PRO 5000 72GB Blackwell", "RTX-PRO-5000-72GB"),
        ("0x2330", "H100-SXM5-80GB"),
        ("RTX 3090", "RTX3090"),
        ("nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3", "H100-SXM5-80GB"),
        ("RTX 3090 Ti", "RTX3090-TI"),
        ("gtx 1080ti", "GTX1080-TI"),
        ("H100 SXM5 80GB", "H100-SXM5-80GB"),
    ],
)
def test_find_gpu(text: str, key: str) -> None:
    assert gpu(text).key == key


@run_each("text", ["", "H100", "8086:2330", "1002:2330", "0x23301002", "ffff", "10de:"])
def test_find_gpu_finds_nothing(text: str) -> None:
    assert find_gpu(text) is None
    assert find_by_pci_id(text) is None


def test_models_with_one_id_are_told_apart_by_the_subsystem() -> None:
    for subsystem, key in (
        ("10de:227a", "-72GB"),
        ("0x227A10DE", "-72GB"),
        ("10de:204d", ""),
        ("10de:ffff", ""),
        ("", ""),
    ):
        found = find_by_pci_id("10de:2bb3", subsystem)
        assert found
        assert found.key == f"RTX-PRO-5000{key}"
    eight, six = find_by_pci_id("0x1E3010DE", "0x129E10DE"), find_by_pci_id("10de:1e30")
    assert eight
    assert six
    assert (eight.key, six.key) == ("QUADRO-RTX-8000", "QUADRO-RTX-6000")


def test_every_data_centre_and_professional_name_of_the_open_modules_is_known() -> None:
    """Names that the table of compatible GPUs of 595.45.04 has, without GeForce, laptops and embedded boards."""
    names = (
        "A10, A100 80GB PCIe, A100-PCIE-40GB, A100-PG509-200, A100-SXM-64GB, A100-SXM4-40GB, A100-SXM4-80GB, A10G, "
        "A10M, A16, A2, "
        "A30, A40, A800 40GB Active, A800 80GB PCIe, A800 80GB PCIe LC, A800-SXM4-40GB, A800-SXM4-80GB, AX800, "
        "B200, B300 SXM6 AC, "
        "GB10, GB200, GB300, GH200 120GB, GH200 144G HBM3e, GH200 480GB, H100, H100 80GB HBM3, H100 NVL, H100 PCIe, "
        "H20, H20 NVL16, "
        "H20-3e, H200, H200 NVL, H800, H800 NVL, H800 PCIe, L2, L20, L4, L40, L40S, PG506-232, PG509-210, RTX 2000 "
        "Ada Generation, RTX 2000E Ada Generation, RTX 4000 Ada Generation, RTX 4000 SFF Ada Generation, RTX 4500 "
        "Ada Generation, RTX 5000 Ada Generation, RTX 5880 Ada Generation, RTX 6000 Ada Generation, RTX 6000D, RTX "
        "A1000, RTX A2000, RTX A2000 12GB, RTX A400, RTX A4000, RTX A4000H, RTX A4500, RTX A5000, RTX A5500, RTX "
        "A6000, RTX PRO 2000 Blackwell, "
        "RTX PRO 4000 Blackwell, RTX PRO 4000 Blackwell SFF Edition, RTX PRO 4500 Blackwell, RTX PRO 5000 72GB "
        "Blackwell, "
        "RTX PRO 5000 Blackwell, RTX PRO 6000 Blackwell Max-Q Workstation Edition, RTX PRO 6000 Blackwell Server "
        "Edition, RTX PRO 6000 Blackwell Workstation Edition, T1000, T1000 8GB, T400, T400 4GB, T400E, T600"
    )
    wanted = [f"NVIDIA {name}" for name in names.split(", ")]
    wanted += ["Quadro RTX 4000", "Quadro RTX 5000", "Quadro RTX 6000", "Quadro RTX 8000", "Tesla T4"]
    assert [name for name in wanted if not find_gpu(name)] == []


def test_nearest_gpu() -> None:
    assert find_nearest("H100")[0] == "H100-SXM5-80GB"
    assert find_nearest("H100-SXM5-80")[0] == "H100-SXM5-80GB"
    assert find_nearest("rtx6000")[0] == "RTX-6000-ADA"
    assert find_nearest("rtxpro6000")[0].startswith("RTX-PRO-6000")
    assert find_nearest("H200-SXM5-141GB")[0] == "H200-SXM"
    assert set(find_nearest("A100")) == {gpu.key for gpu in list_gpus() if gpu.key.startswith("A100-")}, (
        "not one card alone"
    )
    assert find_nearest("H100-SXM5-80G") == ["H100-SXM5-80GB"]
    assert "GH200-96GB" not in find_nearest("H100-XXL")
    assert find_nearest("B20O")[0] == "B200"
    assert find_nearest("qqqqqqq") == []
    assert find_nearest("RTX490") == ["RTX4090"]
    assert find_nearest("H10O-PCIe") == ["H100-PCIE"]
    assert {key.partition("-")[0] for key in find_nearest("A100Z")} == {"A100", "A100X"}


@run_each(
    "name",
    [
        "NVIDIA GeForce GT 1030",
        "GT1030",
        "RTX6080",
        "10de:2328",
        "0x2328",
        "NVIDIA IGX Orin",
        "NVIDIA GeForce RTX 2050",
    ],
)
def test_a_gpu_that_is_not_here_is_not_another_one(name: str) -> None:
    """A whole name or id of another GPU is not a typing error: the fix would be of another architecture."""
    assert find_nearest(name) == []


@run_each("text", ["NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 5090 D", "10de:2b85", "10de:2b87", "rtx5090"])
def test_geforce_of_the_fifties(text: str) -> None:
    found = gpu(text)
    assert found.arch == "Blackwell"
    assert found.kernel_modules.flavour == "open-required"
    assert gpu("10de:2f04").key == "RTX5070"


def test_profiles_for() -> None:
    names = [profile.name for profile in list_profiles(gpu("A100-SXM4-40GB"))]
    assert names == ["1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]
    assert list_profiles(gpu("L40S")) == ()
    assert list_profiles(gpu("A100-SXM-64GB")) == ()
    group = find_class(gpu("H100-SXM5-80GB"))
    assert group
    half = group.find("MIG 3g.40gb")
    assert half
    assert (half.starts, half.size, half.max_count) == ((0, 4), 4, 2)
    assert group.placement_confidence() == "confirmed"
