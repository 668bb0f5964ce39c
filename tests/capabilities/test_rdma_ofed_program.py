"""The programs that build OFED's modules, restart openibd and add its package source, run beside stand-ins of what they call."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpuprov import assets
from gpuprov.catalog import rdma_ofed as catalogue
from tests.capabilities.roce_host import put

FILES = assets.root() / "roles/rdma/files"
PLACES = (
    "/sys/module",
    "/sys/class/net",
    "/lib/modules",
    "/boot/",
    "/var/lib/dkms",
    "/proc/[0-9]*",
    "/proc/$pid",
    "/etc/apt",
    "/etc/yum.repos.d",
)
LISTS = (
    " ".join(catalogue.modules("core")),
    " ".join(catalogue.modules("peer") + catalogue.modules("storage")),
    " ".join(catalogue.modules("dkms")),
    " ".join(catalogue.modules("other")),
)
OFED = (
    'm=; for w in "$@"; do m=$w; done; case "$1$2" in -Fsrcversion) echo A1 ;; -Fversion) echo 25.10 ;; '
    "-n*) echo /lib/modules/k/{}/$m.ko ;; esac"
)


def run(root: Path, program: str, *words: str, **programs: str) -> subprocess.CompletedProcess[str]:
    folder = root / "bin"
    folder.mkdir(exist_ok=True)
    record = f'echo "$(basename "$0") $*" >>{root}/calls'
    bodies = {"modinfo": OFED.format("updates/dkms"), "ip": "exit 1", "journalctl": "echo its last words"}
    bodies |= dict.fromkeys(("modprobe", "systemctl", "dkms", "dpkg", "apt-get", "rpm", "dnf", "dpkg-deb"), record)
    for name, body in {**bodies, **{name.replace("_", "-"): body for name, body in programs.items()}}.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    text = (FILES / program).read_text(encoding="utf-8")
    for place in PLACES:
        # What modinfo says is no folder that is looked into.
        text = text.replace(*(place, f"{root}{place}") if place != "/lib/modules" else ("in /lib", f"in {root}/lib"))
    env = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}
    command = ["sh", "-c", text, program, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20, env=env)


def ofed(root: Path, verb: str, **programs: str) -> subprocess.CompletedProcess[str]:
    return run(root, "ofed.sh", verb, *LISTS, **programs)


def calls(root: Path) -> list[str]:
    file = root / "calls"
    return file.read_text().splitlines() if file.exists() else []


def memory(root: Path, *, checksum: str = "A1") -> None:
    put(root / "sys/module", {f"{name}/srcversion": checksum for name in catalogue.modules("core")})
    put(root / "sys/module", {f"{name}/version": "25.10" for name in catalogue.modules("core")})


def test_state(tmp_path: Path) -> None:
    memory(tmp_path)
    assert (ofed(tmp_path, "state").stdout, calls(tmp_path)) == ("", [])
    memory(tmp_path, checksum="B2")
    put(tmp_path / "sys/module", {"nvme_rdma/refcnt": "3", "nvidia_peermem/refcnt": "0"})
    (tmp_path / "proc/77/fd").mkdir(parents=True)
    (tmp_path / "proc/77/fd/5").symlink_to("/dev/infiniband/uverbs1")
    put(tmp_path / "proc/77", {"comm": "python3"})
    (tmp_path / "sys/class/net/eth0/device").mkdir(parents=True)
    (tmp_path / "sys/class/net/eth0/device/driver").symlink_to("../../drivers/mlx5_core")
    put(tmp_path, {"lib/modules/6.8.0-88/build/Makefile": "", "var/lib/dkms/iser/25.10/source/dkms.conf": ""})
    done = ofed(tmp_path, "state", ip="echo 'default via 192.0.2.1 dev eth0 proto static'")
    assert (done.stdout.splitlines(), done.stderr) == (
        [
            "wrong|ib_core", "wrong|mlx5_core", "wrong|mlx5_ib",
            "holds|nvme_rdma is in use", "holds|python3 (77) has an RDMA device open",
            "holds|the default route runs over eth0, which would go down",
            "unbuilt|6.8.0-88|iser|25.10",
        ], "",
    )  # fmt: skip
    assert ofed(tmp_path, "state", modinfo=OFED.format("kernel/drivers")).stdout.startswith("wrong|ib_core\n")


def link(root: Path, netdev: str, lower: str = "") -> None:
    folder = root / "sys/class/net" / netdev
    (folder / ("" if lower else "device")).mkdir(parents=True)
    if lower:
        (folder / f"lower_{lower}").symlink_to(f"../{lower}")
    else:
        (folder / "device/driver").symlink_to("../../drivers/mlx5_core")


def test_what_a_restart_would_cut_off(tmp_path: Path) -> None:
    """A bond and its VLAN above an adapter, of IPv6 alone, and connections over an interface that has no default route."""
    link(tmp_path, "ens1")
    link(tmp_path, "bond0", "ens1")
    link(tmp_path, "bond0.7", "bond0")
    ip = """case "$*" in '-6 -o route'*) echo 'default via fe80::1 dev bond0.7 proto ra metric 9' ;;
      *'dev ens1') echo '2: ens1    inet 192.0.2.7/24 brd 192.0.2.255 scope global ens1';
        echo '2: ens1    inet6 2001:db8::7/64 scope global' ;; esac"""
    ss = """case "$*" in *'src 192.0.2.7') echo '0 0 192.0.2.7:22 192.0.2.1:5000' ;; *'src [2001:db8::7]') echo nfs ;; esac"""
    done = ofed(tmp_path, "state", ip=ip, ss=ss)
    assert (done.stdout.splitlines(), done.stderr) == (
        [
            "holds|the default route runs over bond0.7, which would go down",
            "holds|2 TCP connections run over ens1, which would go down",
        ], "",
    )  # fmt: skip
    done = ofed(tmp_path, "restart", ip=ip, ss=ss)
    assert (done.returncode, calls(tmp_path)) == (1, [])


@pytest.mark.parametrize("file", ["/usr/lib/modules/k/kernel/drivers/x.ko", "(builtin)", ""])
def test_a_module_of_the_kernels_own_wherever_it_is(tmp_path: Path, file: str) -> None:
    memory(tmp_path)
    assert (
        "wrong|ib_core" in ofed(tmp_path, "state", modinfo=OFED.replace("/lib/modules/k/{}/$m.ko", f"'{file}'")).stdout
    )


def test_a_module_of_others_that_is_in_use_is_never_taken_away(tmp_path: Path) -> None:
    memory(tmp_path)
    put(tmp_path / "sys/module", {"ko2iblnd/refcnt": "4"})
    done = ofed(tmp_path, "restart")
    assert (done.returncode, calls(tmp_path)) == (1, [])
    assert done.stderr == "ofed: openibd is not restarted: ko2iblnd is in use\n"
    put(tmp_path / "sys/module", {"ko2iblnd/refcnt": "0"})
    ofed(tmp_path, "restart")
    assert calls(tmp_path) == ["systemctl restart openibd.service"]


def test_headers_of_a_kernel_that_is_gone_are_left_alone(tmp_path: Path) -> None:
    put(tmp_path, {f"lib/modules/{kernel}/build/Makefile": "" for kernel in ("6.8.0-88", "6.8.0-90")})
    put(tmp_path, {"boot/vmlinuz-6.8.0-90": "", "var/lib/dkms/iser/25.10/source/dkms.conf": ""})
    assert ofed(tmp_path, "state").stdout == "unbuilt|6.8.0-90|iser|25.10\n"


def test_restart_unloads_what_holds_ib_core_first(tmp_path: Path) -> None:
    memory(tmp_path)
    put(tmp_path / "sys/module", {"nvidia_peermem/refcnt": "0", "ib_srp/refcnt": "0"})
    done = ofed(tmp_path, "restart")
    assert (done.returncode, done.stderr) == (0, "")
    assert calls(tmp_path) == ["modprobe -r nvidia_peermem", "modprobe -r ib_srp", "systemctl restart openibd.service"]


def test_restart_is_refused_while_something_is_in_use(tmp_path: Path) -> None:
    put(tmp_path / "sys/module", {"nvidia_peermem/refcnt": "2", "nvme_rdma/refcnt": "1", "ib_srp/refcnt": "0"})
    done = ofed(tmp_path, "restart")
    assert (done.returncode, calls(tmp_path)) == (1, [])
    assert done.stderr == "ofed: openibd is not restarted: nvidia_peermem is in use;nvme_rdma is in use\n"


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        ({"modprobe": "exit 1"}, "ofed: nvidia_peermem cannot be unloaded, and openibd was not restarted\n"),
        ({"systemctl": "exit 1"}, "ofed: openibd.service failed: its last words\n"),
        (
            {"modinfo": OFED.format("kernel/drivers")},
            "ofed: openibd ran, and ib_core mlx5_core mlx5_ib is still not OFED's",
        ),
    ],
)
def test_what_goes_wrong_at_a_restart(tmp_path: Path, programs: dict[str, str], said: str) -> None:
    memory(tmp_path)
    put(tmp_path / "sys/module", {"nvidia_peermem/refcnt": "0"})
    done = ofed(tmp_path, "restart", **programs)
    assert done.returncode == 1
    assert said in done.stderr


def test_what_is_not_built_is_built_in_its_order(tmp_path: Path) -> None:
    put(tmp_path, {f"lib/modules/{kernel}/build/Makefile": "" for kernel in ("6.8.0-88", "6.8.0-90")})
    put(tmp_path, {"lib/modules/6.8.0-91/modules.dep": ""})
    put(tmp_path / "var/lib/dkms", {f"{name}/25.10/source/dkms.conf": "" for name in ("iser", "mlnx-ofed-kernel")})
    (tmp_path / "var/lib/dkms/mlnx-ofed-kernel/25.10/6.8.0-88/x86_64/module").mkdir(parents=True)
    done = ofed(tmp_path, "build")
    assert (done.returncode, done.stderr) == (0, "")
    assert calls(tmp_path) == [
        "dkms install iser/25.10 -k 6.8.0-88",
        "dkms install mlnx-ofed-kernel/25.10 -k 6.8.0-90",
        "dkms install iser/25.10 -k 6.8.0-90",
    ]
    done = ofed(tmp_path, "build", dkms="echo; echo 'Error! Bad return status for module build'; exit 10")
    assert done.returncode == 1
    assert "iser/25.10 for 6.8.0-90 (Error! Bad return status for module build)" in done.stderr


def test_the_package_source_of_a_deb(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "etc/apt/sources.list.d/doca.list": "deb file:/usr/share/doca-host-3.2.1/repo ./",
            "etc/apt/sources.list.d/other.list": "",
        },
    )
    done = run(tmp_path, "ofed_source.sh", "/x/doca.deb", dpkg_deb="echo doca-host")
    assert (done.returncode, done.stderr) == (0, "")
    assert calls(tmp_path)[0] == "dpkg -i /x/doca.deb"
    assert f"sourcelist={tmp_path}/etc/apt/sources.list.d/doca.list" in calls(tmp_path)[1]
    assert len(calls(tmp_path)) == 2


@pytest.mark.parametrize(
    ("file", "programs", "said"),
    [
        ("/x/a.deb", {"dpkg_deb": "exit 2"}, "it is no Debian package"),
        ("/x/a.deb", {"dpkg_deb": "echo hello"}, "it is hello, not doca-host"),
        (
            "/x/a.deb",
            {"dpkg_deb": "echo doca-host", "dpkg": "echo dpkg: error: locked; exit 2"},
            "dpkg -i: dpkg: error: locked",
        ),
        ("/x/a.deb", {"dpkg_deb": "echo doca-host"}, "it brought no package source for apt"),
        ("/x/a.rpm", {"rpm": "[ $1 = -qp ] && exit 1"}, "it is no rpm package"),
        ("/x/a.rpm", {"rpm": "[ $1 = -qp ] && echo hello"}, "it is hello, not doca-host"),
        ("/x/a.rpm", {"rpm": "[ $1 = -qp ] && echo doca-host || { echo conflict; exit 1; }"}, "rpm -U: conflict"),
        ("/x/a.rpm", {"rpm": "[ $1 = -qp ] && echo doca-host || true"}, "it brought no package source for dnf"),
    ],
)
def test_package_sources_that_cannot_be_added(tmp_path: Path, file: str, programs: dict[str, str], said: str) -> None:
    done = run(tmp_path, "ofed_source.sh", file, **programs)
    assert done.returncode == 1
    assert done.stderr.strip() == said
