"""DOCA-OFED on a host, read by the probe's own script from folders that look like a host's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.catalog.rdma import ofed as catalogue
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.rdma import ofed
from gpuprov.facts.probes.rdma.ofed import OFED, Kernel, Loaded, Ofed, parse
from gpuprov.spec.model import HostSpec
from tests import here
from tests.capabilities import ofed_host
from tests.capabilities.roce_host import put
from tests.facts.probes import run_well
from tests.rows import run_each

PLACES = (
    *(
        "/sys/module",
        "/sys/class/net",
        "/var/lib/dkms",
        "/lib/modules",
        "/boot/",
        "/etc/infiniband",
        "/etc/yum.repos.d",
        "/etc/apt",
        "/var/lib/gpuprov",
    ),
    *("/proc/[0-9]*", "/proc/$p"),
)
MODINFO = r"""k=6.8.0-88; f=''; for w in "$@"; do case $p in -k) k=$w ;; -F) f=$w ;; esac
  case $w in -*) ;; *) m=$w ;; esac; p=$w; done
d=$(find ROOT/lib/modules/$k -name "$m.ko" | head -n 1); [ -n "$d" ] || exit 1
case $f in srcversion) echo A1 ;; version) echo 25.10-1.7.1 ;; *) echo "$d" ;; esac"""


def read(root: Path, **programs: str) -> Ofed:
    bodies = {"uname": "echo 6.8.0-88", "modinfo": MODINFO, "systemctl": "exit 1", "journalctl": "exit 1", **programs}
    script = OFED.script.replace("[ -d /dev/infiniband ]", f"[ -d {root} ]")
    output = run_well(script, root, {name: body.replace("ROOT", str(root)) for name, body in bodies.items()}, PLACES)
    assert output.error == ""
    return parse(output)


def test_the_probe_names_the_catalogues_things() -> None:
    roles = (ofed.DKMS, ofed.CORE, ofed.STORAGE, ofed.PEERS, ofed.OTHERS)
    assert roles == tuple(catalogue.list_modules(role) for role in ("dkms", "core", "storage", "peer", "other"))
    for names, family in ((ofed.DEBS, "debian"), (ofed.RPMS, "redhat")):
        assert names == (catalogue.PROFILE, *catalogue.list_packages(family, kernel=True))


def test_a_host_with_ofed(tmp_path: Path) -> None:
    put(tmp_path / "sys/module/ib_core", {"srcversion": "A1", "version": "25.10-1.7.1"})
    put(tmp_path / "sys/module/mlx5_core", {"srcversion": "B2"})
    put(tmp_path / "sys/module/nvme_rdma", {"refcnt": "2"})
    put(tmp_path / "sys/module/nvidia_peermem", {"refcnt": "0"})
    put(tmp_path / "boot", {"vmlinuz-6.8.0-88": "", "vmlinuz-6.8.0-90": ""})
    first, second = "lib/modules/6.8.0-88", "lib/modules/6.8.0-90"
    put(tmp_path, {f"{first}/extra/erdma.ko": "", f"{first}/kernel/fs/nvidia_fs.ko": ""})
    os.utime(tmp_path / first / "extra/erdma.ko", (1, 1))
    put(tmp_path, {f"{first}/updates/dkms/{name}.ko": "" for name in ("ib_core", "mlx5_core")})
    put(tmp_path, {f"{second}/kernel/drivers/infiniband/core/ib_core.ko": "", f"{second}/build/Makefile": ""})
    put(tmp_path / "var/lib/dkms", {"mlnx-ofed-kernel/25.10/source/dkms.conf": "", "iser/25.10/source/dkms.conf": ""})
    (tmp_path / "var/lib/dkms/mlnx-ofed-kernel/25.10/6.8.0-88/x86_64/module").mkdir(parents=True)
    put(
        tmp_path / "etc/infiniband",
        {"openib.conf": '# Start\nONBOOT=yes\n  FORCE_MODE=no # so\n#SRP_LOAD=yes\nSMARTNIC_PF_MAC_CONF="a b"'},
    )
    put(
        tmp_path / "etc/apt/preferences.d",
        {"gpuprov-doca": "Package: dkms\nPin: release l=DOCA-HOST*\nPin-Priority: -1"},
    )
    put(
        tmp_path,
        {
            "etc/apt/sources.list.d/doca.list": "deb file:/usr/share/doca-host-3.2.1/repo ./",
            "etc/apt/sources.list.d/a": "",
        },
    )
    put(tmp_path, {"var/lib/gpuprov/doca-host/abc.deb.done": "", "var/lib/gpuprov/doca-host/abc.deb": ""})
    (tmp_path / "proc/88/fd").mkdir(parents=True)
    (tmp_path / "proc/88/fd/7").symlink_to("/dev/infiniband/uverbs0")
    (tmp_path / "proc/88/fd/8").symlink_to("/dev/infiniband/rdma_cm")
    put(tmp_path / "proc/88", {"comm": "ib_write_bw\nclient|x"})
    log = "openibd: ERROR: Module mlx5_ib belong to kernel-modules which is not a part of MLNX_OFED, skipping"
    state = read(
        tmp_path, ofed_info='echo "OFED-internal-25.10-1.7.1:"', journalctl=f'echo "{log}"',
        systemctl=r"printf 'LoadState=loaded\nActiveState=active\nUnitFileState=enabled\n'",
    )  # fmt: skip
    assert (state.info, state.release, state.running) == ("OFED-internal-25.10-1.7.1", "25.10-1.7.1", "6.8.0-88")
    file = f"{tmp_path}/{first}/updates/dkms/{{}}.ko"
    assert state.loaded == (
        Loaded(name="ib_core", checksum="A1", version="25.10-1.7.1", file=file.format("ib_core"), file_checksum="A1",
               file_version="25.10-1.7.1"),
        Loaded(name="mlx5_core", checksum="B2", file=file.format("mlx5_core"), file_checksum="A1",
               file_version="25.10-1.7.1"),
    )  # fmt: skip
    assert state.kernels == (
        Kernel(release="6.8.0-88", bootable=True, files={name: file.format(name) for name in ("ib_core", "mlx5_core")},
               built=("mlnx-ofed-kernel",), builds=(("mlnx-ofed-kernel", "25.10"),), older=("erdma",)),
        Kernel(release="6.8.0-90", bootable=True, headers=True,
               files={"ib_core": f"{tmp_path}/{second}/kernel/drivers/infiniband/core/ib_core.ko"}),
    )  # fmt: skip
    assert state.dkms == {"mlnx-ofed-kernel": "25.10", "iser": "25.10"}
    assert state.unbuilt() == [("6.8.0-90", "mlnx-ofed-kernel", "25.10"), ("6.8.0-90", "iser", "25.10")]
    assert (state.fetched, state.sources) == (("abc.deb",), (f"{tmp_path}/etc/apt/sources.list.d/doca.list",))
    assert (state.load, state.active, state.file, state.skipped) == ("loaded", "active", "enabled", ("mlx5_ib",))
    assert state.settings == {"ONBOOT": "yes", "FORCE_MODE": "no", "SMARTNIC_PF_MAC_CONF": "a"}
    assert (state.busy, state.clients, state.dkms_pinned) == ({"nvme_rdma": 2}, ("ib_write_bw (88)",), True)


def test_what_a_restart_of_openibd_would_cut_off(tmp_path: Path) -> None:
    for netdev in ("ens1", "bond0"):
        (tmp_path / "sys/class/net" / netdev).mkdir(parents=True)
    (tmp_path / "sys/class/net/ens1/device").mkdir()
    (tmp_path / "sys/class/net/ens1/device/driver").symlink_to("../../drivers/mlx5_core")
    (tmp_path / "sys/class/net/bond0/lower_ens1").symlink_to("../ens1")
    state = read(
        tmp_path,
        ip="""case "$*" in '-4 -o route'*) echo 'default via 192.0.2.1 dev bond0 proto static' ;;
          *'dev bond0') echo '3: bond0    inet 192.0.2.7/24 scope global bond0' ;; esac""",
        ss="echo 0 0 192.0.2.7:22 192.0.2.1:5000",
    )
    assert (state.uplink, state.talks) == ("bond0", {"bond0": 1})


def test_what_openibd_skipped_at_an_earlier_start_is_over(tmp_path: Path) -> None:
    log = "openibd: ERROR: Module mlx5_ib belong to kernel-modules which is not a part of MLNX_OFED, skipping"
    journal = f'case "$*" in *_SYSTEMD_INVOCATION_ID=abc*) echo started ;; *) echo "{log}" ;; esac'
    assert read(tmp_path, systemctl="echo InvocationID=abc", journalctl=journal).skipped == ()


def test_sources_of_dnf_that_offer_mft_too(tmp_path: Path) -> None:
    source = "[{}]\nname={}\nbaseurl=https://repo.example/{}/x86_64\nenabled={}\n{}"
    put(tmp_path / "etc/yum.repos.d", {
        "cuda.repo": source.format("cuda", "cuda", "cuda/repos/rhel9", 1, "") + source.format("kept", "", "cuda",
         1, "excludepkgs=mft*"),
        "off.repo": source.format("off", "off", "cuda/repos/rhel9", 0, ""),
        "doca.repo": source.format("doca", "doca", "doca", 1, ""),
    })  # fmt: skip
    assert read(tmp_path).mft_open == (f"{tmp_path}/etc/yum.repos.d/cuda.repo [cuda]",)


def test_a_host_without(tmp_path: Path) -> None:
    state = read(tmp_path)
    assert state == Ofed(running="6.8.0-88")
    assert not state.release
    assert parse(Output(ofed_host.ABSENT)).settings is None


@run_each(
    ("text", "release"),
    [
        ("OFED-internal-25.10-1.7.1", "25.10-1.7.1"),
        ("MLNX_OFED_LINUX-24.10-2.1.8.0", "24.10-2.1.8.0"),
        ("OFED-internal-25.04", "25.04"),
        ("25.10.OFED.25.10.1.7.1.1-1", "25.10-1.7.1.1"),
        ("5.1-OFED.5.1.2.5.8.1", "5.1-2.5.8.1"),
        ("1:44.0-2", ""),
        ("", ""),
    ],
)
def test_releases(text: str, release: str) -> None:
    assert ofed.release(text) == release


@run_each(
    ("file", "of_ofed"),
    [
        ("/lib/modules/6.8.0-88-generic/updates/dkms/ib_core.ko.zst", True),
        ("/lib/modules/5.14.0-570.el9.x86_64/extra/mlnx-ofa_kernel/drivers/infiniband/core/ib_core.ko", True),
        ("/lib/modules/5.14.0-570.el9.x86_64/weak-updates/mlnx-ofa_kernel/ib_core.ko", True),
        ("/lib/modules/6.8.0-88-generic/kernel/drivers/infiniband/core/ib_core.ko.zst", False),
        ("(builtin)", False),
        ("", False),
    ],
)
def test_whose_module(file: str, of_ofed: bool) -> None:
    assert ofed.of_ofed(file) == of_ofed


def test_what_is_built_is_built_in_its_version(tmp_path: Path) -> None:
    """Headers of a kernel that is gone are left alone, and so is one without headers."""
    put(tmp_path, {f"lib/modules/{kernel}/build/Makefile": "" for kernel in ("6.8.0-88", "6.8.0-90")})
    put(tmp_path, {"lib/modules/6.8.0-91/modules.dep": "", "boot/vmlinuz-6.8.0-91": "", "boot/vmlinuz-6.8.0-90": ""})
    put(tmp_path / "var/lib/dkms", {f"iser/{version}/source/dkms.conf": "" for version in ("25.07", "25.10")})
    (tmp_path / "var/lib/dkms/iser/25.07/6.8.0-90/x86_64/module").mkdir(parents=True)
    assert read(tmp_path).unbuilt() == [("6.8.0-90", "iser", "25.10")]


def test_the_index_is_read_where_ofed_is_asked_for(tmp_path: Path) -> None:
    for name in ("apt-cache", "dnf"):
        here.program(tmp_path, name, "echo asked")
    env = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"}

    def ran(script: str) -> str:
        return subprocess.run(
            ["sh", "-c", script], capture_output=True, text=True, check=True, timeout=60, env=env
        ).stdout

    def of(block: Rdma) -> str:
        return ran(ofed.INDEX.of(HostSpec(name="h", capabilities={"rdma": block})).script)

    assert of(Rdma(stack="doca-ofed")) == "asked\n"
    assert of(Rdma()) == ran(ofed.INDEX.script) == ""
