"""What a contributor reads who has mistyped something in a file of the catalogue."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from gpuprov.catalog import reader
from gpuprov.catalog.gpus import GpusFile
from gpuprov.catalog.symptoms import SymptomsFile
from gpuprov.errors import GpuprovError

HINT = "correct the file; in an installation whose files nobody has changed, reinstall gpuprov"
GPUS: dict[str, Any] = yaml.safe_load((reader._DATA / "gpus.yaml").read_text(encoding="utf-8"))
SYMPTOMS: dict[str, Any] = yaml.safe_load((reader._DATA / "symptoms.yaml").read_text(encoding="utf-8"))
ARCHITECTURES = "allowed: Ada, Ampere, Blackwell, Hopper, Maxwell, Pascal, Turing, Volta"


def told(plain: dict[str, Any], kind: Any, spoil: Callable[[dict[str, Any]], object]) -> str:
    changed = copy.deepcopy(plain)
    spoil(changed)
    with pytest.raises(GpuprovError) as caught:
        reader.typed(changed, kind, "gpuprov/catalog/data/x.yaml")
    assert caught.value.hint == HINT
    return str(caught.value.message)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: t["gpus"][3].update(arch="Rubin"), f'the row with key "M40": gpus[3].arch is "Rubin" ({ARCHITECTURES})'),
        (lambda t: t["gpus"][3].update(archs="Ada"), 'the row with key "M40": unknown key "archs" in gpus[3] (did you mean "arch"?)'),
        (lambda t: t["gpus"][3].update(key=5), 'the row with name "Tesla M40": gpus[3].key is 5 (allowed: text; quote it: "5")'),
        (lambda t: t["gpus"][3].pop("arch"), f'the row with key "M40": gpus[3].arch is missing ({ARCHITECTURES})'),
        (lambda t: t.pop("sources"), "sources is missing"),
        (lambda t: t.update(gpus=3), "gpus is 3 (allowed: a list)"),
    ],
)  # fmt: skip
def test_the_row_the_value_and_what_is_allowed(spoil: Callable[[dict[str, Any]], object], message: str) -> None:
    assert told(GPUS, GpusFile, spoil).startswith(f"gpuprov/catalog/data/x.yaml: {message}")


def test_every_mistake_counts_and_five_are_told() -> None:
    message = told(GPUS, GpusFile, lambda t: [row.update(arch="X") for row in t["gpus"]])
    assert message.count("the row with key") == 5
    assert message.endswith(f"; and {len(GPUS['gpus']) - 5} more")


def test_what_a_hint_is_called_in_this_file() -> None:
    message = told(SYMPTOMS, SymptomsFile, lambda t: t["symptoms"][1].update(fix=t["symptoms"][1].pop("cure")))
    assert 'unknown key "fix" in symptoms[1]' in message
    assert "symptoms[1].cure is missing" in message


def test_a_file_that_is_no_yaml() -> None:
    with pytest.raises(GpuprovError, match=r"x\.yaml: ") as caught:
        reader.read_yaml("a: [", "x.yaml")
    assert caught.value.hint == HINT
