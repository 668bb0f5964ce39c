"""The probe of EFA, run on a tree of files as hosts have them."""

from __future__ import annotations

from pathlib import Path

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.rdma.efa import EFA, Efa, EfaKernel, domains, parse
from tests.capabilities.efa_host import NAMES, PLUGIN, fi_info
from tests.facts.probes.rdma.erdma_tree import run, write

KERNEL = "6.1.0-47-amd64"
MODINFO = """case "$*" in
  *"-n efa") echo /lib/modules/6.1.0-47-amd64/updates/dkms/efa.ko ;;
  *"-F version efa") echo 3.1.0 ;;
  *"-F srcversion efa") echo ABC ;;
  *"-n ib_core") echo /lib/modules/6.1.0-47-amd64/kernel/drivers/infiniband/core/ib_core.ko ;;
esac"""


def tree(root: Path, loaded: str = "ABC", version: str = "3.1.0") -> None:
    device = root / "sys/class/infiniband/rdmap16s27"
    function = root / "sys/bus/pci/devices/0000:10:1b.0"
    write(root, {
        "sys/class/dmi/id/product_name": "p4d.24xlarge\n", f"lib/modules/{KERNEL}/modules.dep": "",
        "sys/bus/pci/devices/0000:10:1b.0/vendor": "0x1d0f\n", "sys/bus/pci/devices/0000:10:1b.0/device": "0xefa0\n",
        "sys/bus/pci/devices/0000:20:1b.0/vendor": "0x1d0f\n", "sys/bus/pci/devices/0000:20:1b.0/device": "0xefa1\n",
        "sys/bus/pci/devices/0000:00:05.0/vendor": "0x1d0f\n", "sys/bus/pci/devices/0000:00:05.0/device": "0xec20\n",
        "sys/bus/pci/devices/0000:00:06.0/vendor": "0x10de\n", "sys/bus/pci/devices/0000:00:06.0/device": "0xefa0\n",
        "sys/bus/pci/devices/0000:10:1b.0/p2p": "NVIDIA peer memory\n", "drivers/efa/x": "",
        "sys/module/efa/refcnt": "0\n",
        "sys/class/infiniband_verbs/uverbs0/ibdev": "rdmap16s27\n",
        "opt/amazon/efa_installed_packages": "# EFA installer version: 1.47.0\n# Debug packages installed: "
                                             "no\nefa-config 1.18\n",
        "var/lib/gpuprov/efa.json": '{"sha256": "x",\n "options": []}\n',
        "etc/environment": 'PATH="/bin"\nFI_PROVIDER="efa"\n#FI_NO=1\n',
        "etc/profile.d/mpi.sh": "export RDMAV_FORK_SAFE=1\nMY_FI_X=2\n",
    })  # fmt: skip
    shown = {"sys/module/efa/version": version, "sys/module/efa/srcversion": loaded}
    write(root, {path: f"{text}\n" for path, text in shown.items() if text})
    (function / "driver").symlink_to(root / "drivers/efa")
    device.mkdir(parents=True)
    (device / "device").symlink_to(function)


def read(root: Path, **programs: str) -> Efa:
    told = "\n".join(fi_info(NAMES[0]))
    given = {
        "modinfo": MODINFO, "fi_info": f"cat <<'E'\n{told}\nE", "dpkg-query": "echo 'package|libnccl-ofi|1.17.2-1'",
        "ldconfig": f"printf '\\tlibnccl-net.so (libc6,x86-64) => {PLUGIN}\\n\\tlibm.so.6 (libc6,x86-64) => "
                    "/lib/libm.so.6\\n'",
    }  # fmt: skip
    script = EFA.script.replace(" /opt/amazon/", f" {root}/opt/amazon/").replace(
        "=/opt/amazon/", f"={root}/opt/amazon/"
    )
    done = run(root, script, **{**given, **programs})
    assert done.returncode == 0, done.stderr
    return parse(Output(done.stdout))


def test_an_instance_with_it(tmp_path: Path) -> None:
    tree(tmp_path)
    write(tmp_path, {"proc/88/comm": "x\ncore|/forged\n", "proc/88/fd/1": ""})
    (tmp_path / "proc/88/fd/7").symlink_to("/dev/infiniband/uverbs0")
    state = read(tmp_path)
    assert state.users == (("88", "x"),)
    assert state.product == "p4d.24xlarge"
    assert state.functions == (("0000:10:1b.0", "efa"), ("0000:20:1b.0", ""))
    assert (state.loaded, state.version, state.stale) == (True, "3.1.0", False)
    ko = f"/lib/modules/{KERNEL}/updates/dkms/efa.ko"
    assert state.running == EfaKernel(release=KERNEL, running=True, path=ko, version="3.1.0")
    assert state.p2p == {"rdmap16s27": "NVIDIA peer memory"}
    assert (state.installer, state.record) == ("1.47.0", '{"sha256": "x", "options": []}')
    assert (state.domains, state.complaint) == (("rdmap16s27",), "")
    assert (state.plugins, state.packages) == ((PLUGIN,), {"libnccl-ofi": "1.17.2-1"})
    assert [(Path(file).name, name, value) for file, name, value in state.environment] == [
        ("environment", "FI_PROVIDER", "efa"),
        ("mpi.sh", "RDMAV_FORK_SAFE", "1"),
    ]
    assert state.core.endswith("/kernel/drivers/infiniband/core/ib_core.ko")


def test_another_build_and_no_endpoint(tmp_path: Path) -> None:
    tree(tmp_path, loaded="OLD")
    state = read(tmp_path, fi_info="echo 'fi_getinfo: -61' >&2; exit 61")
    assert (state.stale, state.domains, state.complaint) == (True, (), "fi_getinfo: -61")


def test_the_kernels_own_has_neither_version_nor_srcversion(tmp_path: Path) -> None:
    tree(tmp_path, loaded="", version="")
    state = read(tmp_path)
    assert (state.loaded, state.version, state.stale) == (True, "", True), "AWS's is on disk"
    state = read(tmp_path, modinfo='case "$*" in *"-n efa") echo /lib/x/efa.ko ;; esac')
    assert (state.loaded, state.version, state.stale) == (True, "", False), "the one on disk is the kernel's own, too"
    assert not read(tmp_path, modinfo="exit 1").stale, "there is none on disk"


def test_the_plugins_are_told_in_the_linkers_order(tmp_path: Path) -> None:
    tree(tmp_path)
    other, line = "/usr/local/lib/libnccl-net.so", "\\tlibnccl-net.so (libc6,x86-64) => {}\\n"
    state = read(tmp_path, ldconfig=f"printf '{line.format(other)}{line.format(PLUGIN)}{line.format(PLUGIN)}'")
    assert state.plugins == (other, PLUGIN)


def test_a_host_without(tmp_path: Path) -> None:
    write(tmp_path, {"sys/bus/pci/x": "", "lib/modules/x": "", "etc/x": ""})
    nothing = {"modinfo": "exit 1", "ldconfig": "true", "dpkg-query": "exit 1"}
    (tmp_path / "bin").mkdir()
    state = read(tmp_path, **nothing, fi_info="exit 1")
    assert (state.functions, state.loaded, state.kernels, state.plugins, state.domains) == ((), False, (), (), ())


def test_domains_of_each_fabric_and_kind_are_one_device() -> None:
    text = "domain: rdmap47s0-rdm\n  domain: rdmap47s0-rdm\n domain: rdmap47s0-dgrm\n domain: efa_0-rdm\n"
    assert domains(text) == ("rdmap47s0", "efa_0")
    assert domains("provider: tcp\n") == ()
