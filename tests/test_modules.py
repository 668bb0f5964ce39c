"""Scripts of the driver's role that put modules in place: built by DKMS, precompiled, or of a runfile."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.probe import REAL

FILE = Path(__file__).parents[1] / "roles" / "nvidia_driver" / "files" / "modules.sh"


@pytest.mark.parametrize(("family", "asked"), [("debian", "dpkg-query"), ("redhat", "rpm")])
def test_a_package_without_dkms_conf_is_refused(tmp_path: Path, family: str, asked: str) -> None:
    calls = tmp_path / "calls"
    for name, script in {asked: "echo /usr/share/doc/nvidia", "dkms": f"echo called >> {calls}"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["sh", FILE, family, "open", "nvidia", "", "nvidia-kernel-open-dkms", "6.1.0-40-amd64"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "nvidia-kernel-open-dkms has no dkms.conf" in done.stdout
    assert "install nvidia-kernel-open-dkms anew" in done.stdout
    assert done.stderr == ""
    assert not calls.exists()


def script(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{content}\n")
    (folder / name).chmod(0o755)


def run(folder: Path, file: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", FILE.with_name(file), *arguments],
        env={"PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


KERNEL = "6.8.0-999-gpuprov"


@pytest.fixture
def fakes(tmp_path: Path) -> Path:
    """Programs that say of the module what stands in the file `version`, and write down what they are asked."""
    script(tmp_path, "modinfo", f"cat {tmp_path}/version 2> /dev/null || exit 1")
    script(tmp_path, "depmod", "true")
    script(tmp_path, "dpkg-query", "exit 1")
    script(tmp_path, "dpkg-reconfigure", f'echo "$*" >> {tmp_path}/calls; echo 580.95.05 > {tmp_path}/version')
    return tmp_path


def test_precompiled_modules_that_are_in_place_stay(fakes: Path) -> None:
    (fakes / "version").write_text("580.95.05\n")
    done = run(fakes, "precompiled.sh", "debian", "580.95.05", f"linux-modules-nvidia-580-server-{KERNEL}", KERNEL)
    assert (done.returncode, done.stdout) == (0, "")
    assert not (fakes / "calls").exists()


def test_precompiled_modules_are_put_in_place_by_the_package_of_the_kernel(fakes: Path) -> None:
    (fakes / "version").write_text("570.86.10\n")
    names = f"linux-modules-nvidia-580-server-6.8.0-1-generic linux-modules-nvidia-580-server-{KERNEL}"
    done = run(fakes, "precompiled.sh", "debian", "580.95.05", names, KERNEL)
    assert done.stdout == f"linked for {KERNEL}\n"
    assert (fakes / "calls").read_text() == f"linux-modules-nvidia-580-server-{KERNEL}\n"


def test_precompiled_modules_that_do_not_come_are_told(fakes: Path) -> None:
    (fakes / "version").write_text("570.86.10\n")
    script(fakes, "dpkg-reconfigure", "echo broken")
    done = run(fakes, "precompiled.sh", "debian", "580.95.05", f"linux-modules-nvidia-580-server-{KERNEL}", KERNEL)
    assert done.returncode == 1
    assert f"kernel {KERNEL}: 570.86.10 of nvidia, not 580.95.05: broken" in done.stdout


def test_a_runfile_without_its_source_is_told(fakes: Path) -> None:
    done = run(fakes, "runfile_modules.sh", "999.1.2", "open", KERNEL)
    assert done.returncode == 1
    assert "/usr/src/nvidia-999.1.2/dkms.conf is not there" in done.stdout


DKMS = """
echo "$KERNEL_UNAME|$*" >> {root}/calls
case $1 in
build)
  while [ $# -gt 0 ]; do case $1 in -m) m=$2 ;; -v) v=$2 ;; -k) k=$2 ;; --dkmstree) t=$2 ;; esac; shift; done
  [ -z "$FAILS" ] || {{ mkdir -p $t/$m/$v/build; cp "$FAILS" $t/$m/$v/build/make.log; exit 1; }}
  mkdir -p $t/$m/$v/$k/x86_64/module; echo "${{MAGIC:-$k}}" > $t/$m/$v/$k/x86_64/module/nvidia.ko.xz ;;
mktarball) for last in "$@"; do :; done; touch "$last" ;;
esac
"""
NO_COMPILER = REAL / "dkms-no-gxx-el9" / "dkms-make-log.txt"


def prebuild(
    root: Path, folder: str, *, name: str = "nvidia", version: str = "570.133.20", **env: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """prebuild.sh over an rpm that has this folder, whose dkms.conf says this name; and what DKMS was asked."""
    source = root / "rpm" / "usr/src" / folder
    source.mkdir(parents=True, exist_ok=True)
    (source / "dkms.conf").write_text(f'PACKAGE_NAME="{name}"\nPACKAGE_VERSION="{version}"\n')
    (root / "package.rpm").touch()
    (root / "calls").unlink(missing_ok=True)
    script(root, "rpm2archive", f"tar -cz -C {root}/rpm .")
    script(root, "dkms", DKMS.format(root=root))
    script(root, "modinfo", 'echo "$(cat "$3") SMP mod_unload modversions"')
    text = FILE.with_name("prebuild.sh").read_text(encoding="utf-8").replace("/var/lib/gpuprov", f"{root}/var")
    done = subprocess.run(
        ["sh", "-c", text, "prebuild.sh", "redhat", str(root / "package.rpm"), KERNEL],
        env={"PATH": f"{root}:{os.environ['PATH']}", **env}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done, (root / "calls").read_text().splitlines()


def test_dkms_knows_modules_by_their_folder(tmp_path: Path) -> None:
    """Up to 570.133.20 NVIDIA's rpm registers nvidia-open, though its dkms.conf says nvidia; from 570.148.08 on nvidia."""
    for folder, version in (("nvidia-open-570.133.20", "570.133.20"), ("nvidia-570.172.08", "570.172.08")):
        (tmp_path / folder).mkdir()
        done, calls = prebuild(tmp_path / folder, folder, version=version)
        known = folder.removesuffix(f"-{version}")
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines()[-1].endswith(f"/{folder}.dkms.tar.gz")
        assert all(f"-m {known} -v {version}" in call for call in calls), calls
        assert f"{KERNEL}|build" in calls[1], "the source that asks uname -r is told which kernel is meant"


def test_modules_of_another_kernel_are_refused_before_anything_is_replaced(tmp_path: Path) -> None:
    done, _ = prebuild(tmp_path, "nvidia-570.86.15", version="570.86.15", MAGIC="6.12.10-200.fc41.x86_64")
    assert done.returncode == 1
    assert f"kernel {KERNEL}: DKMS built modules of kernel 6.12.10-200.fc41.x86_64 for it" in done.stdout


def test_a_missing_compiler_is_named(tmp_path: Path) -> None:
    done, _ = prebuild(tmp_path, "nvidia-570.133.20", FAILS=str(NO_COMPILER))
    assert done.returncode == 1
    assert "g++: command not found" in done.stdout


def test_a_kernel_of_another_compiler_is_built_by_it(tmp_path: Path) -> None:
    """Oracle's UEK 8 on EL 9: the toolset that kernel-uek-devel brings."""
    config, tools = tmp_path / "modules" / KERNEL / "build", tmp_path / "rh/gcc-toolset-14/root/usr/bin"
    config.mkdir(parents=True)
    tools.mkdir(parents=True)
    (config / ".config").write_text('CONFIG_CC_VERSION_TEXT="gcc (GCC) 14.2.1 20250110 (Red Hat 14.2.1-7)"\n')
    script(tools, "gcc", "echo 14")
    text = FILE.with_name("modules.sh").read_text(encoding="utf-8")
    body = text[text.index("with_compiler_of() {") : text.index("right() {")]
    body = body.replace("/lib/modules/", f"{tmp_path}/modules/").replace("/opt/rh/", f"{tmp_path}/rh/")
    for system, wanted in (("11", str(tools)), ("14", "other")):
        script(tmp_path, "gcc", f"echo {system}")
        done = subprocess.run(
            ["sh", "-c", f'{body}\nwith_compiler_of {KERNEL} sh -c \'command -v gcc; echo "$KERNEL_UNAME"\''],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        found, kernel = done.stdout.splitlines()
        assert (found.startswith(wanted), kernel) == (wanted != "other", KERNEL)
    assert body.rstrip() in FILE.with_name("prebuild.sh").read_text(encoding="utf-8").replace(
        "/lib/modules/", f"{tmp_path}/modules/"
    ).replace("/opt/rh/", f"{tmp_path}/rh/"), "one function in two scripts"
