"""Role gpudirect_rdma decides as the checks do: the same host, the same method, the same refusals."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest

from gpuprov import assets
from gpuprov.capabilities.gpudirect_rdma.decision import decide, ground, no_dmabuf, no_peer
from gpuprov.capabilities.gpudirect_rdma.fragment import GpudirectRdma
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.catalog import gpudirect as catalogue
from gpuprov.render import role_variables
from gpuprov.spec.model import Fragment, HostSpec
from tests.capabilities.asking import H100, facts
from tests.capabilities.gpudirect_host import DMABUF, NEXT, OPEN, kernel, said

V100 = "0000:19:00.0 0x10de 0x1db1 0x10de 0x1212 0x030200 nvidia\n"
INBOX = kernel(symvers="", exports="no", symbols="no")
DOCA, CLOSED = Rdma(stack="doca-ofed"), NvidiaDriver(kernel_modules="proprietary")
LATER = [f"__gpudirect_rdma_{name}" for name in ("known", "wanted", "parameters", "gdrcopy", "gdrcopy_names", "other")]
BEFORE = kernel(symbols="no", rebuild="it was built before OFED")


@cache
def own() -> tuple[Any, dict[str, Any]]:
    """What reads YAML as Ansible does, and the variables of the role."""
    from ansible.parsing.dataloader import DataLoader

    loader = DataLoader()
    path = assets.root() / "roles" / "gpudirect_rdma" / "vars" / "main.yml"
    return loader, loader.load_from_file(str(path), trusted_as_template=True)


@cache
def templars(loader: Any) -> Any:
    from ansible.template import Templar

    return Templar(loader)


def templated(text: str, functions: str, spec: HostSpec, *names: str, **more: object) -> list[Any]:
    """These variables of the role (without `__gpudirect_rdma_`), on a host whose probes print this."""
    loader, mine = own()
    variables: dict[str, Any] = {
        **mine,
        "gpuprov_catalog": {"gpudirect": catalogue.tables()},
        "gpuprov_capabilities": list(spec.capabilities),
        "host_capabilities": list(spec.capabilities),
        "host_family": "debian",
        "ansible_facts": {},
        "__gpudirect_rdma_seen": {"stdout": text, "stdout_lines": text.splitlines()},
        "__gpudirect_rdma_functions": {"stdout": functions},
        **more,
    }
    for name, block in spec.capabilities.items():
        variables |= msgspec.to_builtins(role_variables(name, block))
    for name in [name for name in mine if name.startswith("__gpudirect_rdma_") and name not in LATER]:
        templar = templars(loader)
        templar.available_variables = variables
        variables[name] = templar.template(mine[name])  # each once, in the order of the file
    return [variables[f"__gpudirect_rdma_{name}"] for name in names]


@pytest.mark.parametrize(
    ("method", "text", "functions", "blocks"),
    [
        ("auto", said(), H100, {}),
        ("dmabuf", said(), H100, {}),
        ("nvidia_peermem", said(), H100, {}),
        ("nv_peer_mem", said(kernel(license_=OPEN)), H100, {}),
        ("auto", DMABUF, H100, {}),
        ("auto", DMABUF, V100, {}),
        ("auto", said(kernel("5.10.0-30-amd64", license_=OPEN), kernel(license_=OPEN)), H100, {}),
        ("auto", said(kernel("4.18.0-513.el8.x86_64", license_=OPEN)), H100, {}),
        ("auto", said(kernel(license_=OPEN, options=("CONFIG_PCI_P2PDMA",)), ofed=""), H100, {}),
        ("auto", said(kernel(license_=OPEN, options=("CONFIG_DMA_SHARED_BUFFER",))), H100, {}),
        ("auto", said(kernel(nvidia="510.108.03")), H100, {}),
        ("auto", said(INBOX), H100, {}),
        ("auto", said(INBOX), H100, {"rdma": DOCA}),
        ("auto", said(kernel(), kernel(NEXT, symvers="", exports="no")), H100, {"rdma": Rdma()}),
        ("auto", DMABUF, H100, {"nvidia_driver": CLOSED, "rdma": DOCA}),
        ("auto", said(), H100, {"nvidia_driver": NvidiaDriver(kernel_modules="open"), "rdma": Rdma()}),
        ("auto", said(), H100, {"nvidia_driver": NvidiaDriver(build="precompiled"), "rdma": DOCA}),
    ],
)
def test_the_role_decides_as_the_checks_do(method: Any, text: str, functions: str, blocks: dict[str, Fragment]) -> None:
    block = GpudirectRdma(method=method)
    spec = HostSpec(name="h", capabilities={**blocks, "gpudirect_rdma": block})
    base = ground(spec, facts(gpudirect=text, nvidia_functions=functions))
    own_method, peer, without_dmabuf, without_peer = templated(
        text, functions, spec, "method", "peer", "no_dmabuf", "no_peer"
    )
    assert bool(without_dmabuf) == bool(no_dmabuf(base)[0])
    decision = decide(base, block)
    refused = bool(without_dmabuf) if method == "dmabuf" else peer and bool(without_peer)
    assert refused == bool(decision.problem), (own_method, without_dmabuf, without_peer, decision)
    if decision.method:
        assert own_method == decision.method
    if method == "nv_peer_mem":
        assert bool(without_peer) == bool(no_peer(base, "nv_peer_mem")[0])


def test_the_drivers_role_has_the_last_word() -> None:
    """What the driver's role resolved in this run is not on disk yet when a plan is made."""
    spec = HostSpec(name="h", capabilities={"nvidia_driver": NvidiaDriver(), "gpudirect_rdma": GpudirectRdma()})
    coming = {"flavour": "open", "version": "580.95.05"}
    found = templated(
        said(), H100, spec, "flavour", "branch", "method", gpuprov_judged={"desired": {"nvidia_driver": coming}}
    )
    assert found == ["open", 580, "dmabuf"]


def test_only_kernels_of_the_method_that_can_boot_are_built_again() -> None:
    spec = HostSpec(name="h", capabilities={"gpudirect_rdma": GpudirectRdma(method="nvidia_peermem")})
    text = said(BEFORE, kernel(NEXT, bootable=False, rebuild="it was built before OFED"))
    rebuilt, openibd = templated(text, H100, spec, "rebuild", "openibd")
    assert [list(one) for one in rebuilt] == [["6.1.0-47-amd64", "it was built before OFED"]]
    assert openibd is True
    old = HostSpec(name="h", capabilities={"gpudirect_rdma": GpudirectRdma(method="nv_peer_mem")})
    assert templated(text, H100, old, "rebuild") == [[]]
