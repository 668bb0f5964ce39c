"""The probe of eRDMA, run on trees of files as hosts have them."""

from __future__ import annotations

from pathlib import Path

from gpuprov.core.safe_parse import parse_numbers
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.rdma.erdma import ERDMA, IMAGES, Erdma, parse
from gpuprov.host_code.at_boot.erdma_state import Pair
from tests.facts.probes.rdma.erdma_tree import KERNEL, run, tree, write


def read(root: Path) -> Erdma:
    done = run(root, ERDMA.script)
    assert done.returncode == 0, done.stderr
    return parse(Output(done.stdout))


def test_a_host_with_the_driver(tmp_path: Path) -> None:
    tree(tmp_path)
    state = read(tmp_path)
    (kernel,) = state.kernels
    assert (kernel.release, kernel.running, kernel.headers, kernel.vendor, kernel.mad) == (
        KERNEL,
        True,
        True,
        True,
        True,
    )
    assert kernel.parameters == ("compat_mode", "default_cc")
    assert state.functions == (("0000:00:06.0", "erdma"),)
    assert (state.loaded, state.stale, state.parameters) == (True, False, {"compat_mode": "Y", "default_cc": "-1"})
    assert (state.options, state.softdep) == ({"compat_mode": "Y"}, True)
    assert (state.vendor_file, state.vendor_softdep, state.at_boot) == (True, True, True)
    assert state.pairs == (Pair(device="erdma_0", netdev="eth1", mtu=1500),)
    assert (state.holders, state.users) == (("smc",), ())
    assert (state.listening, state.ephemeral, state.reserved) == (
        frozenset({30610}),
        (1024, 65535),
        parse_numbers("30608-30610"),
    )
    assert state.ofed.endswith("/usr/src/ofa_kernel/default")
    assert state.core.endswith("/kernel/drivers/infiniband/core/ib_core.ko")
    assert state.lacks, "the module needs a symbol that no module of this kernel has"
    assert (state.eadm, state.record, state.packages) == ("version 0.2.37", "abc compat", frozenset({"erdma"}))
    assert state.registered == ("erdma/1.0.2, x: installed",)
    assert state.config == ("parameter compat_mode Y", "mtu 8500")


def test_a_name_with_a_line_break_is_no_pair_whose_interface_root_sets(tmp_path: Path) -> None:
    tree(tmp_path)
    write(tmp_path, {"proc/88/comm": "x\npair|a|eth0\n", "proc/88/fd/1": ""})
    (tmp_path / "proc/88/fd/7").symlink_to("/dev/infiniband/uverbs0")
    state = read(tmp_path)
    assert (state.users, state.pairs) == ((("88", "x"),), (Pair(device="erdma_0", netdev="eth1", mtu=1500),))


def test_headers_of_a_kernel_that_is_gone_are_no_kernel(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "lib/modules/6.1.0-50-amd64/build").mkdir(parents=True)
    (tmp_path / "lib/modules/6.1.0-50-amd64/build/Makefile").write_text("")
    assert [kernel.release for kernel in read(tmp_path).kernels] == [KERNEL, "6.1.0-50-amd64"], (
        "a container: none in /boot"
    )
    (tmp_path / "boot").mkdir()
    (tmp_path / f"boot/vmlinuz-{KERNEL}").write_text("")
    assert [kernel.release for kernel in read(tmp_path).kernels] == [KERNEL]


def test_the_interface_by_the_node_guid(tmp_path: Path) -> None:
    tree(tmp_path, guid=True, mtu=8500)
    assert read(tmp_path).pairs == (Pair(device="erdma_0", netdev="eth1", mtu=8500),)


def test_another_build_and_an_overwritten_file(tmp_path: Path) -> None:
    tree(tmp_path, loaded="OLD", vendor="options erdma compat_mode=Y\n")
    state = read(tmp_path)
    assert (state.stale, state.vendor_file, state.vendor_softdep) == (True, True, False)
    ((file, line),) = state.files
    assert file.endswith("/etc/modprobe.d/erdma.conf")
    assert line == "options erdma compat_mode=Y"


def test_a_host_without_erdma(tmp_path: Path) -> None:
    state = parse(Output(""))
    assert (state.loaded, state.kernels, state.config, state.eadm, state.running) == (False, (), None, None, None)
    assert run(tmp_path, IMAGES.script).stdout == "", "no initramfs is read on hosts without eRDMA's settings"
