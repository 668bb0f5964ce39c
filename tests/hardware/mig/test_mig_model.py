"""The catalogue's GPUs as models for the search, and what instances need of them and of their driver."""

from __future__ import annotations

import pytest

from gpuprov.catalog.gpus import Gpu, find_gpu, list_gpus
from gpuprov.core.errors import GpuprovError
from gpuprov.hardware.mig import find, model_of
from gpuprov.hardware.mig.judge import instead, judge, of_driver, of_model, too_old
from gpuprov.host_code.mig.layout import Instance, normalize_layout
from tests.rows import run_each


def gpu(key: str) -> Gpu:
    found = find_gpu(key)
    assert found
    return found


def reason(key: str, counts: dict[str, int]) -> str:
    (entry,) = normalize_layout("enabled", [{"instances": counts}])
    return judge(model_of(gpu(key)), entry.instances).reason


def test_every_model_takes_as_many_of_each_profile_as_the_catalogue_says() -> None:
    classes = {one.mig.profile_class: one for one in list_gpus() if model_of(one).grid is not None}
    for one in classes.values():
        for profile in model_of(one).profiles:
            most = profile.max_count
            assert reason(one.key, {profile.name: most}) == "", (one.key, profile.name)
            assert (
                reason(one.key, {profile.name: most + 1})
                == f"{most + 1} x {profile.name}: the GPU takes at most {most}"
            )


def test_models_by_name_and_pci_id() -> None:
    assert find("h100-sxm5-80gb").gpu.key == find("0x233010DE").gpu.key == "H100-SXM5-80GB"


@run_each(
    ("text", "message", "fix"),
    [
        ("H100-SXM5-80G", 'no GPU is called "H100-SXM5-80G"', "did you mean H100-SXM5-80GB"),
        ("banana", 'no GPU is called "banana"', "GPUs with MIG: A100-SXM4-40GB, "),
        ("L4", "L4 has no MIG", "GPUs with MIG: A100-SXM4-40GB, "),
        ("A100-SXM-64GB", "the MIG profiles of A100-SXM-64GB are not known", "nvidia-smi mig -lgip -lgipp"),
    ],
)
def test_models_that_cannot_be_judged(text: str, message: str, fix: str) -> None:
    with pytest.raises(GpuprovError) as caught:
        find(text)
    assert caught.value.message == message
    assert fix in caught.value.fix


def test_how_sure_the_placements_are() -> None:
    assert find("A100-SXM4-80GB").caveat == ""
    assert find("H200-SXM").caveat == (
        "placements of H200-SXM are inferred: taken from GPUs of its kind, not seen on one"
    )
    assert find("RTX-PRO-5000").grid is None


def test_a_model_of_which_two_guides_tell_two_tables_takes_the_profiles_of_either() -> None:
    assert reason("RTX-PRO-5000", {"1g.12gb": 1, "1g.12gb-me": 3}) == "", "the guide of 580"
    assert reason("RTX-PRO-5000", {"1g.24gb": 2}) == reason("RTX-PRO-5000", {"2g.48gb": 1}) == "", "the newer guide"
    assert reason("RTX-PRO-5000", {"1g.24gb": 3}) == "3 x 1g.24gb: the GPU takes at most 2"
    assert reason("RTX-PRO-5000", {"1g.12gb-me": 4}) == "4 x 1g.12gb-me: the GPU takes at most 3"
    assert model_of(gpu("RTX-PRO-5000-72GB")).profiles == (), "the 72 GB card's are in no guide"


@run_each("key", ["RTX-PRO-4500"])
def test_where_placements_are_not_known_names_counts_and_slices_are(key: str) -> None:
    small, large = find(key).profiles[0].name, next(one.name for one in find(key).profiles if one.slices == 2)
    assert reason(key, {small: 2}) == ""
    assert reason(key, {small: 3}) == f"3 x {small}: the GPU takes at most 2"
    assert reason(key, {small: 1, large: 1}) == f"3 compute slices are needed ({large}: 2, {small}: 1); the GPU has 2"
    assert reason(key, {"1g.5gb": 1}).startswith(f"there is no profile 1g.5gb on this GPU; there are {small}, ")


def test_where_nothing_is_known_nothing_is_refused() -> None:
    assert reason("A100-SXM-64GB", {}) == reason("A100-SXM-64GB", {"1g.8gb": 7}) == ""
    assert model_of(gpu("A100-SXM-64GB")).profiles == ()
    assert model_of(gpu("L4")).profiles == ()


def test_what_fits_instead_in_words() -> None:
    model = model_of(gpu("A100-SXM4-80GB"))
    three = (Instance("3g.40gb"),) * 3
    assert instead(model, three, judge(model, three)) == (
        "fits: 2 x 3g.40gb | 3g.40gb, 2 x 2g.20gb; gpuprov mig layouts --gpu A100-SXM4-80GB"
    )
    placed = (Instance("3g.40gb", 0), Instance("4g.40gb"))
    assert instead(model, placed, judge(model, placed)).startswith("fits: these without their placements; ")
    odd = (Instance("4g.40gb", None, (3,)),)
    assert instead(model, odd, judge(model, odd)) == "gpuprov mig layouts --gpu A100-SXM4-80GB"


@run_each(
    ("key", "driver", "message", "fix"),
    [
        ("B300", "570", "MIG on B300 needs driver 580.82.07 or newer, and the driver is 570", "a branch from 580 on"),
        (
            "H200-SXM",
            "550.54.14",
            "MIG on H200-SXM needs driver 550.90.07 or newer, and the driver is 550.54.14",
            "550.90.07 or newer",
        ),
    ],
)
def test_drivers_that_have_no_mig_for_the_gpu(key: str, driver: str, message: str, fix: str) -> None:
    model = model_of(gpu(key))
    assert list(of_model(model, driver)) == [(message, f"nvidia_driver.version: {fix}")]
    assert list(of_model(model, "580.95.05")) == list(of_model(model, "")) == []


@run_each(
    ("profiles", "driver", "message", "fix"),
    [
        (["1g.10gb"], "515", "1g.10gb needs driver branch 525 or newer, and the driver is 515", "525"),
        (["3g.20gb", "4g.20gb"], "470", "3g beside 4g needs driver branch 510 or newer, and the driver is 470", "510"),
    ],
)
def test_drivers_that_are_too_old_for_instances(profiles: list[str], driver: str, message: str, fix: str) -> None:
    model, asked = model_of(gpu("A100-SXM4-40GB")), [Instance(name) for name in profiles]
    assert list(of_driver(model, asked, driver)) == [(message, f"nvidia_driver.version: a branch from {fix} on")]
    assert list(of_driver(model, asked, "535")) == list(of_driver(model, asked, "")) == []
    assert list(of_driver(model, [Instance("3g.20gb"), Instance("2g.10gb")], driver)) == []


@run_each(
    ("driver", "least", "old"),
    [
        ("550", "550.90.07", False),
        ("550.54.14", "550.90.07", True),
        ("550.90.07", "550.90.07", False),
        ("535", "550.90.07", True),
        ("570", "550.90.07", False),
        ("", "550.90.07", False),
        ("550", "", False),
        ("any", "550", False),
        ("525.60.13", "525", False),
        ("470.1", "525", True),
    ],
)
def test_a_branch_is_as_new_as_its_newest_version(driver: str, least: str, old: bool) -> None:
    assert too_old(driver, least) is old
