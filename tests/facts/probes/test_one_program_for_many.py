"""One program is asked for many items: each answer is taken for its own item."""

from __future__ import annotations

from pathlib import Path

from gpuprov.facts.probes.gpus import fabric
from gpuprov.facts.probes.host import systemd
from gpuprov.facts.probes.kernel import boot, limits, modules, signing
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec
from tests.facts.probes import run_well

UNITS = """case $1 in get-default) echo multi-user.target ;; show)
printf 'Id=systemd-sysctl.service\\nUnitFileState=masked\\n\\nId=sysinit.target\\nUnitFileState=static\\n\\n'
printf 'Id=basic.target\\nUnitFileState=masked-runtime\\n\\nId=multi-user.target\\nUnitFileState=masked\\n' ;; esac"""


def test_masked_units(tmp_path: Path) -> None:
    found = systemd.parse_target(run_well(systemd.BOOT_TARGET.script, tmp_path, {"systemctl": UNITS}))
    assert found == systemd.BootTarget("multi-user.target", ("systemd-sysctl.service", "multi-user.target"))


def test_sysctls_of_the_spec_alone(tmp_path: Path) -> None:
    """One whose name looks like an option is a name all the same."""
    block = Kernel(sysctl={"vm.swappiness": 1, "-p.conf": 1})
    programs = {"sysctl": 'for x; do echo "$x = 1"; done'}
    probe = boot.SYSCTL.of(HostSpec(name="gpu1", capabilities={"kernel": block}))
    read = run_well(probe.script, tmp_path, programs).text.splitlines()
    assert read == [f"{name} = 1" for name in ("--", "kernel.osrelease", "kernel.numa_balancing", *block.sysctl)]
    assert run_well(boot.SYSCTL.script, tmp_path, programs).text == "-a = 1\n", "without a spec all of them"


def test_the_signatures_of_modules(tmp_path: Path) -> None:
    """kmod wraps a key; of one that it cannot read, and of one without a signature, nothing is known."""
    folder = tmp_path / "lib/modules/6.1.0-57-amd64/updates"
    folder.mkdir(parents=True)
    for name in ("nvidia", "nvidia-drm", "nvidia-modeset", "nvidia-uvm"):
        (folder / f"{name}.ko.xz").touch()
    told = r"filename: x\nversion: 535\nsigner:         DKMS module key\nsig_key:        51:5C:\n\t\t0A\nsig_hashalgo: sha512\n"
    kmod = f"""case $* in *-n*) echo {folder}/nvidia.ko.xz ;; *drm*) echo 'signer: cut short'; exit 1 ;;
*modeset*) exit 1 ;; *uvm*) printf 'filename: x\\nlicense: Dual MIT/GPL\\n' ;; *) printf '{told}' ;; esac"""
    output = run_well(signing.MODULE_SIGNING.script, tmp_path, {"modinfo": kmod}, ("/lib/modules/",))
    found = {each.module: (each.kernel, each.signer, each.serial) for each in signing.parse_signing(output).modules}
    kernel = "6.1.0-57-amd64"
    assert found == {
        "nvidia": (kernel, "DKMS module key", "515c0a"),
        "nvidia-drm": (kernel, "cut short", ""),
        "nvidia-modeset": (kernel, "", ""),
        "nvidia-uvm": (kernel, "", ""),
    }


def test_the_lines_of_files_by_their_names(tmp_path: Path) -> None:
    """Of two files of one name the first folder's counts, a folder with a file's name is none, and a value may hold a
    colon."""
    for path, text in {
        "etc/sysctl.d/90-b.conf": "  vm.swappiness = 1\n# vm.swappiness = 2\n",
        "usr/lib/sysctl.d/90-b.conf": "vm.swappiness = 3\n",
        "usr/lib/sysctl.d/10-a.conf": "kernel.core_pattern = |/usr/lib/core %p:%u\nkernel.pid_max = 4\n",
        "etc/modprobe.d/nvidia.conf": "\toptions nvidia NVreg_X=1\n#blacklist no\nblacklist nouveau\n",
        "etc/systemd/system.conf": "[Manager]\n#DefaultLimitCORE=1\n",
        "etc/systemd/system.conf.d/a.conf": "[Manager]\n DefaultLimitMEMLOCK = infinity\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "etc/sysctl.d/50-folder.conf").mkdir()
    places: tuple[str, ...] = ("/etc/sysctl.d/", "/usr/local/lib/sysctl.d/", "/usr/lib/sysctl.d/")
    assert boot.parse_sysctl_at_boot(run_well(boot.SYSCTL_AT_BOOT.script, tmp_path, {}, places)) == {
        "kernel.core_pattern": ("|/usr/lib/core %p:%u", f"{tmp_path}/usr/lib/sysctl.d/10-a.conf"),
        "kernel.pid_max": ("4", f"{tmp_path}/usr/lib/sysctl.d/10-a.conf"),
        "vm.swappiness": ("1", f"{tmp_path}/etc/sysctl.d/90-b.conf"),
    }
    places = ("/etc/modprobe.d/", "/run/modprobe.d/", "/usr/local/lib/modprobe.d/", "/usr/lib/modprobe.d/")
    merged = {"modprobe": "echo 'blacklist nouveau'"}
    known = modules.parse_modprobe(run_well(modules.MODPROBE.script, tmp_path, merged, places))
    file = f"{tmp_path}/etc/modprobe.d/nvidia.conf"
    assert known.places == {("options", "nvidia", "NVreg_X"): [file], ("blacklist", "nouveau"): [file]}
    places = ("/etc/systemd", "/usr/local/lib/systemd", "/etc/pam.d", "/etc/ssh")
    script = limits.LIMIT_SOURCES.script.replace("/usr/lib", f"{tmp_path}/usr/lib").replace(
        f"/usr/local{tmp_path}", f"{tmp_path}/usr/local"
    )
    sources = limits.parse(run_well(script, tmp_path, {}, places))
    assert sources.services == {"DefaultLimitMEMLOCK": ("infinity", f"{tmp_path}/etc/systemd/system.conf.d/a.conf")}


def test_the_last_lines_of_the_daemon_and_of_its_errors(tmp_path: Path) -> None:
    said = "for n in $(seq 70); do echo line $n; echo detected NVSwitch fatal error $n on fid 0; done"
    shown = "printf 'ControlGroup=\\nInvocationID=0a1b\\nMainPID=0\\n'"
    output = run_well(fabric.DAEMON.script, tmp_path, {"systemctl": shown, "journalctl": said})
    found = fabric.parse_daemon(output)
    assert [found.log[0], found.log[-1], len(found.log)] == ["line 46", "detected NVSwitch fatal error 70 on fid 0", 50]
    assert [len(found.errors), found.errors[0][:35]] == [20, "detected NVSwitch fatal error 51 on"]
    few = run_well(fabric.DAEMON.script, tmp_path, {"systemctl": shown, "journalctl": "echo one; echo two"})
    assert (fabric.parse_daemon(few).log, fabric.parse_daemon(few).errors) == (("one", "two"), ())
