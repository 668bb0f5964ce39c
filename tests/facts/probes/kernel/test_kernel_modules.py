"""For which kernel the NVIDIA module on disk is: the probe's snippet over a tree of kernels, with kmod's answers made
up."""

from __future__ import annotations

import gzip
from pathlib import Path

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.kernel import modules
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec
from tests.facts.probes import run_script, run_well

OLD, NEW = "5.14.0-503.40.1.el9_5.x86_64", "5.14.0-570.12.1.el9_6.x86_64"
KMOD = """[ "$1" = --dump-modversions ] && { cat "$2.asks"; exit; }
d={root}/lib/modules/$2
case $5$4 in
nvidiaversion | versionnvidia) [ -e $d/nvidia ] && echo 570.86.15 ;;
nvidiavermagic | vermagicnvidia) sed 's/$/ SMP preempt mod_unload modversions/' $d/nvidia ;;
nvidia-uvmlicense | licensenvidia-uvm) [ ! -e "$d/no-uvm" ] && echo 'Dual MIT/GPL' ;;
nvidia-*version) cat "$d/$5.version" ;;
nvidia) sed -n 2p $d/place 2>/dev/null || true; cat $d/place ;;
*) exit 1 ;;
esac
"""


def read(root: Path) -> dict[str, modules.KernelModules]:
    kmod = KMOD.replace("{root}", str(root))
    answers = {"uname": f"echo {OLD}", "systemd-detect-virt": f"test -e {root}/container"}
    moved = ("/lib/modules/", "/boot/", "/run/.containerenv")
    output = run_well(modules.KERNELS.script, root, {"modinfo": kmod, "modprobe": kmod, **answers}, moved)
    return {kernel.release: kernel for kernel in modules.parse_kernels(output)}


def kernel(
    root: Path, release: str, made_for: str = "", place: str = "extra/nvidia.ko.xz", *, headers: bool = True
) -> Path:
    """A kernel with (or without) a module that was made for another; its folder."""
    folder = root / "lib/modules" / release
    (folder / "build").mkdir(parents=True)
    (root / "boot").mkdir(exist_ok=True)
    (root / "boot" / f"vmlinuz-{release}").touch()
    if headers:
        (folder / "build/Makefile").touch()
    if made_for:
        (folder / "nvidia").write_text(f"{made_for}\n")
        (folder / "place").write_text(f"{folder}/{place}\n")
    return folder


def test_a_module_for_its_own_kernel_and_one_for_another(tmp_path: Path) -> None:
    kernel(tmp_path, OLD, OLD)
    kernel(tmp_path, NEW, OLD)
    found = read(tmp_path)
    assert (found[OLD].built, found[OLD].alien) == (OLD, False)
    assert (found[NEW].nvidia, found[NEW].built, found[NEW].alien) == ("570.86.15", OLD, True)
    assert (found[OLD].runs, found[NEW].runs) == (True, False)


def test_what_the_distribution_has_linked_fits(tmp_path: Path) -> None:
    kernel(tmp_path, NEW, OLD, "weak-updates/nvidia/nvidia.ko")
    assert not read(tmp_path)[NEW].alien


def test_symbol_versions_decide_where_the_kernel_has_them(tmp_path: Path) -> None:
    """EL keeps them stable: a module of another kernel is loaded where all that it asks for agree."""
    folder = kernel(tmp_path, NEW, OLD)
    (folder / "extra").mkdir()
    (folder / "extra/nvidia.ko.xz.asks").write_text("0x11111111\t_printk\n0x22222222\tkmalloc\n")
    for there, alien in (
        (
            "0x11111111\t_printk\tvmlinux\tEXPORT\n0x22222222\tkmalloc\tvmlinux\tEXPORT\n0x3\tx\tvmlinux\tEXPORT\n",
            False,
        ),
        ("0x11111111\t_printk\tvmlinux\tEXPORT\n0x99999999\tkmalloc\tvmlinux\tEXPORT\n", True),
        ("0x11111111\t_printk\tvmlinux\tEXPORT\n", True),
        ("", True),
    ):
        (folder / "symvers.gz").write_bytes(gzip.compress(there.encode()))
        assert read(tmp_path)[NEW].alien is alien, there
    (folder / "extra/nvidia.ko.xz.asks").write_text("")
    assert read(tmp_path)[NEW].alien, "a module without symbol versions fits its own kernel only"


def test_no_module_and_what_runs(tmp_path: Path) -> None:
    kernel(tmp_path, OLD, headers=False)
    kernel(tmp_path, NEW, headers=False)
    found = read(tmp_path)
    assert (found[OLD].nvidia, found[OLD].built, found[OLD].alien) == ("", "", False)
    assert (found[OLD].runs, found[NEW].runs) == (True, False)


def test_a_kernel_that_is_not_called_vmlinuz(tmp_path: Path) -> None:
    """SLES has /boot/Image-K on aarch64 (https://github.com/SUSE/kernel-source, rpm/kernel-binary.spec.in); where the
    image was built into another, or /boot is no part of the system, as with ostree, it lies beside the modules."""
    kernel(tmp_path, OLD, headers=False)
    (tmp_path / "boot" / f"vmlinuz-{OLD}").rename(tmp_path / "boot" / f"Image-{OLD}")
    kernel(tmp_path, NEW, headers=False)
    (tmp_path / "boot" / f"vmlinuz-{NEW}").unlink()
    (tmp_path / "lib/modules" / NEW / "vmlinuz").touch()
    found = read(tmp_path)
    assert (found[OLD].bootable, found[NEW].bootable) == (True, False), "one that was not put into /boot does not boot"
    (tmp_path / "boot" / f"Image-{OLD}").unlink()
    assert {name: one.bootable for name, one in read(tmp_path).items()} == {NEW: True}
    (tmp_path / "container").touch()
    assert read(tmp_path) == {}, "what a container sees of it is the machine's"


def test_a_module_of_another_version_beside_it(tmp_path: Path) -> None:
    """https://github.com/void-linux/void-packages/issues/4473: "nvidia-modeset: Version mismatch"."""
    folder = kernel(tmp_path, OLD, OLD)
    (folder / "nvidia-uvm.version").write_text("570.86.15\n")
    assert read(tmp_path)[OLD].strays == ()
    (folder / "nvidia-modeset.version").write_text("390.87\n")
    assert read(tmp_path)[OLD].strays == ("nvidia-modeset=390.87",)


def test_the_module_that_cuda_needs_is_missing_or_damaged(tmp_path: Path) -> None:
    folder = kernel(tmp_path, OLD, OLD)
    assert read(tmp_path)[OLD].missing == ()
    (folder / "no-uvm").touch()
    found = read(tmp_path)[OLD]
    assert (found.missing, found.strays, found.nvidia) == (("nvidia-uvm",), (), "570.86.15")


ANSWERS = """# What kmod 30 answers to `modinfo -k RELEASE -n NAME` and `modinfo -k RELEASE -F vermagic NAME`.
case "$2 $3 $4 $5" in
"{new} -n lustre ") echo {root}/lib/modules/{new}/updates/lustre.ko ;;
"{new} -F vermagic lustre") echo "{old} SMP preempt mod_unload modversions" ;;
"{new} -n fuse ") echo "(builtin)" ;;
"{old} -n lustre ") echo {root}/lib/modules/{old}/updates/lustre.ko ;;
"{old} -F vermagic lustre") echo "{old} SMP preempt mod_unload modversions" ;;
*) echo "modinfo: ERROR: Module $4 not found." >&2; exit 1 ;;
esac
"""


def test_the_sites_modules_are_asked_for_of_each_kernel(tmp_path: Path) -> None:
    for release in (OLD, NEW):
        kernel(tmp_path, release).joinpath("modules.dep").touch()
    (tmp_path / "lib/modules/0-left").mkdir()  # a folder that depmod has not seen
    spec = HostSpec(name="gpu1", capabilities={"kernel": Kernel(modules_built=("lustre", "fuse"))})
    answers = {"modinfo": ANSWERS.format(root=tmp_path, old=OLD, new=NEW)}
    output = run_well(modules.BUILT.of(spec).script, tmp_path, answers, ["/lib/modules/"])
    found = {(module.release, module.name): module for module in modules.parse_built(output)}
    assert {key: module.fits for key, module in found.items()} == {
        (OLD, "lustre"): True,
        (OLD, "fuse"): False,
        (NEW, "lustre"): False,
        (NEW, "fuse"): True,
    }
    assert found[NEW, "lustre"].kernel == OLD


def test_a_kernel_built_without_modules_has_loaded_none(tmp_path: Path) -> None:
    """Not the same as /proc that cannot be read: nobody would know which modules are loaded."""
    proc = tmp_path / "proc"
    (proc / "sys/kernel").mkdir(parents=True)

    def ask() -> Output:
        return run_script(
            modules.LOADED.script, tmp_path, {}, ("/proc/version", "/proc/modules", "/proc/sys/kernel/modprobe")
        )

    assert ask().status, "no /proc at all"
    (proc / "version").touch()
    assert modules.parse_loaded(ask()) == {}
    (proc / "sys/kernel/modprobe").touch()
    assert ask().status, "it has modules, and hides them"
    (proc / "modules").write_text("nvidia 56823808 3 nvidia_uvm, Live 0x0000000000000000\n")
    assert modules.parse_loaded(ask()) == {"nvidia": 3}
