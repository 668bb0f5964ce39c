"""A host that does not agree with itself is told of, and no word of it is written as what is wanted."""

from __future__ import annotations

from gpuprov.export import probes
from gpuprov.export.defects import doubts
from gpuprov.facts.probes.base import Output
from tests.capabilities import contents_host
from tests.capabilities.asking import FABRIC_MANAGER, H100, VERSION, facts, good, packages
from tests.export.test_export import FULL, exported
from tests.rows import run_each


def text(name: str) -> str:
    """An output of the good host."""
    found = good()[name]
    return found if isinstance(found, str) else found.text


def told(**changed: Output | str) -> list[str]:
    """What is told of the good host, with some outputs changed."""
    known = {probe.name for probe in probes()}
    texts = {name: text for name, text in {**good(), **FULL, **changed}.items() if name in known}
    spec, _ = exported(**{**FULL, **changed})
    return doubts(facts(**texts), spec)


def test_of_a_good_host_nothing_is_told() -> None:
    assert told() == []


@run_each(
    ("changed", "check", "words"),
    [
        (
            {"driver_libraries": text("driver_libraries").replace("535.261.03", "550.54.15")},
            "nvidia_driver.user_space",
            "550.54.15",
        ),
        (
            {"fabric_packages": FABRIC_MANAGER.replace("535.261.03", "535.230.02")},
            "fabric_manager.",
            "535.230.02",
        ),
        ({"nvidia_functions": H100.replace("nvidia", "nouveau")}, "", "is bound to nouveau"),
        (
            {"packages": packages().replace("hi |nvidia-smi|", "iF |nvidia-smi|")},
            "nvidia_driver.packages",
            "nvidia-smi",
        ),
        (
            {
                "contents": contents_host.nothing()
                + contents_host.unit("nvidia-persistenced.service", "failed", "enabled")
            },
            "persistence.active",
            "failed",
        ),
        (
            {"mig": text("mig").replace('"pending": false', '"pending": true')},
            "GPU 0: MIG is disabled",
            "enabled is pending",
        ),
    ],
    ids=[
        "libraries of another version",
        "fabric manager of another",
        "nouveau",
        "half configured",
        "a dead unit",
        "MIG that waits",
    ],
)
def test_what_does_not_agree(changed: dict[str, Output | str], check: str, words: str) -> None:
    assert VERSION in str(good()["packages"])
    lines = told(**changed)
    assert any(line.startswith(check) and words in line for line in lines), lines
