"""The driver's kernel modules put in place: by DKMS, of precompiled packages, of NVIDIA's installer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gpuprov.host_code.driver import aside, dkms, in_place
from gpuprov.host_code.driver.dkms import Failed, Source
from tests import here
from tests.host_code.modules import on_host, step
from tests.rows import run_each

KERNEL = "6.8.0-999-gpuprov"
NAME = f"linux-modules-nvidia-580-server-{KERNEL}"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Whose programs say of the module what stands in files of their fields, and write down what they are asked."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for module, names in (
        (dkms, ("TREE", "SOURCES", "KERNELS", "TOOLSETS")),
        (aside, ("TREE", "SOURCES", "SHARED", "PACKS")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, str(tmp_path / name.lower()))
    here.program(
        tmp_path,
        "modinfo",
        f'while [ $# -gt 1 ]; do [ "$1" = -F ] && f=$2; shift; done; cat {tmp_path}/"$f" 2> /dev/null\n',
    )
    here.program(tmp_path, "depmod", "true\n")
    here.program(tmp_path, "dpkg-query", f"case $1 in -L) cat {tmp_path}/files ;; *) exit 1 ;; esac\n")
    here.program(tmp_path, "dkms", f"""case $1 in status) cat {tmp_path}/status 2> /dev/null; exit 0 ;; esac
echo "$KERNEL_UNAME|$*" >> {tmp_path}/asked
[ "$1" != install ] || [ ! -e {tmp_path}/broken ] || {{ echo "Error! Bad return status"; exit 10; }}
[ "$1" != remove ] || rm -f {tmp_path}/damaged {tmp_path}/status
[ "$1" != install ] || [ -e {tmp_path}/damaged ] ||
  {{ echo 580.95.05 >{tmp_path}/version; echo GPL >{tmp_path}/license; rm -f {tmp_path}/vermagic; }}
""")  # fmt: skip
    here.program(tmp_path, "dpkg-reconfigure", f'echo "$*" >> {tmp_path}/asked; echo 580.95.05 > {tmp_path}/version\n')
    return tmp_path


def says(host: Path, **fields: str) -> None:
    for name, text in fields.items():
        (host / name).write_text(f"{text}\n")


def asked(host: Path) -> list[str]:
    return (host / "asked").read_text().splitlines() if (host / "asked").exists() else []


def sources(host: Path, folder: str = "nvidia-580.95.05", version: str = "580.95.05", name: str = "nvidia") -> Path:
    conf = host / "sources" / folder / "dkms.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text(f'PACKAGE_NAME="{name}"\nPACKAGE_VERSION="{version}"\n')
    (host / "files").write_text(f"/usr/share/doc/x\n{conf}\n")
    return conf


def test_a_package_without_dkms_conf_is_refused(host: Path) -> None:
    (host / "files").write_text("/usr/share/doc/nvidia\n")
    with pytest.raises(Failed, match=r"nvidia-dkms has no dkms.conf below .* install nvidia-dkms anew"):
        in_place.install("debian", "nvidia-dkms", "nvidia", "open", [KERNEL], "")
    here.program(host, "dpkg-query", "exit 1\n")
    with pytest.raises(Failed, match="nvidia-dkms is not installed"):
        in_place.install("debian", "nvidia-dkms", "nvidia", "open", [KERNEL], "")
    assert asked(host) == []


def installs(host: Path, *, flavour: str = "open", pack: str = "", family: str = "debian") -> list[str]:
    return in_place.install(family, "nvidia-dkms", "nvidia", flavour, [KERNEL], pack)


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ({}, True),
        ({"version": "580.65.06"}, False),
        ({"license": "NVIDIA"}, False),
        ({"vermagic": "6.1.0-1 SMP"}, False),
        ({"vermagic": "6.1.0-1 SMP", "filename": f"/lib/modules/{KERNEL}/weak-updates/nvidia.ko"}, True),
        ({"status": ""}, False),
    ],
    ids=["right", "version", "flavour", "of another kernel", "that fits", "DKMS does not know it"],
)
def test_a_kernel_that_lacks_its_modules_gets_them(host: Path, said: dict[str, str], *, right: bool) -> None:
    """DKMS says installed also where the file is gone, or is of the other flavour."""
    sources(host)
    good = {"version": "580.95.05", "license": "Dual MIT/GPL", "vermagic": f"{KERNEL} SMP", "filename": "/x/nvidia.ko"}
    says(
        host,
        status=f"nvidia/580.95.05, {KERNEL}, x86_64: installed",
        **{k: v for k, v in good.items() if k not in said},
    )
    says(host, **said)
    (host / "tree/nvidia/original_module").mkdir(parents=True)
    assert in_place.list_kernels_without("debian", "nvidia-dkms", "nvidia", "open", [KERNEL]) == (
        [] if right else [KERNEL]
    )
    assert installs(host) == ([] if right else [KERNEL])
    install = f"{KERNEL}|install --force -m nvidia -v 580.95.05 -k {KERNEL}"
    assert asked(host) == ([] if right else [install])
    assert not (host / "tree/nvidia/original_module").exists(), "what DKMS would put back when it goes"


def test_on_other_families_dkms_forgets_what_is_wrong_and_takes_what_was_built_aside(host: Path) -> None:
    sources(host)
    here.program(host, "rpm", f"cat {host}/files\n")
    says(host, status="nvidia/580.95.05: installed", version="570.1")
    assert installs(host, family="redhat", pack="/pack") == [KERNEL]
    assert [one.split("|")[1].split()[0] for one in asked(host)] == ["unbuild", "install"]
    (host / "asked").unlink()
    says(host, status="nvidia/580.95.05: added")
    installs(host, family="redhat", pack="/pack")
    assert [one.split("|")[1].split()[0] for one in asked(host)] == ["ldtarball", "install"]


@pytest.mark.parametrize(("family", "pack"), [("debian", ""), ("debian", "/pack"), ("redhat", "")])
def test_modules_that_are_cut_off_in_dkms_s_own_tree_are_built_anew(host: Path, family: str, pack: str) -> None:
    """As a power cut leaves them that DKMS calls installed (campaign 19:62): to install them again brings the same
    again."""
    sources(host)
    here.program(host, "rpm", f"cat {host}/files\n")
    says(host, status=f"nvidia/580.95.05, {KERNEL}, x86_64: installed", damaged="")
    assert installs(host, family=family, pack=pack) == [KERNEL]
    words = [one.split("|")[1].split()[0] for one in asked(host) if "unbuild" not in one]
    assert words == ["install", "remove", *(["ldtarball"] if pack else []), "install"]
    assert f"|remove -m nvidia -v 580.95.05 -k {KERNEL}" in asked(host)
    assert installs(host, family=family) == [KERNEL], "DKMS does not know it"
    says(host, status="installed")
    assert installs(host, family=family) == []


def test_a_build_that_fails_is_told_with_the_end_of_its_log(host: Path) -> None:
    sources(host, "nvidia-open-570.133.20", "570.133.20")
    (host / "broken").touch()
    log = host / "tree/nvidia-open/570.133.20/build/make.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {n}\n" for n in range(40)) + "nv.c:1: error: no member\n")
    with pytest.raises(Failed) as failed:
        installs(host)
    assert str(failed.value).startswith(f"kernel {KERNEL}: Error! Bad return status line 29 line 30")
    assert str(failed.value).endswith("nv.c:1: error: no member")
    assert f"-m nvidia-open -v 570.133.20 -k {KERNEL}" in asked(host)[0], "DKMS knows modules by their folder"


def test_what_a_killed_run_built_aside_is_not_taken_for_this_one(host: Path) -> None:
    """Debian's postinst would load it with the next installation of the version."""
    sources(host)
    left, owned = (host / "shared" / name / f"{name}.dkms.tar.gz" for name in ("nvidia-current-dkms", "nvidia-x-dkms"))
    for file in (left, owned):
        file.parent.mkdir(parents=True)
        file.touch()
    here.program(host, "dpkg-query", f'case $1 in -L) cat {host}/files ;; -S) [ "$2" = {owned} ] ;; esac\n')
    installs(host)
    assert not left.parent.exists()
    assert owned.exists(), "a package's own"
    pack = host / "packs" / "nvidia-580.95.05.dkms.tar.gz"
    pack.parent.mkdir()
    pack.touch()
    here.program(host, "rpm", f"case $1 in -ql) cat {host}/files ;; *) exit 1 ;; esac\n")
    aside.clear("redhat")
    assert not pack.exists()
    assert "|remove -m nvidia -v 580.95.05 --all" in asked(host), "no package came to own it"
    assert not (host / "sources/nvidia-580.95.05").exists()


def test_a_kernel_of_another_compiler_is_built_by_it(host: Path) -> None:
    """Oracle's UEK 8 on EL 9: the toolset that kernel-uek-devel brings."""
    config, tools = host / "kernels" / KERNEL / "build", host / "toolsets/gcc-toolset-14/root/usr/bin"
    config.mkdir(parents=True)
    tools.mkdir(parents=True)
    (config / ".config").write_text(
        'CONFIG_X=y\nCONFIG_CC_VERSION_TEXT="gcc (GCC) 14.2.1 20250110 (Red Hat 14.2.1-7)"\n'
    )
    assert dkms.build_environment(KERNEL) == {"KERNEL_UNAME": KERNEL}, "no such toolset is there"
    here.program(tools, "gcc", "echo 14\n")
    for system, wanted in (("11", True), ("14", False)):
        here.program(host, "gcc", f"echo {system}\n")
        assert dkms.build_environment(KERNEL).get("PATH", "").startswith(f"{tools}:") is wanted
    assert dkms.build_environment("other") == {"KERNEL_UNAME": "other"}


@pytest.mark.parametrize("registered", [True, False])
def test_modules_of_an_installer_that_dkms_does_not_know_are_registered(host: Path, *, registered: bool) -> None:
    sources(host)
    says(host, version="580.95.05", license="Dual MIT/GPL", status=f"{KERNEL}: installed" if registered else "")
    assert in_place.register("580.95.05", "open", [KERNEL]) == ([] if registered else [KERNEL])
    assert asked(host) == ([] if registered else [f"{KERNEL}|install --force -m nvidia -v 580.95.05 -k {KERNEL}"])
    assert in_place.register("580.95.05", "proprietary", [KERNEL]) == [KERNEL], "the other flavour"


def test_an_installer_that_left_no_source_is_told(host: Path) -> None:
    with pytest.raises(Failed, match=r"nvidia-999.1.2/dkms.conf is missing: DKMS has no source to build"):
        in_place.register("999.1.2", "open", [KERNEL])


def test_precompiled_modules_that_are_in_place_stay(host: Path) -> None:
    says(host, version="580.95.05")
    assert in_place.link_precompiled("debian", "580.95.05", [NAME], [KERNEL]) == []
    assert asked(host) == []


def test_precompiled_modules_are_put_in_place_by_the_package_of_the_kernel(host: Path) -> None:
    says(host, version="570.86.10")
    strangers = host / "kernels" / KERNEL / "updates/dkms"
    strangers.mkdir(parents=True)
    for name in ("nvidia.ko.zst", "nvidia-uvm.ko.zst", "mlx5_core.ko.zst"):
        (strangers / name).touch()
    names = ["linux-modules-nvidia-580-server-6.8.0-1-generic", NAME]
    assert in_place.link_precompiled("debian", "580.95.05", names, [KERNEL]) == [KERNEL]
    assert asked(host) == [NAME]
    assert os.listdir(strangers) == ["mlx5_core.ko.zst"], "DKMS had put back what no package owns"


def test_an_rpm_of_precompiled_modules_runs_its_own_scriptlet(host: Path) -> None:
    says(host, version="570.86.10")
    here.program(host, "rpm", f'[ "$1" = -q ] && echo "echo {KERNEL}; echo 580.95.05 > {host}/version"\n')
    kernel = "5.14.0-503.el9.x86_64"
    assert in_place.link_precompiled("redhat", "580.95.05", ["kmod-nvidia-580.95.05-5.14.0-503"], [kernel]) == [kernel]


def test_precompiled_modules_that_do_not_come_are_told(host: Path) -> None:
    says(host, version="570.86.10")
    here.program(host, "dpkg-reconfigure", "echo broken\n")
    with pytest.raises(Failed, match=f"kernel {KERNEL}: 570.86.10 of nvidia, not 580.95.05: broken"):
        in_place.link_precompiled("debian", "580.95.05", [NAME], [KERNEL])


def test_a_conf_without_a_version_is_called_as_its_folder(tmp_path: Path) -> None:
    conf = tmp_path / "nvidia-1.2" / "dkms.conf"
    conf.parent.mkdir()
    conf.write_text("PACKAGE_NAME=nvidia\n")
    assert dkms.parse_dkms_conf(str(conf)) == Source("nvidia-1.2", "")


@pytest.fixture
def ask(host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """The module, on a host of the Debian family."""
    for name in ("TREE", "SOURCES", "KERNELS"):
        monkeypatch.setattr(on_host("driver.dkms"), name, str(host / name.lower()))
    monkeypatch.setattr(on_host("driver.aside"), "SHARED", str(host / "shared"))
    monkeypatch.setattr(on_host("family"), "read_family", lambda: "debian")
    given = {"version": "580.95.05", "flavour": "open", "kernels": [KERNEL], "package": "nvidia-dkms"}
    return lambda state, check=False, **more: step(
        capsys, "driver_modules", check=check, state=state, **{**given, **more}
    )


def test_check_mode_says_which_kernels_lack_modules(host: Path, ask: Any) -> None:
    here.program(host, "dpkg-query", "exit 1\n")
    assert not ask("dkms", check=True)["changed"], "the package comes with a transaction that was not done"
    here.program(host, "dpkg-query", f"cat {host}/files\n")
    sources(host)
    planned = ask("dkms", check=True)
    assert (planned["kernels"], planned["diff"]) == ([KERNEL], {"prepared": f"installed for {KERNEL}\n"})
    assert asked(host) == []
    assert ask("dkms")["diff"] == planned["diff"]
    for state in ("runfile", "precompiled", "aside", "cleared"):
        assert not ask(state, check=True)["changed"]


@run_each(
    ("message", "fix"),
    [
        ("write error: No space left on device", "df -h /tmp"),
        ("/tmp/dkms: Read-only file system", "findmnt -no OPTIONS"),
    ],
)
def test_a_build_without_room_is_no_fault_of_the_kernel(message: str, fix: str) -> None:
    actions = on_host("driver.actions")
    told = str(actions.describe_failed_build(actions.Failed(f"kernel 5.14: {message}")))
    assert fix in told
    assert "remove that kernel" not in told


def test_what_was_built_aside_goes_also_where_the_modules_cannot_be_installed(host: Path, ask: Any) -> None:
    sources(host)
    (host / "broken").touch()
    pack = host / "shared/nvidia-dkms/nvidia-580.95.05.dkms.tar.gz"
    pack.parent.mkdir(parents=True)
    pack.touch()
    failed = ask("dkms", pack=str(pack))
    assert failed["msg"] == (
        f"the kernel modules could not be built: kernel {KERNEL}: Error! Bad return status. "
        "Fix: remove that kernel, or choose a version that builds for it"
    )
    assert not pack.exists()
    assert ask("runfile")["failed"]
    says(host, version="570.86.10")
    here.program(host, "dpkg-reconfigure", "echo broken\n")
    assert ask("precompiled", packages=[NAME])["msg"].endswith(
        "Fix: find what else puts modules there (modinfo -n nvidia), or nvidia_driver.build dkms"
    )
    pack.parent.mkdir()
    pack.touch()
    assert not ask("cleared", pack=str(pack))["changed"]
    assert not pack.exists()


def test_modules_of_another_key_are_signed_in_the_same_step(host: Path, ask: Any) -> None:
    sources(host)
    says(host, status="installed", version="580.95.05", license="GPL", sig_key="AA")
    module = host / f"tree/nvidia/580.95.05/{KERNEL}/x86_64/module/nvidia.ko"
    module.parent.mkdir(parents=True)
    module.touch()
    keys = {"serial": "bb", "key_file": "/k", "certificate_file": "/c"}
    failed = ask("dkms", **keys)
    assert failed["msg"].startswith(f"the kernel modules could not be signed: kernel {KERNEL}: ")
    assert failed["msg"].endswith("Fix: install the kernel's headers, which have sign-file, and apply again")
    here.program(host, "kmodsign", "true\n")
    done = ask("dkms", **keys)
    assert (done["signed"], done["kernels"]) == ([f"{KERNEL}: nvidia.ko"], [])
    assert not ask("dkms", **{**keys, "serial": "aa"})["changed"]
