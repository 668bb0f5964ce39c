"""GPUs by the names that people have for them: labels of Kubernetes, nvidia-smi, instance types; and cards of other
vendors."""

from __future__ import annotations

from gpuprov.catalog.gpus import explain_unknown, find_gpu, list_gpus
from gpuprov.catalog.instances import InstancesFile, find_instance
from gpuprov.catalog.reader import load
from tests.rows import run_each


@run_each(
    ("name", "key"),
    [
        ("NVIDIA-H100-80GB-HBM3", "H100-SXM5-80GB"),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb-SHARED", "A100-SXM4-80GB"),
        ("NVIDIA-A100-SXM4-40GB-SHARED", "A100-SXM4-40GB"),
        ("nvidia_a100-sxm4-80gb", "A100-SXM4-80GB"),
        ("Tesla-T4", "T4"),
        ("NVIDIA-H100-NVL", "H100-NVL"),
        ("H100 80GB HBM3", "H100-SXM5-80GB"),
        ("GeForce RTX 3090", "RTX3090"),
        ("p5.48xlarge", "H100-SXM5-80GB"),
        ("ml.p5.48xlarge", "H100-SXM5-80GB"),
        ("Standard_ND96isr_H100_v5", "H100-SXM5-80GB"),
        ("standard_nd96asr_v4", "A100-SXM4-40GB"),
        ("ecs.gn7i-c8g1.2xlarge", "A10"),
        ("a3-highgpu-8g", "H100-SXM5-80GB"),
        ("BM.GPU.H100.8", "H100-SXM5-80GB"),
        ("gpu_8x_h100_sxm5", "H100-SXM5-80GB"),
    ],
)
def test_names_as_people_have_them(name: str, key: str) -> None:
    found = find_gpu(name)
    assert found
    assert found.key == key


@run_each("name", ["H100", "A100", "NVIDIA-A100", "p5", "", "NVIDIA", "-SHARED"])
def test_a_name_of_several_or_none_is_no_gpu(name: str) -> None:
    assert find_gpu(name) is None


@run_each(
    ("name", "what", "fix"),
    [
        ("MI300X", "is AMD hardware", "gpuprov manages NVIDIA GPUs"),
        ("MTT S4000", "is Moore Threads hardware", "gpuprov manages NVIDIA GPUs"),
        ("cabc:0370", "is Cambricon hardware", "gpuprov manages NVIDIA GPUs"),
        ("1e52:401e", "is Tenstorrent hardware", "gpuprov manages NVIDIA GPUs"),
        ("g4ad.xlarge", "is AMD hardware", "gpuprov manages NVIDIA GPUs"),
        ("Standard_ND96isr_MI300X_v5", "is AMD hardware", "gpuprov manages NVIDIA GPUs"),
        ("trn1.32xlarge", "is Amazon hardware", "gpuprov manages NVIDIA GPUs"),
        ("Arc A770", "is Intel hardware", "gpuprov manages NVIDIA GPUs"),
        ("TPU v5e", "is Google hardware", "gpuprov manages NVIDIA GPUs"),
        ("8xH100", "is a count and a model", 'write model: "H100" and count: 8'),
        (
            "Jetson AGX Orin",
            "is a Jetson",
            "gpuprov manages cards and boards: a Jetson's driver comes with Jetson Linux",
        ),
        ("RTX 3090:4", "is a count and a model", 'write model: "RTX 3090" and count: 4'),
        ("1002:74a1", "is AMD hardware", "gpuprov manages NVIDIA GPUs"),
        ("Gaudi 3", "is Intel hardware", "gpuprov manages NVIDIA GPUs"),
        ("Ascend 910B", "is Huawei hardware", "gpuprov manages NVIDIA GPUs"),
        ("p5.47xlarge", "is not in the catalogue", '"p5.48xlarge"'),
        ("ND96asr_v4", "is not in the catalogue", 'did you mean "Standard_ND96asr_v4"?'),
        ("BM.GPU.H100.4", "is not in the catalogue", '"BM.GPU.H100.8"'),
        ("BM.GPU.MI300X.8", "is AMD hardware", "gpuprov manages NVIDIA GPUs"),
        ("gpu_8x_h100_sxm6", "is not in the catalogue", '"gpu_8x_h100_sxm5"'),
        ("dl1.24xlarge", "is Intel hardware", "gpuprov manages NVIDIA GPUs"),
        ("ml.trn1.32xlarge", "is Amazon hardware", "gpuprov manages NVIDIA GPUs"),
        ("gx3d-160x1792x8h100", "is an instance type that is not in the catalogue", "write the model of its GPUs"),
        ("DGX H100", "is not in the catalogue", '"H100-SXM5-80GB"'),
        ("Standard_NV36ads_A10_v5", "is an instance type that is not in the catalogue", "write the model of its GPUs"),
        ("Voodoo 5", "is not in the catalogue", "gpuprov catalog gpus lists all"),
    ],
)
def test_what_is_said_of_a_name_that_is_no_gpu_here(name: str, what: str, fix: str) -> None:
    assert find_gpu(name) is None
    told = explain_unknown(name)
    assert told[0] == what
    assert fix in told[1]


def test_the_table_is_consistent() -> None:
    rows = load("instances", InstancesFile).instances
    types = [name.casefold() for row in rows for name in row.types]
    assert len(types) == len(set(types)) > 150
    assert {row.model for row in rows} <= {gpu.key for gpu in list_gpus()}
    assert all(1 <= row.count <= 16 for row in rows)
    names = {name.casefold() for gpu in list_gpus() for name in (gpu.key, *(alias.name for alias in gpu.aliases))}
    assert not names & set(types)


def test_an_instance_type_says_count_and_fabric() -> None:
    found = find_instance("P5.48xlarge")
    assert found
    assert (found.model, found.count, found.fabric) == ("H100-SXM5-80GB", 8, "efa")


def test_labels_of_clouds_name_their_gpu() -> None:
    values = [value for row in load("instances", InstancesFile).labels for value in row.values]
    assert len(values) == len(set(values))
    for row in load("instances", InstancesFile).labels:
        assert {gpu.key for value in row.values if (gpu := find_gpu(value))} == {row.model}
    labelled = find_gpu("cloud.google.com/gke-accelerator=nvidia-rtx-pro-6000")
    assert labelled
    assert labelled.key == "RTX-PRO-6000-SE"
