"""Files of this machine that a spec names: what is not a file is refused, and nobody waits for it or reads it without
end."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuprov.bundle import specs
from gpuprov.capabilities.hpc.rules import NAME
from gpuprov.core.errors import GpuprovError
from gpuprov.fleet import specs as fleet
from gpuprov.spec.model import RawHost


def driver(**more: Any) -> dict[str, Any]:
    return {"gpu": {"model": "H100-SXM5-80GB", "count": 8}, "nvidia_driver": {"version": "580", **more}}


def key(name: str) -> dict[str, Any]:
    return driver(repository={"url": "https://mirror.example/debian12", "key_file": name})


def signed(name: str, what: str) -> dict[str, Any]:
    files = {"key_file": "/dev/null", "certificate_file": "/dev/null", what: name}
    return driver(source="nvidia", signing=files)


SPECS: dict[str, Callable[[str], dict[str, Any]]] = {
    "repository.key_file": key,
    "signing.key_file": lambda name: signed(name, "key_file"),
    "signing.certificate_file": lambda name: signed(name, "certificate_file"),
    "nccl.topo_source": lambda name: {"rdma": {"nccl": {"topo_file": "/etc/t.xml", "topo_source": name}}},
    "vgpu_guest.token_file": lambda name: {"vgpu_guest": {"token_file": name}},
    "mig.config_file": lambda name: {**driver(), "mig": {"config_file": name}},
    "runfile.file": lambda name: driver(source="runfile", runfile={"file": name, "sha256": "0" * 64}),
    "hpcx.file": lambda name: {"hpc": {"hpcx": {"file": name, "sha256": "0" * 64}}},
    "ofed.file": lambda name: {"rdma": {"ofed": {"file": f"{name}.deb", "sha256": "0" * 64}}},
    "efa.file": lambda name: {"rdma": {"fabric": "efa", "efa": {"file": name, "sha256": "0" * 64}}},
}


@pytest.fixture(autouse=True)
def _within_seconds() -> Iterator[None]:
    def late(*_: Any) -> None:
        raise AssertionError("it waits for the file, or reads it without end")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("field", SPECS)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_refused(field: str, kind: str, tmp_path: Path) -> None:
    place = tmp_path / "client_configuration_token_x.tok"
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/zero")
    with pytest.raises(GpuprovError) as told:
        fleet.judge([RawHost(name="gpu1", values=SPECS[field](str(place)))])
    said = " ".join(str(told.value).split())
    assert f"is a {kind}" in said or "is not there" in said, said


@pytest.mark.parametrize("field", ["runfile.file", "hpcx.file", "efa.file"])
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda place: place.mkdir(), "is a folder"),
        (lambda place: place.touch(), "is empty"),
        (lambda place: place.write_text("other"), "has the SHA-256 d9298a10"),
    ],
)
def test_a_file_with_a_checksum_is_compared_with_it(
    field: str, make: Callable[[Path], object], expected: str, tmp_path: Path
) -> None:
    place = tmp_path / NAME
    make(place)
    with pytest.raises(GpuprovError, match=re.escape(f"{place} {expected}")):
        fleet.judge([RawHost(name="gpu1", values=SPECS[field](str(place)))])


def test_nor_does_it_tell_hosts_of_a_bundle_apart() -> None:
    values: dict[str, object] = {"nvidia_driver": {"repository": {"key_file": "/dev/zero"}}}
    assert specs.identifier(RawHost(name="gpu1", values=values))
