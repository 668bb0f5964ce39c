"""What a host says of GPUDirect RDMA, read by the probes' own scripts from modules that a compiler made (ELF
objects)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuprov.facts.probes.rdma.gpudirect import GDRCOPY, Gdrcopy, parse_gdrcopy
from tests.facts.probes.rdma.gpudirect_tree import ALONE, CORE, SYMVERS, USES, UVERBS, Host, K

pytestmark = pytest.mark.install  # programs, started again and again


@pytest.fixture
def host(tmp_path: Path) -> Host:
    if not shutil.which("gcc"):
        pytest.skip("no compiler that could make a module")
    return Host(tmp_path)


def ofed(host: Host, place: str = f"x86_64/{K}", checksum: str = "1f") -> None:
    host.text(f"usr/src/ofa_kernel/{place}/Module.symvers", SYMVERS.format(checksum))
    host.module("ib_core", CORE)
    host.module("ib_uverbs", UVERBS)


@pytest.mark.parametrize(
    ("pack", "source", "symbols"),
    [("", USES, "yes"), ("", ALONE, "no"), ("xz", USES, "yes"), ("zst", USES, "yes"), ("zst", ALONE, "no")],
)
def test_a_module_says_what_it_was_built_against(host: Host, pack: str, source: str, symbols: str) -> None:
    program = {"zst": "zstd"}.get(pack, pack)
    if program and not shutil.which(program):
        pytest.skip(f"no {program}")
    ofed(host)
    path = host.module(
        "nvidia-current-peermem", source, pack=pack, info="version: 535.261.03\nparm: peerdirect_support:Set (int)\n"
    )
    state = host.only()
    module = state.modules["nvidia_peermem"]
    assert (module.path, module.symbols, module.version) == (str(path), symbols, "535.261.03")
    assert module.parameters == ("peerdirect_support",)
    assert bool(state.rebuild) == (symbols == "no")
    assert (state.core_exports, state.uverbs, state.open) == ("yes", "yes", False)
    assert state.options is not None
    assert set(state.options) == {"CONFIG_DMA_SHARED_BUFFER", "CONFIG_INFINIBAND_ON_DEMAND_PAGING"}


@pytest.mark.parametrize(
    "place",
    [f"usr/src/ofa_kernel/x86_64/{K}", f"usr/src/ofa_kernel/{K}", "usr/src/ofa_kernel/default",
     "var/lib/dkms/mlnx-ofed-kernel/25.10/build", f"lib/modules/{K}/build"],
)  # fmt: skip
def test_the_symbols_are_looked_for_where_the_driver_is_built_by(host: Host, place: str) -> None:
    host.text(f"{place}/Module.symvers", SYMVERS.format("1f"))
    state = host.only()
    assert state.symvers == f"{host.root}/{place}/Module.symvers"
    assert state.checksum == "0x1f"


def test_without_ofed_nothing_can_be_built_again(host: Host) -> None:
    host.text(f"lib/modules/{K}/build/Module.symvers", "0x1\tib_register_client\tx\tEXPORT_SYMBOL\n")
    host.module("ib_core", ALONE)
    host.module("nvidia-peermem", ALONE)
    state = host.only()
    assert (state.symvers, state.rebuild, state.core_exports, state.uverbs) == ("", {}, "no", "no")


def test_one_of_the_two_symbols_is_not_enough(host: Host) -> None:
    host.text("usr/src/ofa_kernel/default/Module.symvers", SYMVERS.format("1f").splitlines()[0] + "\n")
    assert host.only().symvers == ""


@pytest.mark.parametrize(
    ("place", "crc", "why"),
    [
        (f"x86_64/{K}", "0x0000002e", "it was built against another OFED"),
        (f"x86_64/{K}", "0x0000001f", ""),
        ("default", "0x0000002e", ""),  # of which kernel that tree is, nobody knows
    ],
)
def test_a_module_of_another_ofed(host: Host, place: str, crc: str, why: str) -> None:
    ofed(host, place)
    host.module("nvidia-peermem", USES, crc=crc)
    assert host.only().rebuild.get("nvidia_peermem", "") == why


def test_a_compressed_module_without_a_program_that_unpacks_it(host: Host, tmp_path: Path) -> None:
    ofed(host)
    few = tmp_path / "few"
    few.mkdir()
    for name in ("sh", "awk", "sed", "grep", "cat", "ls", "head", "tail", "tr"):
        (few / name).symlink_to(str(shutil.which(name)))
    host.module("nvidia-peermem", USES, pack="xz")
    (unknown,) = host.read(str(few)).kernels
    assert unknown.modules["nvidia_peermem"].symbols == "unknown"
    assert not unknown.rebuild
    Path(f"{host.root}/lib/modules/{K}/updates/nvidia-peermem.ko.xz.info").write_text("depends: ib_core,nvidia\n")
    (known,) = host.read(str(few)).kernels
    assert known.modules["nvidia_peermem"].symbols == "yes"


def test_an_ib_core_that_is_part_of_the_kernel(host: Host) -> None:
    (host.root / "builtin").touch()
    host.text(f"lib/modules/{K}/build/Module.symvers", SYMVERS.format("1f"))
    assert (host.only().core, host.only().core_exports) == ("(builtin)", "yes")


def test_both_flavours_beside_each_other_and_the_forerunner(host: Host) -> None:
    ofed(host)
    for name in ("nvidia-current-peermem", "nvidia-current-open-peermem", "nv_peer_mem"):
        host.module(name, USES)
    host.text(f"var/lib/dkms/nvidia-current/535.261.03/{K}/x86_64/module/nvidia-peermem.ko", "")
    state = host.only()
    assert set(state.modules) == {"nvidia_peermem", "nv_peer_mem"}
    assert state.modules["nvidia_peermem"].path.endswith("nvidia-current-peermem.ko")
    assert state.dkms == "nvidia-current/535.261.03"


def test_what_runs_and_what_starts(host: Host) -> None:
    host.text("sys/module/nvidia_peermem/parameters/peerdirect_support", "1\n")
    unit = host.text(
        "etc/systemd/system/gpuprov-gpudirect.service", "[Service]\nExecStart=/sbin/modprobe nvidia_peermem\n"
    )
    host.program("ofed_info", "#!/bin/sh\necho 25.10-1.7.1\n")
    stamp = "1763800001.000000 gpu1 kernel: "
    host.program("journalctl", f"#!/bin/sh\necho '{stamp}usb 1: new'\necho '{stamp}nvidia-peermem a|b'\n")
    host.program(
        "systemctl",
        """#!/bin/sh
case "$*" in
  show*openibd*) echo LoadState=loaded ;; show*) echo LoadState=not-found ;;
  is-active*openibd*) echo active ;; is-active*) echo inactive ;;
  is-enabled*) echo enabled ;;
esac
""",
    )
    state = host.read()
    assert (state.running, state.ofed, state.exported) == (K, "25.10-1.7.1", True)
    assert state.loaded == {"nvidia": 1, "ib_core": 2, "nvidia_peermem": 0}
    assert state.holders == ("ib_uverbs", "nvidia_peermem")
    assert state.parameters == {"peerdirect_support": "1"}
    assert (state.starts, state.log) == ("nvidia_peermem", ("nvidia-peermem a|b",))
    assert {name: unit.file for name, unit in state.units.items()} == {
        "gpuprov-gpudirect.service": "",
        "openibd.service": "enabled",
    }
    unit.unlink()
    assert host.read().starts == ""


def test_kernels_in_order_and_those_that_can_boot(host: Host) -> None:
    for release in ("6.1.0-9-amd64", "6.1.0-56-amd64"):
        host.kernel(release)
    (host.root / "boot" / "vmlinuz-6.1.0-56-amd64").unlink()
    state = host.read()
    assert [kernel.release for kernel in state.kernels] == ["6.1.0-9-amd64", K, "6.1.0-56-amd64"]
    assert [kernel.release for kernel in state.targets()] == ["6.1.0-9-amd64", K]


def test_a_host_with_nothing(tmp_path: Path) -> None:
    if not shutil.which("gcc"):
        pytest.skip("no compiler")
    host = Host(tmp_path)
    for path in ("proc/modules", "proc/kallsyms"):
        (host.root / path).unlink()
    shutil.rmtree(host.root / "lib")
    state = host.read()
    assert (state.kernels, state.loaded, state.exported, state.log) == ((), {}, False, ())


@pytest.mark.parametrize(
    ("prepare", "found"),
    [
        (lambda host: None, Gdrcopy(kernels={K: ""}, major="237")),
        (
            lambda host: (
                host.module("gdrdrv", ALONE, info="version: 2.5.1\n"),
                host.text("sys/module/gdrdrv/refcnt", "0"),
            ),
            Gdrcopy(kernels={K: "2.5.1"}, loaded=True, major="237"),
        ),
    ],
)  # fmt: skip
def test_gdrcopy(host: Host, prepare: Callable[[Host], object], found: Gdrcopy) -> None:
    prepare(host)
    assert parse_gdrcopy(host.run(GDRCOPY.script)) == found


BAD = "nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing"
REAL = (
    f"nvidia-peermem {BAD}",
    f"nv_mem {BAD}",
    "nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -2)",
)
FORGED = (
    f"a[7]: segfault at 0 ip 0 sp 0 error 4 in nvidia-peermem {BAD}[5+1]",
    f"a[7]: segfault at 0 ip 0 sp 0 error 4 in kernel: nvidia-peermem {BAD}[5+1]",
    f"nvidia-peermem [7]: segfault at 0 ip 0 sp 0 error 4 in {BAD}[5+1]",
    f"nv_mem [7]: segfault at 0 ip 0 sp 0 error 4 in {BAD}[5+1]",
)
"""What a user brings about who names a program, or its file, so."""


@pytest.mark.parametrize("program", ["journalctl", "dmesg"])
def test_a_user_s_program_forges_no_word_of_the_kernel_s_and_hides_none(host: Host, program: str) -> None:
    stamp = "1763800001.000000 gpu1 kernel: " if program == "journalctl" else "[  100.500000] "
    host.text("log", "".join(f"{stamp}{line}\n" for line in (*REAL, *FORGED * 9)))
    host.program(program, f"#!/bin/sh\ncat {host.root}/log\n")
    assert host.read().log == REAL
