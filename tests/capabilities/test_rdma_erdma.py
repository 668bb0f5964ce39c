"""eRDMA: the driver and its mode, read back; options, MTU, ports; every trap of the vendor's files and defaults."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.base import Outcome
from gpuprov.capabilities.rdma.erdma import checks as erdma
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.facts.probes.base import Facts, Output
from tests.capabilities import contexts
from tests.capabilities.asking import CHECKS, expect
from tests.capabilities.erdma_host import KERNEL, KO, PARAMETERS, RUNS, SHA256, block, devices, said
from tests.rows import run_each

COMPAT = block()
IWARP = block(compat_mode=False, mtu="standard")
INBOX = block(stack="inbox", compat_mode=False)
N = {**RUNS, "compat_mode": "N"}
IN_TREE = f"{KERNEL}|1|1|/lib/modules/{KERNEL}/kernel/drivers/infiniband/hw/erdma/erdma.ko||0"
HELD = ("user|4711|python3", "user|4712|all_reduce_perf")
VENDOR_OVERWRITTEN = "/etc/modprobe.d/erdma.conf|options erdma compat_mode=Y"


def ask(
    check: str, wanted: Rdma, text: str, devs: str = devices(), images: str = "", release: str = "ID=ubuntu\n"
) -> Outcome:
    texts = {"erdma": text, "rdma_devices": devs, "erdma_initramfs": images, "os_release": release}
    return contexts.answer(f"rdma.erdma_{check}", contexts.spec(rdma=wanted), {**texts, "packages": "native|amd64\n"})


ROWS: list[tuple[str, str, Rdma, str, str, str, str]] = [
    ("as asked for", "driver", COMPAT, said(), "pass", "Alibaba's driver", ""),
    ("not loaded", "driver", COMPAT, said(parameters=None), "fail", f"{KO} is not loaded", "modprobe erdma"),
    ("not there", "driver", COMPAT, said(kernels=(f"{KERNEL}|1|1|||0",), parameters=None), "fail", "no module erdma",
     "modprobe"),
    ("the kernel's own", "driver", COMPAT, said(kernels=(IN_TREE,), parameters={}),
     "fail", "the kernel's own driver is loaded", "modinfo -n"),
    ("the kernel's own, as asked", "driver", INBOX, said(kernels=(IN_TREE,), parameters={}), "pass",
     "the kernel's driver", ""),
    ("Alibaba's where the kernel's is asked", "driver", INBOX, said(), "fail", "Alibaba's driver is loaded",
     "erdma-vendor"),
    ("built against OFED", "driver", COMPAT, said("lacks|", parameters=None), "fail", "Unknown symbol ib_umem_get_peer",
     "OFED"),
    ("another build is loaded", "driver", COMPAT, said("stale|"), "fail", "another build", "rmmod erdma"),
    ("a function without driver", "driver", COMPAT, said(functions=("0000:00:06.0|erdma", "0000:00:07.0|")),
     "fail", "0000:00:07.0", "MAC"),
    ("the installer ran", "source", block(installer="1.5.7"), said(f"record|{SHA256} compat"), "pass", SHA256, ""),
    ("another installer ran", "source", block(installer="1.5.6"), said(f"record|{SHA256} compat"),
     "fail", f"ran has {SHA256}", "apply"),
    ("no installer ran", "source", block(url="https://x/e.tar.gz", sha256="A" * 64), said(), "fail", "ran none",
     "apply"),
    ("nothing asked", "source", COMPAT, said(), "n/a", "was there", ""),
    ("packages there", "source", block(packages=("erdma",)), said("package|erdma|installed"), "pass", "erdma", ""),
    ("packages removed", "source", block(packages=("erdma",)), said("package|erdma|config-files"),
     "fail", "not installed: erdma", "apply"),
    ("the mode", "mode", COMPAT, said(), "pass", "compat_mode Y: compat; rdmap0s6 CA", ""),
    ("the wrong default", "mode", COMPAT, said(parameters=N), "fail", "compat_mode is N", "rmmod erdma"),
    ("the wrong mode, held", "mode", COMPAT, said(*HELD, parameters=N),
     "fail", "python3 (4711), all_reduce_perf (4712) hold", "reboot"),
    ("no mode", "mode", COMPAT, said(parameters={}), "fail", "has no compat_mode", "erdma_driver"),
    ("not loaded, no mode", "mode", COMPAT, said(parameters=None), "fail", "not loaded", "erdma_driver"),
    ("inbox has no mode", "mode", INBOX, said(parameters={}), "pass", "the kernel's driver", ""),
    ("none asked", "parameters", COMPAT, said(), "n/a", "none", ""),
    ("parameters", "parameters", block(parameters={"default_cc": -1, "legacy_mode": False}), said(), "pass",
     "default_cc=-1", ""),
    ("another", "parameters", block(parameters={"reserve_ports_base": 31000}), said(), "fail",
     "reserve_ports_base=30608", "rmmod"),
    ("one of another build", "parameters", block(parameters={"use_zeronet": True}), said(), "fail", "no use_zeronet",
     "take it out"),
    ("jumbo", "mtu", COMPAT, said(), "pass", "MTU 8500: eth1 (rdmap0s6)", ""),
    ("not jumbo", "mtu", COMPAT, said(pairs=("rdmap0s6|eth1|1500",)), "fail", "eth1 of rdmap0s6 has MTU 1500", "LL128"),
    ("8500 without jumbo frames", "mtu", IWARP, said(), "fail", "MTU 8500", "corrupted"),
    ("no interface", "mtu", COMPAT, said(pairs=("rdmap0s6||",)), "fail", "no network interface", "MAC"),
    ("no device", "mtu", COMPAT, said(pairs=()), "fail", "no eRDMA device", "erdma_function"),
    ("ports", "ports", COMPAT, said(), "pass", "TCP 30608-30623", ""),
    ("a port is taken", "ports", COMPAT, said("tcp|30610"), "fail", "listens on TCP 30610", "ss -tlnp"),
    ("ports may be given away", "ports", COMPAT, said("ephemeral|1024 65535"),
     "fail", "ip_local_port_range is 1024 65535", "ip_local_reserved_ports"),
    ("and are not", "ports", COMPAT, said("ephemeral|1024 65535", "reserved|8080,30608-30623"), "pass", "30608", ""),
    ("elsewhere", "ports", block(parameters={"reserve_ports_base": 31000}), said("tcp|30610"), "pass", "31000-31015",
     ""),
    ("iWARP needs none", "ports", IWARP, said("tcp|30610"), "n/a", "compat mode", ""),
    ("no eadm", "eadm", COMPAT, said(), "skip", "not installed", ""),
    ("eadm", "eadm", COMPAT, said("eadm|ERDMA driver version: 0.2.37"), "pass", "0.2.37", ""),
    ("eadm without driver", "eadm", COMPAT, said("eadm|cannot open device"), "fail", "cannot open", "dmesg"),
    ("every kernel", "kernels", COMPAT, said(), "pass", "1 kernel; erdma/1.0.2", ""),
    ("a kernel without", "kernels", COMPAT, said(kernels=(f"{KERNEL}|1|1|{KO}|{PARAMETERS}|1",
                                                          "5.15.0-122-generic|0|0|||0")),
     "fail", "5.15.0-122-generic has none and no headers", "dkms install"),
    ("the kernel's own in one", "kernels", COMPAT, said(kernels=(IN_TREE,)), "fail", "has the kernel's own driver",
     "apply"),
    ("no MAD", "kernels", COMPAT, said(kernels=(f"{KERNEL}|1|1|{KO}|{PARAMETERS}|0",)),
     "fail", "built without MAD", "ERDMA_FORCE_MAD_ENABLE"),
    ("iWARP needs no MAD", "kernels", IWARP, said(kernels=(f"{KERNEL}|1|1|{KO}|{PARAMETERS}|0",)), "pass", "1 kernel",
     ""),
    ("unknown to DKMS", "kernels", COMPAT, said(dkms=()), "fail", "does not know erdma", "installer again"),
    ("options", "options", COMPAT, said(), "pass", "options erdma compat_mode=Y", ""),
    ("left to the build", "options", COMPAT, said(options=(), files=()), "fail", "compat_mode is left to the build",
     "apply"),
    ("1 is Y", "options", COMPAT, said(options=("compat_mode=1",)), "pass", "compat_mode=Y", ""),
    ("the last counts", "options", COMPAT, said(options=("compat_mode=Y", "compat_mode=N")),
     "fail", "compat_mode is N", "modprobe -c"),
    ("somebody else's", "options", COMPAT, said(options=("compat_mode=Y", "vector_num=4")),
     "fail", "vector_num is set", "modprobe -c"),
    ("the popular recipe", "options", COMPAT, said(files=(VENDOR_OVERWRITTEN,), vendor=("vendor|",)),
     "fail", "/etc/modprobe.d/erdma.conf says", "take that line out"),
    ("the softdep is lost", "options", COMPAT, said(vendor=("vendor|",)), "fail", "lost its softdep",
     "softdep erdma pre: ib_uverbs"),
    ("no softdep at all", "options", COMPAT, said(vendor=(), softdep=False), "fail", "knows no softdep", "apply"),
    ("an instance", "function", COMPAT, said(), "pass", "1ded:107f at 0000:00:06.0", ""),
    ("no ERI", "function", COMPAT, said(functions=()), "fail", "none", "EriQuantity"),
    ("no driver in the kernel", "function", INBOX, said(kernels=(f"{KERNEL}|1|1|||0",)),
     "fail", f"{KERNEL} is built without erdma", "erdma-vendor"),
    ("no driver, no installer", "function", COMPAT, said(kernels=(f"{KERNEL}|1|1|||0",)), "fail", "names no installer",
     "1.5.7"),
    ("an installer", "function", block(installer="1.5.7"), said(kernels=(f"{KERNEL}|1|1|||0",)), "pass", "1ded:107f",
     ""),
    ("no kernel", "function", block(installer="1.5.7"), said(kernels=()), "fail",
     "neither a kernel in /boot nor kernel headers",
     "the headers package of the machine's kernel"),
    ("eRDMA's settings", "asked", COMPAT, said(), "pass", "are consistent", ""),
    ("no mode said", "asked", block(compat_mode=None), said(), "fail", "rdma.erdma.compat_mode is missing",
     "true: RoCE-like"),
    ("no MTU said", "asked", block(mtu=""), said(), "fail", "rdma.erdma.mtu is missing", "jumbo where"),
    ("a mode that the kernel's driver has not", "asked", block(stack="inbox"), said(), "fail",
     "rdma.erdma.compat_mode is true",
     "stack: erdma-vendor, or compat_mode: false"),
    ("an installer without its checksum", "asked", block(url="https://x/e.tar.gz"), said(), "fail",
     "rdma.erdma.sha256 is missing",
     "sha256sum FILE"),
    ("another installer, held", "users", block(installer="1.5.6"), said(*HELD, f"record|{SHA256} compat"),
     "fail", "the build must change, and python3 (4711)", "end them, then apply again"),
    ("a build without MAD, held", "users", COMPAT, said(*HELD, kernels=(f"{KERNEL}|1|1|{KO}|{PARAMETERS}|0",)),
     "fail", "the build must change", "end them"),
    ("nobody", "users", COMPAT, said(parameters=N), "pass", "nothing uses", ""),
    ("held and right", "users", COMPAT, said(*HELD), "pass", "nothing must change", ""),
    ("held and wrong", "users", COMPAT, said(*HELD, parameters=N), "fail",
     "compat_mode must change, and python3 (4711)", "end them"),
    ("held by a module", "users", COMPAT, said("holders|smc", parameters=N), "fail", "module smc", "end them"),
    ("free", "free", COMPAT, said(), "pass", "free", ""),
    ("taken", "free", COMPAT, said("tcp|30623"), "fail", "30623", "reserve_ports_base"),
    ("no OFED", "ofed", COMPAT, said(), "skip", "no tree of OFED", ""),
    ("OFED's sources alone", "ofed", COMPAT, said("ofed|/usr/src/ofa_kernel/default"),
     "fail", "Unknown symbol", "mlnx-ofed-kernel-dkms"),
    ("OFED", "ofed", COMPAT, said("ofed|/usr/src/ofa_kernel/default",
                                  f"core|/lib/modules/{KERNEL}/updates/dkms/ib_core.ko"),
     "pass", "updates/dkms", ""),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=f"{row[1]}: {row[0]}") for row in ROWS])
def test_erdma(row: tuple[str, str, Rdma, str, str, str, str]) -> None:
    _, check, wanted, text, status, found, fix = row
    kind = "4: RNIC" if wanted.erdma.compat_mode is False else "1: CA"
    expect(ask(check, wanted, text, devices(kind)), status, found, fix)


def test_a_held_driver_of_the_wrong_mode_asks_for_a_reboot() -> None:
    assert "python3" in ask("mode", COMPAT, said(*HELD, parameters=N)).reboot
    assert not ask("mode", COMPAT, said(parameters=N)).reboot
    outcome = ask("mode", COMPAT, said(*HELD, parameters=N, options=("compat_mode=N",)))
    assert (outcome.reboot, "reboot" in outcome.fix) == ("", False), "a reboot would load it in the same mode again"


def test_a_device_of_the_other_kind_than_the_parameter_tells() -> None:
    outcome = ask("mode", COMPAT, said(), devices("4: RNIC"))
    assert outcome.status == "fail"
    assert "rdmap0s6 is of the other kind" in outcome.found


def test_rxe_has_the_port_that_compat_mode_needs() -> None:
    soft = "device|rxe0|||||1: CA|||-1|eth0||\nport|rxe0|1|4: ACTIVE|5: LinkUp|Ethernet|2.5 Gb/sec (1X SDR)|0x0|0x0\n"
    for check in ("ports", "free"):
        outcome = ask(check, COMPAT, said(), devices() + soft)
        assert outcome.status == "fail", check
        assert "rxe0: rxe has UDP 4791" in outcome.found
        assert "rdma link delete rxe0" in outcome.fix


@run_each(
    ("images", "status", "found"),
    [
        ("", "pass", "no initramfs holds"),
        ("image /boot/initrd.img-1 1 0 initramfs-tools\nlib/x/erdma.ko\n", "pass", "1 image"),
        ("image /boot/initramfs-1.img 0 0 dracut\nlib/x/erdma.ko.xz\n", "fail",
         "without /etc/modprobe.d/gpuprov-erdma.conf"),
    ],
)  # fmt: skip
def test_an_initramfs_with_erdma_has_its_options(images: str, status: str, found: str) -> None:
    outcome = ask("initramfs", COMPAT, said(), images=images)
    assert (outcome.status, found in outcome.found) == (status, True), outcome


@run_each("check", [name for name in CHECKS if name.startswith("rdma.erdma_")])
def test_other_fabrics_are_not_asked(check: str) -> None:
    outcome = ask(check.removeprefix("rdma.erdma_"), Rdma(fabric="roce"), said())
    assert (outcome.status, outcome.found) == ("n/a", "the fabric is roce")


def test_the_host_as_a_spec() -> None:
    facts = Facts({"erdma": Output(said())})
    assert erdma.exported(facts) == {
        "stack": "erdma-vendor",
        "erdma": {"compat_mode": True, "mtu": "jumbo", "parameters": {}},
    }
    for text in (said(parameters=None), said(pairs=("rdmap0s6|eth1|1500",)), said(config=None)):
        assert erdma.exported(Facts({"erdma": Output(text)})) is None
