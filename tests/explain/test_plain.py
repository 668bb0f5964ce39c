"""A message is the same one however it was copied: coloured, escaped, wrapped, from a web page, in another language."""

from __future__ import annotations

import html
import io
import json
import textwrap

import pytest

from gpuprov.catalog.context import fold
from gpuprov.catalog.symptoms import list_symptoms
from gpuprov.explain import explain, in_text
from gpuprov.explain.messages import symptoms_in
from gpuprov.explain.plain import read_plain
from tests.rows import run_each

LINES = {
    "libibverbs: Warning: couldn't stat '/sys/class/infiniband/mlx5_7'.": "rdma-no-devices",
    "nvcc fatal   : Unsupported gpu architecture 'compute_20'": "nvcc-architecture",
    "error checking MPS daemon health": "mps-kubernetes-health",
    "srun: error: task 0 launch failed: Plugin initialization failed": "slurm-step-setup",
    "Attempting to remove device 0000:01:00.0 with non-zero usage count!": "device-still-used",
}
FORMS = {
    "coloured": "\x1b[1;31m{}\x1b[0m",
    "coloured, the escapes written out": "^[[31m{}^[[0m",
    "coloured, in rsyslog": "#033[31m{}#033[0m",
    "coloured, the escapes lost": "[31m{}[0m",
    "with a mark of byte order": "\ufeff{}",
    "in an actor's log": "\x1b[36m(RayWorker pid=1, ip=10.0.0.1)\x1b[0m {}",
}


def keys(text: str) -> list[str]:
    return [one.symptom.key for one in symptoms_in(text)]


def first(text: str) -> set[str]:
    names = {" | ".join(symptom.signatures): symptom.key for symptom in list_symptoms()}
    return {names[explain(text)[0].name], names[in_text(text, "a log")[0].name]}


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("form", FORMS)
def test_a_coloured_line_is_known_pasted_and_in_a_log(line: str, form: str) -> None:
    assert first(FORMS[form].format(line)) == {keys(line)[0]}


@run_each("line", LINES)
def test_a_line_in_json_or_of_a_web_page_is_known(line: str) -> None:
    known = {keys(line)[0]}
    record = json.dumps({"log": f"\x1b[31m{line}\n", "stream": "stderr"})
    assert first(record) == known
    assert first(record.replace("'", "\\u0027")) == known
    assert first(repr(f"{line}\n".encode())) == known
    assert first(html.escape(line)) == known
    assert first(line.replace("'", "`")) == first(line.replace("'", "\u2032")) == known
    assert first(line.replace("-", "\u2013")) == first(line.replace(" ", "\u200b ", 2)) == known


def test_a_line_that_a_terminal_broke_is_known_by_the_whole() -> None:
    line = (
        "Nov 30 10:00:00 gpu01 app[7]: RuntimeError: CUDA error 217 at ggml-cuda.cu:6292: "
        "peer access is not supported between these two devices"
    )
    known = {explain(line)[0].name}
    for width in (60, 78):
        assert {explain("\n".join(textwrap.wrap(line, width)))[0].name} == known
        pieces = [line[at : at + width] for at in range(0, len(line), width)]
        assert {explain("\n".join(pieces))[0].name} == known


@run_each(
    ("line", "english"),
    [
        ("bash: nvidia-smi: Kommando nicht gefunden.", "bash: nvidia-smi: command not found"),
        ("bash: nvidia-smi：未找到命令", "bash: nvidia-smi: command not found"),
        (
            "modprobe: ERROR: could not insert 'nvidia': Kein passendes Gerät gefunden",
            "modprobe: ERROR: could not insert 'nvidia': No such device",
        ),
        (
            "modprobe: ERROR: could not insert 'nvidia': La clave fue rechazada por el servicio",
            "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
        ),
        (
            "nvcc: libcudart.so.12: Ne peut ouvrir le fichier d'objet partagé: Aucun fichier ou dossier de ce type",
            "nvcc: libcudart.so.12: cannot open shared object file: No such file or directory",
        ),
        ("E: Paket nvidia-driver-580 kann nicht gefunden werden.", "E: Unable to locate package nvidia-driver-580"),
    ],
)
def test_an_error_in_another_language_is_the_one_in_english(line: str, english: str) -> None:
    assert keys(line)[:1] == keys(english)[:1] != []
    assert [one.symptom.key for one in symptoms_in(io.BytesIO(f"start\n{line}\nend\n".encode()))] == keys(line)


def test_a_plain_text_is_left_as_it_is() -> None:
    """Every message of the catalogue among them, so that none is changed into something that no row has."""
    for text in ("a [5] b", "C:\\Files\\nvidia\\bin", "x & y; <z>", "array[3] m"):
        assert read_plain(text) == text
    assert [
        text
        for symptom in list_symptoms()
        for text in (*symptom.signatures, *symptom.fallbacks)
        if fold(read_plain(text)) != fold(text)
    ] == []
