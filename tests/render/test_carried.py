"""What a rendered role has beside its own files: modules that hosts share with gpuprov, and NVIDIA's NVML binding."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from gpuprov.capabilities.mig.desired import PROGRAM
from gpuprov.catalog.gpus import find_gpu, index_by_nvml_id
from gpuprov.core import assets
from gpuprov.core.errors import GpuprovError
from gpuprov.host_code.mig import fit as mig_fit
from gpuprov.host_code.mig import layout as mig_layout
from gpuprov.render import carried, render

BINDING = "roles/mig/files/pynvml.py"


def test_the_role_mig_has_its_whole_program() -> None:
    files = render([]).files
    assert files["roles/mig/files/fit.py"] == Path(str(mig_fit.__file__)).read_text()
    assert files["roles/mig/files/layout.py"] == Path(str(mig_layout.__file__)).read_text()
    assert {f"roles/mig/files/{name}" for name in PROGRAM} == {
        name for name in files if name.startswith("roles/mig/files/")
    }


def test_the_binding_keeps_its_licence() -> None:
    text = render([]).files[BINDING]
    head = text.partition("from ctypes import")[0]
    assert "NVIDIA Corporation.  All rights reserved" in head
    assert "Redistributions of source code must retain the above copyright notice" in head


def test_a_role_that_carries_nothing_has_its_own_files() -> None:
    assert carried.role_files("persistence").keys() == {
        str(path.relative_to(assets.root() / "roles/persistence"))
        for path in (assets.root() / "roles/persistence").rglob("*")
        if path.is_file()
    }


def test_an_installation_without_the_binding_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, real=importlib.util.find_spec: None if name == "pynvml" else real(name),
    )
    with pytest.raises(GpuprovError, match=r"the Python module pynvml is missing\nfix: reinstall gpuprov"):
        carried.carried("mig")


def test_models_by_the_ids_that_nvml_tells() -> None:
    models = index_by_nvml_id()
    assert models["0x233010DE"] == "H100-SXM5-80GB"
    assert all(find_gpu(key) for key in models.values())
