"""Files that a spec names on the machine that runs gpuprov: a pipe is not waited for, and a device not read for ever."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl import topology
from gpuprov.capabilities.rdma.nccl.fragment import Nccl
from gpuprov.capabilities.vgpu_guest import token
from gpuprov.offline import specs
from gpuprov.spec import repository, signing
from gpuprov.spec.model import RawHost
from gpuprov.spec.problem import Problem


def _repository(path: str) -> Iterable[Problem]:
    block = repository.Repository(url="https://m.example/x", key_file=path, fingerprint="A" * 40)
    return repository.problems(block, ("nvidia_driver", "repository"))


def _signing(path: str) -> Iterable[Problem]:
    return signing.problems(signing.Signing(key_file=path, certificate_file=path), ("nvidia_driver", "signing"))


def _topology(path: str) -> Iterable[Problem]:
    return topology.rules(Rdma(fabric="infiniband", nccl=Nccl(topo_source=path, topo_file="/etc/topo.xml")))


NAMING: tuple[Callable[[str], Iterable[Problem]], ...] = (_repository, _signing, _topology)


@pytest.fixture(params=["pipe", "device"])
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "device":
        return "/dev/zero"
    os.mkfifo(tmp_path / "pipe")
    return str(tmp_path / "pipe")


@pytest.mark.parametrize("naming", NAMING)
def test_what_is_no_file_is_a_problem_of_the_spec(naming: Callable[[str], Iterable[Problem]], odd: str) -> None:
    found = list(naming(odd))
    assert found
    for one in found:
        assert f"{odd} cannot be read: this is " in one.message


def test_nor_is_it_a_token_or_told_apart_by_what_is_in_it(odd: str) -> None:
    assert "cannot be read here: this is a" in token.read(odd).problem
    values: dict[str, object] = {"nvidia_driver": {"repository": {"key_file": odd}}}
    assert specs.identifier(RawHost(name="gpu1", values=values))
