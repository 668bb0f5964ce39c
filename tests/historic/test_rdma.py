"""Bugs of RDMA and GPUDirect: peer memory that is not what it seems, numbers that move, settings that a boot takes
back."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities.gpudirect_rdma.fragment import GpudirectRdma
from gpuprov.capabilities.pcie.fragment import Pcie
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl.fragment import Nccl
from gpuprov.capabilities.topology.fragment import Topology
from gpuprov.catalog.rdma import gpudirect as catalogue
from gpuprov.spec.model import Fragment, HostSpec
from tests.capabilities import contents_host, erdma_host, ofed_host, pcie_host, rdma_host
from tests.capabilities.gpudirect_host import NEXT, K, kernel, said
from tests.historic.listed import caught, failing, judged, spec

UNLOADED = ("nvidia", "ib_core")
ROCE = "rocep59s0"
NCCL = "netdev|lo\nnetdev|ens1f0np0\nline|=\n"
CONF = f"line|NCCL_IB_HCA=={ROCE}\nline|NCCL_IB_GID_INDEX="


def asked(**blocks: Fragment) -> HostSpec:
    """The usual spec, with these blocks."""
    host = spec()
    return HostSpec(name=host.name, gpu=host.gpu, capabilities={**host.capabilities, **blocks})


PEER = asked(gpudirect_rdma=GpudirectRdma(method="nvidia_peermem"))
HCAS = asked(rdma=Rdma(fabric="infiniband", count=2, nccl=Nccl(manage=False)))


def peer(*kernels: str, **more: Any) -> dict[str, Any]:
    """What is told of peer memory, changed."""
    return {"gpudirect": said(*kernels, **more)}


def ethernet(index: int) -> str:
    """A RoCE device whose GID of its IPv4 address and RoCE v2 has this index."""
    four = "0000:0000:0000:0000:0000:ffff:c0a8:042d"
    return rdma_host.device(
        ROCE, layer="Ethernet", netdevs="ens1f0np0", macs="b8:3f:d2:00:00:01",
        gids=("1|fe80:0000:0000:0000:ba3f:d2ff:fe00:0001|RoCE v2|ens1f0np0", f"{index - 1}|{four}|IB/RoCE v1|ens1f0np0",
              f"{index}|{four}|RoCE v2|ens1f0np0"),
    )  # fmt: skip


def test_24_peer_memory_was_built_before_ofed() -> None:
    """The file is there and modinfo works; modprobe answers "Invalid argument"."""
    before = kernel(symbols="no", rebuild="it was built before OFED, without peer memory")
    told = caught(
        "24", "gpudirect_rdma.built", "gpudirect_rdma.loaded", base={}, asked=PEER, **peer(before, loaded=UNLOADED)
    )
    assert "modprobe answers Invalid argument" in told["gpudirect_rdma.loaded"].found
    caught(
        "24", "gpudirect_rdma.built", base={}, asked=PEER,
        **peer(kernel(), kernel(NEXT, symbols="no", rebuild="it was built before OFED, without peer memory")),
    )  # fmt: skip


def test_24_ofed_was_installed_again() -> None:
    """Another OFED than the module was built against: unknown symbol."""
    other = kernel(K, rebuild="it was built against another OFED")
    log = ("nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -2)",)
    caught(
        "24",
        "gpudirect_rdma.built",
        "gpudirect_rdma.loaded",
        base={},
        asked=PEER,
        **peer(other, loaded=UNLOADED, log=log),
    )


def test_24_peer_memory_is_gone_after_a_reboot() -> None:
    """Nothing loads it at boot; or openibd puts its own ib_core in the kernel after it was loaded."""
    gone = contents_host.unit(catalogue.UNIT, "inactive", "")
    caught("24", "gpudirect_rdma.enabled", "gpudirect_rdma.files", base={}, asked=PEER, contents=gone)
    other = contents_host.Also(f"sum|0  {catalogue.DROP_IN}\n")
    caught("24", "gpudirect_rdma.files", base={}, asked=PEER, contents=other)


def test_25_infiniband_without_ib_umad() -> None:
    told = caught(
        "25", "rdma.umad", base={}, asked=HCAS, rdma_host=rdma_host.host(umad=0, modules={"ib_umad": "there"})
    )
    assert "ib_umad" in told["rdma.umad"].found


def test_27_rdma_checks_know_the_platform() -> None:
    """NVLink bridges are not HCAs, RoCE has no LID, ACS is a guest's host's, a card has no NVLinks of a board."""
    assert "NVLink bridges" in judged(HCAS)["rdma.devices"].found
    caught("27", "rdma.ports", base={}, asked=HCAS,
           rdma_devices=rdma_host.TWO.replace("|4: ACTIVE|", "|2: INIT|").replace("|0x1|0x2", "|0xffff|0x0"))  # fmt: skip
    roce = asked(rdma=Rdma(fabric="roce", nccl=Nccl(manage=False)))
    assert failing(judged(roce, rdma_devices=ethernet(3))) == {}
    metal = asked(pcie=Pcie(acs="disabled"))
    off = pcie_host.said(config=("acs disabled",))
    host: dict[str, Any] = {"pcie": off, "rdma_devices": pcie_host.RDMA}
    caught(
        "27",
        "pcie.hardware",
        along=["pcie.acs", "nvidia_driver.machine_vgpu"],
        base=host,
        asked=metal,
        machine="kind|kvm\nflag|1\n",
    )
    board = asked(topology=Topology())
    assert failing(judged(board)) == {}


def test_28_a_gid_index_moves_at_a_reboot() -> None:
    """By type and address NCCL finds the GID wherever it is; an index that was written down does not follow."""
    policy = "NCCL_IB_GID_INDEX=-1\nline|NCCL_IB_ADDR_FAMILY=AF_INET\nline|NCCL_IB_ROCE_VERSION_NUM=2\n"
    by_address = asked(rdma=Rdma(fabric="roce"))
    written = NCCL + CONF.partition("NCCL_IB_GID_INDEX")[0] + policy
    for index in (3, 5):
        assert failing(judged(by_address, rdma_devices=ethernet(index), nccl=written)) == {}
    by_index = asked(rdma=Rdma(fabric="roce", nccl=Nccl(gid="index")))
    host: dict[str, Any] = {"rdma_devices": ethernet(3), "nccl": f"{NCCL}{CONF}3\n"}
    told = caught("28", "rdma.nccl_file", base=host, asked=by_index, rdma_devices=ethernet(5))
    assert "NCCL_IB_GID_INDEX=3" in told["rdma.nccl_file"].found
    caught("28", "rdma.nccl_stale", base=host, asked=by_index,
           nccl=f"{host['nccl']}other|/etc/environment|NCCL_IB_GID_INDEX=5\n")  # fmt: skip


def test_28_acs_is_on_again_after_each_boot() -> None:
    off = asked(pcie=Pcie(acs="disabled"))
    written = ("acs disabled",)
    host: dict[str, Any] = {
        "pcie": pcie_host.said(config=written),
        "rdma_devices": pcie_host.RDMA,
    }
    told = caught("28", "pcie.acs", base=host, asked=off, pcie=pcie_host.said(acs=pcie_host.ON, config=written))
    assert "ReqRedir+" in told["pcie.acs"].found
    caught(
        "28",
        "pcie.enabled",
        base=host,
        asked=off,
        contents=contents_host.unit("gpuprov-pcie.service", "active", "disabled"),
    )


def test_38_erdma_took_its_mode_from_the_build() -> None:
    """The package builds another default where OFED's headers lie about; the two modes do not talk to each other."""
    compat = asked(rdma=erdma_host.block())
    host: dict[str, Any] = {"erdma": erdma_host.said(), "rdma_devices": erdma_host.devices(), "nccl": erdma_host.nccl()}
    wrong = {**erdma_host.RUNS, "compat_mode": "N"}
    caught("38", "rdma.erdma_mode", base=host, asked=compat, erdma=erdma_host.said(parameters=wrong))
    caught("38", "rdma.erdma_options", base=host, asked=compat, erdma=erdma_host.said(options=(), files=()))


def test_39_the_recipe_overwrote_the_vendors_file() -> None:
    compat = asked(rdma=erdma_host.block())
    host: dict[str, Any] = {"erdma": erdma_host.said(), "rdma_devices": erdma_host.devices(), "nccl": erdma_host.nccl()}
    recipe = ("/etc/modprobe.d/erdma.conf|options erdma compat_mode=Y",)
    caught(
        "39", "rdma.erdma_options", base=host, asked=compat, erdma=erdma_host.said(files=recipe, vendor=("vendor|",))
    )
    lost = failing(judged(compat, **{**host, "erdma": erdma_host.said(vendor=("vendor|",))}))
    assert "softdep erdma pre: ib_uverbs" in lost["rdma.erdma_options"].fix


def test_40_a_device_was_named_in_an_image() -> None:
    """Names follow the PCI place, and an image is started elsewhere."""
    host: dict[str, Any] = {"rdma_devices": ethernet(3), "nccl": NCCL}
    left = asked(rdma=Rdma(fabric="roce", nccl=Nccl(manage=False)))
    caught("40", "rdma.nccl_stale", base=host, asked=left, nccl=f"{NCCL}line|NCCL_IB_HCA=mlx5_0\n")


def test_41_services_may_lock_64_kib() -> None:
    """limits.conf counts for login sessions; what containers run in comes from a service."""
    caught(
        "41",
        "rdma.memlock",
        base={},
        asked=HCAS,
        rdma_host=rdma_host.host(daemons=("containerd.service|65536|infinity",)),
    )
    caught("41", "rdma.memlock_boot", base={}, asked=HCAS,
           rdma_host=rdma_host.host(daemons=("containerd.service|unlimited|65536",)))  # fmt: skip


def test_42_an_mtu_that_does_not_go_with_jumbo_frames() -> None:
    compat = asked(rdma=erdma_host.block())
    host: dict[str, Any] = {"erdma": erdma_host.said(), "rdma_devices": erdma_host.devices(), "nccl": erdma_host.nccl()}
    told = caught("42", "rdma.erdma_mtu", base=host, asked=compat, erdma=erdma_host.said(pairs=("rdmap0s6|eth1|1500",)))
    assert "MTU 1500" in told["rdma.erdma_mtu"].found


def test_43_erdma_was_built_for_an_ofed_that_is_not_loaded() -> None:
    compat = asked(rdma=erdma_host.block())
    host: dict[str, Any] = {"erdma": erdma_host.said(), "rdma_devices": erdma_host.devices(), "nccl": erdma_host.nccl()}
    failed = failing(judged(compat, **{**host, "erdma": erdma_host.said("lacks|", parameters=None)}))
    assert "Unknown symbol ib_umem_get_peer" in failed["rdma.erdma_driver"].found
    caught("43", "rdma.erdma_driver", along=set(failed) - {"rdma.erdma_driver"}, base=host, asked=compat,
           erdma=erdma_host.said("lacks|", parameters=None))  # fmt: skip


def test_44_openibd_left_the_kernels_own_modules() -> None:
    doca = asked(rdma=Rdma(fabric="infiniband", stack="doca-ofed", nccl=Nccl(manage=False)))
    host: dict[str, Any] = {"ofed": ofed_host.said(), "ofed_packages": ofed_host.packages()}
    caught(
        "44", "rdma.ofed_openibd", base=host, asked=doca, ofed=ofed_host.said("skipped|mlx5_core", "skipped|ib_umad")
    )
    mixed = (ofed_host.loaded("ib_core", own=True), ofed_host.loaded("mlx5_core"), ofed_host.loaded("mlx5_ib"))
    caught("44", "rdma.ofed_loaded", base=host, asked=doca, ofed=ofed_host.said(memory=mixed))


def test_45_another_stack_is_left_beside_the_kernels_own() -> None:
    told = caught(
        "45", "rdma.ofed_alone", base={}, asked=HCAS, ofed=ofed_host.said(), ofed_packages=ofed_host.packages()
    )
    assert "two stacks" in told["rdma.ofed_alone"].found
