"""Each word that gpuprov uses is explained; a word it does not know gets its neighbours."""

from __future__ import annotations

import pytest

from gpuprov.capabilities import BY_NAME
from gpuprov.catalog.symptoms import symptoms
from gpuprov.errors import EXIT_CODES, GpuprovError
from gpuprov.explain import Explanation, explain, field_names


def only(kind: str, words: str) -> Explanation:
    (found,) = [answer for answer in explain(words) if answer.kind == kind]
    return found


@pytest.mark.parametrize("name", list(BY_NAME))
def test_capabilities(name: str) -> None:
    answer = only("capability", name)
    lines = dict(answer.lines)
    assert lines["does"] == BY_NAME[name].summary
    for field in field_names(BY_NAME[name]):
        assert lines[f"field {field}"], "a field without prose"
    for check in BY_NAME[name].checks:
        assert lines[f"check {check.id}"] == check.description


@pytest.mark.parametrize("name", list(BY_NAME))
def test_fields(name: str) -> None:
    for field in field_names(BY_NAME[name]):
        answer = only("field", f"{name}.{field}")
        lines = dict(answer.lines)
        assert lines["does"], field
        assert lines["default"], field
        assert lines["proved by"], f"{field}: neither proved nor excused"
        assert answer in explain(field), f"{field} is found by its name alone too"


@pytest.mark.parametrize("name", list(BY_NAME))
def test_checks(name: str) -> None:
    for check in BY_NAME[name].checks:
        lines = dict(only("check", check.id).lines)
        assert lines["asks"].endswith((".", ".)")), check.id
        assert lines["when"] in ("preflight", "now", "next-boot"), check.id
        assert lines["see it"], f"{check.id}: no command to see it oneself"


@pytest.mark.parametrize("code", list(EXIT_CODES))
@pytest.mark.parametrize("words", ["{}", "exit {}", "exit code {}", "Exit {}"])
def test_exit_codes(code: int, words: str) -> None:
    assert dict(only("exit code", words.format(code)).lines)["means"] == EXIT_CODES[code]


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("802", "NVSwitch fabric"),
        ("Driver/library version mismatch", "User space was upgraded"),
        (
            "Failed to initialize NVML: Driver/library version mismatch NVML library version: 535.261",
            "User space was upgraded",
        ),
        ("unsatisfied condition: cuda", "newer CUDA"),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus.", ""),
    ],
)
def test_symptoms(words: str, cause: str) -> None:
    found = [answer for answer in explain(words) if answer.kind == "symptom"]
    assert found
    lines = dict(found[0].lines)
    assert cause in lines["cause"]
    assert lines["check"]
    assert lines["cure"]


def test_every_symptom_is_found_by_its_own_words() -> None:
    for symptom in symptoms():
        for signature in symptom.signatures:
            assert " | ".join(symptom.signatures) in [answer.name for answer in explain(signature)], signature


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("kernl", "did you mean kernel, rdma.kernel, kernel.sysctl"),
        ("nvidia_driver.versio", "did you mean nvidia_driver.version,"),
        ("persistance", "did you mean persistence"),
        ("", "capabilities: host, kernel, nouveau, rdma, nvidia_driver, persistence"),
        ("qqqq", "capabilities: host, kernel"),
    ],
)
def test_unknown_words(words: str, hint: str) -> None:
    with pytest.raises(GpuprovError) as caught:
        explain(words)
    assert caught.value.message == f'nothing is known of "{words}"'
    assert caught.value.hint.startswith(hint)
    named = caught.value.hint.removeprefix("did you mean ").removesuffix("?").split(", ")
    assert len(named) == len(set(named))
    assert caught.value.exit_code == 2
