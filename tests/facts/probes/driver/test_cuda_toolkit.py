"""What the probes of CUDA toolkits print on hosts, as they print it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Output, ProbeFailed
from gpuprov.facts.probes.driver import cuda_toolkit
from tests.rows import run_each

# Of a host with stand-ins: Debian 12, two toolkits, cuDNN for the default's CUDA.
DEBIAN = """\
@toolkit 12.4
nvcc 12.4 12.4.131
kit 12.4.1
cudart 12.4.127
@toolkit 13.0
complaint sh: 1: nvcc: Exec format error
link alternatives /usr/local/cuda-12.4
alternative cuda - manual mode
alternative   link best version is /usr/local/cuda-13.0
alternative   link currently points to /usr/local/cuda-12.4
alternative   link cuda is /usr/local/cuda
alternative /usr/local/cuda-12.4 - priority 124
alternative /usr/local/cuda-13.0 - priority 130
profile # Ansible managed
profile export PATH="/usr/local/cuda/bin${PATH:+:$PATH}"
library libcudart.so.12 /usr/local/cuda-12.4/targets/x86_64-linux/lib/libcudart.so.12.4.127
library libcudart.so.12 /opt/other/libcudart.so.12.1.105
library libcudnn.so.9 /usr/lib/x86_64-linux-gnu/libcudnn.so.9.5.1
cudnn 9
cudnn 5
cudnn 1
space 68025344 /usr/local
space 68025344 /var
"""
# `alternatives --display` of EL: another first line, and a family or not behind the path.
EL = """\
link alternatives /usr/local/cuda-13.0
alternative cuda - status is auto.
alternative  link currently points to /usr/local/cuda-13.0
alternative /usr/local/cuda-12.4 - priority 124
alternative /usr/local/cuda-13.0 - priority 130
alternative Current `best' version is /usr/local/cuda-13.0.
space 1024 /var
"""


def test_debian() -> None:
    found = cuda_toolkit.parse_toolkits(Output(DEBIAN))
    kit = found.toolkits["12.4"]
    assert (kit.release, kit.build, kit.kit, kit.cudart, kit.complaint) == (
        "12.4",
        "12.4.131",
        "12.4.1",
        "12.4.127",
        "",
    )
    assert found.toolkits["13.0"].complaint == "sh: 1: nvcc: Exec format error"
    assert (found.link, found.by, found.mode) == ("/usr/local/cuda-12.4", "alternatives", "manual")
    assert found.choices == ("/usr/local/cuda-12.4", "/usr/local/cuda-13.0")
    assert found.libraries["libcudart.so.12"].endswith("12.4.127"), "the linker takes the first"
    assert found.cudnn_header == "9.5.1"
    assert found.space == {"/usr/local": 66431, "/var": 66431}
    assert "/usr/local/cuda/bin" in found.profile


def test_el() -> None:
    found = cuda_toolkit.parse_toolkits(Output(EL))
    assert (found.link, found.mode, found.toolkits) == ("/usr/local/cuda-13.0", "auto", {})
    assert found.choices == ("/usr/local/cuda-12.4", "/usr/local/cuda-13.0")


def test_a_script_that_was_cut_off_is_no_host_without_toolkits() -> None:
    with pytest.raises(ProbeFailed, match="not read to the end"):
        cuda_toolkit.parse_toolkits(Output("@toolkit 12.4\n"))


def test_the_scripts_are_shell_and_read_this_machine() -> None:
    for probe in (cuda_toolkit.PACKAGES, cuda_toolkit.INDEX, cuda_toolkit.REQUIRES, cuda_toolkit.TOOLKITS):
        assert subprocess.run(["sh", "-n"], input=probe.script, text=True, check=False).returncode == 0
    done = subprocess.run(["sh"], input=cuda_toolkit.TOOLKITS.script, text=True, capture_output=True, check=True)
    assert cuda_toolkit.parse_toolkits(Output(done.stdout)).space["/var"] > 0


CACHE = """\
\tlibcudart.so.13 (libc6,x86-64) => /usr/local/cuda-13.0/targets/x86_64-linux/lib/libcudart.so.13
\tlibcudart.so.11.0 (libc6,x86-64) => /usr/local/cuda-11.8/targets/x86_64-linux/lib/libcudart.so.11.0
\tlibcudart.so.10.2 (libc6,x86-64) => /usr/local/cuda-10.2/targets/x86_64-linux/lib/libcudart.so.10.2
\tlibcudart.so (libc6,x86-64) => /usr/local/cuda-11.8/targets/x86_64-linux/lib/libcudart.so
\tlibcudnn.so.9 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcudnn.so.9
\tlibnccl.so.2 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libnccl.so.2
"""


def test_sonames_of_every_toolkit_are_read(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text(CACHE, encoding="utf-8")
    script = f"ldconfig() {{ cat {tmp_path}/cache; }}\n{cuda_toolkit.TOOLKITS.script}"
    done = subprocess.run(["sh", "-c", script], text=True, capture_output=True, check=True)
    assert sorted(cuda_toolkit.parse_toolkits(Output(done.stdout)).libraries) == [
        *("libcudart.so.10.2", "libcudart.so.11.0", "libcudart.so.13", "libcudnn.so.9", "libnccl.so.2")
    ]


SHOWN = """\
Package: cuda-toolkit-12-4
Version: 12.4.1-1
Depends: cuda-compiler-12-4 (>= 12.4.1), libc6 (>= 2.27), cuda-toolkit-12-4-config-common (>= 12.4.127), cuda-tools-12-4

Package: cuda-toolkit-12-4
Version: 12.4.0-1
Depends: cuda-compiler-12-4 (>= 12.4.0)

Package: cuda-compiler-12-4
Version: 12.4.1-1
"""
# dnf takes its patterns for names and for name-version-release.
QUERIED = """\
@cuda-toolkit-12-4|12.4.1-1
cuda-compiler-12-4 >= 12.4.1
cuda-toolkit-12-4-config-common >= 12.4.127
rtld(GNU_HASH)
@cuda-toolkit-12-4|12.4.0-1
cuda-compiler-12-4 >= 12.4.0
@libcurl|7.76.1-31.el9
libfoo-1-2 >= 1.2
@cuda-compiler-12-4|12.4.1-1
"""


@run_each(
    ("family", "program", "text"),
    [
        (
            "debian",
            "apt-cache",
            f"case $1 in pkgnames) printf '%s\\n' bash cuda-toolkit-12-4 ;; *) cat <<'EOF'\n{SHOWN}EOF\n;; esac",
        ),
        ("redhat", "dnf", f"cat <<'EOF'\n{QUERIED}EOF"),
    ],
)
def test_what_toolkits_are_made_of(tmp_path: Path, family: str, program: str, text: str) -> None:
    (tmp_path / program).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    (tmp_path / program).chmod(0o755)
    script = cuda_toolkit.REQUIRES.script.split(f"\n{family})\n")[1].split("\n;;")[0]
    done = subprocess.run(
        ["sh", "-c", script], text=True, capture_output=True, check=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}
    )
    bounds = {"cuda-compiler-12-4": "12.4.1", "cuda-toolkit-12-4-config-common": "12.4.127"}
    assert cuda_toolkit.parse_requires(Output(done.stdout)) == {
        "cuda-toolkit-12-4": {"12.4.1-1": bounds, "12.4.0-1": {"cuda-compiler-12-4": "12.4.0"}},
        "cuda-compiler-12-4": {"12.4.1-1": {}},
    }
