"""Every GPU of the PCI ID database since Kepler has a generation, kernel modules and a last driver branch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpuprov.catalog import choose_kernel_modules, drivers, find_by_pci_id, find_gpu
from gpuprov.catalog.chips import ChipsFile, cards, chip_of, described, find_old_card, generation_of
from gpuprov.catalog.drivers.sets import build_kernel_module_table
from gpuprov.catalog.gpus import explain_unknown, list_gpus
from gpuprov.catalog.instances import find_nearest_types
from gpuprov.catalog.reader import load
from gpuprov.catalog.topology import count_nvlinks
from gpuprov.rules import resolve
from tests.rows import run_each

LIST = Path(__file__).with_name("pci_ids.txt")


def database() -> Iterator[tuple[str, str]]:
    """Yield each id with its chip."""
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            chip, _, ids = line.partition(": ")
            yield from ((f"10de:{device}", chip) for device in ids.split())


IDS = dict(database())


def test_the_list_is_whole() -> None:
    assert len(IDS) == 829
    assert {chip[:2] for chip in IDS.values()} == {"GK", "GM", "GP", "GV", "TU", "GA", "AD", "GH", "GB", "GR"}


def test_every_gpu_of_the_database_has_the_chip_that_the_database_names() -> None:
    found = {identifier: chip_of(identifier) for identifier in IDS}
    assert {identifier for identifier, chip in found.items() if chip is None} == set()
    assert {identifier: chip.chip for identifier, chip in found.items() if chip} == IDS


def test_every_gpu_of_the_database_has_kernel_modules_and_a_last_branch() -> None:
    """What the resolver decides on hosts, from the id alone, is what the generation says."""
    table = build_kernel_module_table()
    for identifier in IDS:
        generation = generation_of(identifier)
        assert generation, identifier
        last = int(generation.last_branch) if generation.last_branch else resolve.NO_LIMIT
        assert resolve.last_branch([identifier]) == last, identifier
        need = table.get(identifier, generation.flavour)
        flavour = {"open-required": "open", "proprietary-required": "proprietary"}.get(need, "")
        for branch in ("470", "550", "580", "610"):
            chosen, none = resolve.flavour("auto", [identifier], table, branch), flavour == "open" and int(branch) < 515
            assert flavour in ("", chosen["flavour"]), (identifier, branch)
            assert bool(chosen["problem"]) == (int(branch) > last or none), (identifier, branch)
        other = {"open": "proprietary", "proprietary": "open"}.get(flavour)
        assert not other or resolve.flavour(other, [identifier], table, "580")["problem"], identifier


def test_models_of_the_catalogue_agree_with_their_chips() -> None:
    for gpu in list_gpus():
        for pci in gpu.pci_ids:
            chip, generation = chip_of(pci.id), generation_of(pci.id)
            assert chip, (
                f"{gpu.key}: {pci.id} is within no row of chips.yaml: widen the chip's first or last, or add one"
            )
            assert generation
            stricter = gpu.form_factor == "superchip" and gpu.kernel_modules.flavour == "open-required"
            assert chip.arch == gpu.arch, f"{gpu.key}: {pci.id} is of a {chip.arch} chip in chips.yaml"
            assert generation.flavour == gpu.kernel_modules.flavour or stricter, pci.id
            assert (gpu.last_branch.branch if gpu.last_branch else "") == generation.last_branch, pci.id
            assert chip.compute_capability in ("", gpu.compute_capability), pci.id


def test_ranges_do_not_overlap_and_generations_are_complete() -> None:
    data = load("chips", ChipsFile)
    ends = [(int(chip.first, 16), int(chip.last, 16)) for chip in data.chips]
    assert all(first <= last for first, last in ends)
    assert all(end < start for (_, end), (start, _) in zip(sorted(ends), sorted(ends)[1:], strict=False))
    assert {chip.arch for chip in data.chips} == {one.arch for one in data.generations}


@run_each("identifier", ["10de:0000", "10de:1040", "10de:ffff", "1002:2484", "10de:", "", "2484", "10de:24840"])
def test_what_is_older_or_no_gpu_of_nvidia_has_no_chip(identifier: str) -> None:
    assert chip_of(identifier) is None
    assert described(identifier) == identifier


def test_vera_rubin_needs_open_modules_of_a_branch_that_knows_it() -> None:
    for identifier in ("10de:3041", "10de:307f"):
        generation = generation_of(identifier)
        assert generation
        assert (generation.arch, generation.flavour, generation.first_branch) == ("Rubin", "open-required", "615")
        assert find_by_pci_id(identifier) is None
        assert explain_unknown(identifier) == (
            f"is {identifier} (GR100, Rubin): no model of the catalogue",
            "leave gpu out; its driver: open kernel modules only",
        )
    assert "branch 470 is its last" in explain_unknown("10de:102d")[1]


def test_every_card_is_a_gpu_without_mig() -> None:
    rows = load("chips", ChipsFile).cards
    assert {card.key for card in cards()} == {row.key for row in rows if not find_old_card(row.key)}
    for gpu in cards():
        assert find_gpu(gpu.name) is gpu
        assert find_gpu(gpu.name.removeprefix("NVIDIA ")) is gpu
        assert all(find_by_pci_id(pci.id) is gpu for pci in gpu.pci_ids)
        assert not gpu.mig.capable
        assert gpu.compute_capability


def test_a_geforce_runs_with_what_its_generation_runs_with() -> None:
    old, turing, new = (find_gpu(name) for name in ("GTX1080", "GeForce RTX 2080 Ti", "NVIDIA GeForce RTX 5080"))
    assert old
    assert turing
    assert new
    assert (
        drivers.explain_refusal(old, "595", "proprietary")
        == "GTX1080 (Pascal) is not supported by branch 595: 580 is the last; use 580"
    )
    assert choose_kernel_modules(turing, "580") == "open"
    assert choose_kernel_modules(new, "570") == "open"
    assert "works with open kernel modules only" in (drivers.explain_refusal(new, "580", "proprietary") or "")


def test_an_a800_has_eight_of_the_twelve_links_of_an_a100() -> None:
    assert [count_nvlinks(find_gpu(key)) for key in ("A800-SXM4-80GB", "A800-SXM4-40GB", "A100-SXM4-80GB")] == [
        8,
        8,
        12,
    ]
    assert count_nvlinks(find_gpu("RTX3080")) is None


def test_a_card_that_no_driver_knows_any_more_is_named_with_its_last_branch() -> None:
    for name in ("K80", "Tesla K80", "tesla-k80", "K40m", "NVIDIA Tesla K20X"):
        message, fix = explain_unknown(name)
        assert "(Kepler), and branch 470 is its last" in message
        assert "leave gpu and nvidia_driver out" in fix
    assert find_old_card("P4000") is None


def test_names_of_machines_and_cards_that_people_type() -> None:
    for name, key in {"Quadro P4000": "QUADRO-P4000", "DGX Spark": "GB10", "NVIDIA DGX Spark": "GB10"}.items():
        gpu = find_gpu(name)
        assert gpu, name
        assert gpu.key == key


def test_the_value_of_a_label_is_what_is_looked_for() -> None:
    assert '"H100-PCIE"' in explain_unknown("nvidia.com/gpu.product=H100")[1]


def test_a_family_of_ecs_is_not_offered_for_another() -> None:
    assert find_nearest_types("ecs.gn8ia.2xlarge") == []
    assert find_nearest_types("ecs.gn8is.3xlarge") != []
