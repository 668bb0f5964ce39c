"""What a contributor reads who has mistyped something in a file of the catalogue."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuprov.catalog import reader
from gpuprov.catalog.distributions import expand_groups
from gpuprov.catalog.gpus import GpusFile
from gpuprov.catalog.symptoms import SymptomsFile
from gpuprov.core.errors import GpuprovError
from tests.conftest import load_catalogue

PLACE = "gpuprov/catalog/data/x.yaml"
ARCHITECTURES = "allowed: Ada, Ampere, Blackwell, Hopper, Maxwell, Pascal, Turing, Volta"


@cache
def read(name: str) -> Any:
    return yaml.load((reader._DATA / f"{name}.yaml").read_bytes(), Loader=yaml.CSafeLoader)


def refusal(name: str, kind: Any, spoil: Callable[[Any], object]) -> str:
    """The message about a file of the catalogue in which something was spoilt."""
    changed = copy.deepcopy(read(name))
    spoil(changed)
    with pytest.raises(GpuprovError) as caught:
        reader.convert_to(changed, kind, PLACE)
    assert caught.value.fix == "correct the file"
    return str(caught.value.message)


@pytest.mark.install
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: t["gpus"][3].update(arch="Rubin"), f'gpus[M40].arch is "Rubin"; {ARCHITECTURES}'),
        (lambda t: t["gpus"][3].update(archs="Ada"), 'unknown key "archs" in gpus[M40]; did you mean "arch"?'),
        (lambda t: t["gpus"][3].update(colour="green"),
         'unknown key "colour" in gpus[M40]; allowed: aliases, arch, chip, '),
        (lambda t: t["gpus"][3].update(key=5), 'gpus[Tesla M40].key is 5; allowed: text; quote it: "5"'),
        (lambda t: t["gpus"][3].update(chip=["GM200"]), "gpus[M40].chip is a list; allowed: text"),
        (lambda t: t["gpus"][3].pop("arch"), f"gpus[M40].arch is missing; {ARCHITECTURES}"),
        (lambda t: t["gpus"][3]["mig"].update(capable="no"), 'gpus[M40].mig.capable is "no"; allowed: true, false'),
        (lambda t: t["gpus"][3]["pci_ids"][0].update(note=1.5),
         "gpus[M40].pci_ids[10de:17fd].note is 1.5; allowed: text"),
        (lambda t: t["gpus"].insert(9, t["gpus"][3]),
         "gpus[M40] has the key of an earlier row; allowed: one row for each key"),
        (lambda t: t.pop("sources"), "sources is missing"),
        (lambda t: t.update(gpus=3), "gpus is 3; allowed: a list"),
    ],
)  # fmt: skip
def test_the_row_the_value_and_what_is_allowed(spoil: Callable[[Any], object], message: str) -> None:
    told = refusal("gpus", GpusFile, spoil)
    assert told.startswith(f"{PLACE}: {message}")
    assert "\n" not in told


def test_every_mistake_counts_and_five_are_listed() -> None:
    lines = refusal("gpus", GpusFile, lambda t: [row.update(arch="X") for row in t["gpus"]]).splitlines()
    assert [line.startswith(f"{PLACE}: gpus[") for line in lines] == [True] * 5 + [False]
    assert lines[-1] == f"and {len(read('gpus')['gpus']) - 5} more"


def test_a_field_under_another_name() -> None:
    lines = refusal("symptoms", SymptomsFile, lambda t: t["symptoms"][1].update(cure=t["symptoms"][1].pop("fix")))
    key = read("symptoms")["symptoms"][1]["key"]
    assert [line.partition("; ")[0] for line in lines.splitlines()] == [
        f'{PLACE}: unknown key "cure" in symptoms[{key}]',
        f"{PLACE}: symptoms[{key}].fix is missing",
    ]


def spoilt(monkeypatch: pytest.MonkeyPatch, folder: Path, old: str, new: str) -> str:
    """What loading `gpus.yaml` says after a change in the text of the file."""
    monkeypatch.setattr(reader, "_DATA", folder / "gpuprov/catalog/data")
    monkeypatch.setattr(reader, "_loaded", {})
    text = (Path(reader.__file__).parent / "data/gpus.yaml").read_text(encoding="utf-8")
    assert text.count(old) == 1
    reader._DATA.mkdir(parents=True)
    (reader._DATA / "gpus.yaml").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(GpuprovError) as caught:
        reader.load("gpus", GpusFile)
    return str(caught.value)


@pytest.mark.install
def test_line_and_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = spoilt(monkeypatch, tmp_path, "key: M40\n", "key: M40\n    archh: x\n")
    line = next(n for n, row in enumerate((reader._DATA / "gpus.yaml").read_text().splitlines(), 1) if "archh" in row)
    assert told == (
        f'gpuprov/catalog/data/gpus.yaml:{line}: unknown key "archh" in gpus[M40]; did you mean "arch"?\n'
        "fix: a file of the installation is damaged: reinstall gpuprov"
    )
    (tmp_path / "pyproject.toml").touch()
    with pytest.raises(GpuprovError) as caught:
        reader.load("gpus", GpusFile)
    assert caught.value.fix == "correct the file"


def test_a_key_twice_in_one_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = spoilt(monkeypatch, tmp_path, "key: M40\n", "key: M40\n    key: M41\n")
    assert '"key" is written twice; the first is in line' in told
    assert told.startswith("gpuprov/catalog/data/gpus.yaml:")


def test_a_group_that_no_distribution_is_in() -> None:
    with pytest.raises(GpuprovError, match=r'x\.yaml names "debain"; allowed: alinux3, amzn2023, apt, azl3, debian, '):
        expand_groups(("debain", "ubuntu"), "x.yaml")


def test_a_run_of_tests_begins_with_every_file(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: dict[str, object] = {}
    monkeypatch.setattr(reader, "_loaded", loaded)
    load_catalogue()
    assert set(loaded) == {file.stem for file in reader._DATA.glob("*.yaml")}


def test_a_file_that_is_no_yaml() -> None:
    with pytest.raises(GpuprovError, match=r"x\.yaml: ") as caught:
        reader.read_yaml("a: [", "x.yaml")
    assert caught.value.fix == "correct the file"
