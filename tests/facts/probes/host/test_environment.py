"""Variables that a host sets for logins and services, in files of several languages."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpuprov.facts.probes.host import environment
from tests.rows import run_each


@run_each(
    ("file", "text", "found"),
    [
        ("etc/environment", "NCCL_DEBUG=INFO\n#NCCL_IB_DISABLE=1\n", ["NCCL_DEBUG=INFO"]),
        ("etc/profile", "export NCCL_IB_HCA=mlx5_0 NCCL_DEBUG=INFO # NCCL_X=1\n",
         ["NCCL_IB_HCA=mlx5_0", "NCCL_DEBUG=INFO"]),
        ("etc/bashrc", "[ -t 0 ] && NCCL_IB_DISABLE=1; export NCCL_IB_DISABLE\n", ["NCCL_IB_DISABLE=1"]),
        ("etc/profile.d/a.csh", 'setenv NCCL_IB_HCA "mlx5_0,mlx5_1"\n', ['NCCL_IB_HCA="mlx5_0,mlx5_1"']),
        ("root/.bashrc", "declare -x NCCL_NET='Socket'\nMY_NCCL_NET=1\n", ["NCCL_NET='Socket'"]),
        ("etc/security/pam_env.conf", 'NCCL_DEBUG DEFAULT=INFO OVERRIDE="WARN"\n', ['NCCL_DEBUG="WARN"']),
        ("etc/systemd/system.conf.d/a.conf", '[Manager]\nDefaultEnvironment="NCCL_IB_DISABLE=1" A=2\n',
         ["NCCL_IB_DISABLE=1"]),
    ],
)  # fmt: skip
def test_files_of_every_kind(tmp_path: Path, file: str, text: str, found: list[str]) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    assert _run(tmp_path, "NCCL_") == [f"other|{tmp_path}/{file}|{line}" for line in found]


@run_each(
    ("line", "found"),
    [
        ("export FOO=1 CUDA_VISIBLE_DEVICES=-1", ["CUDA_VISIBLE_DEVICES=-1"]),
        ('CUDA_VISIBLE_DEVICES=""; export CUDA_VISIBLE_DEVICES', ['CUDA_VISIBLE_DEVICES=""']),
        ("  export CUDA_VISIBLE_DEVICES=0", []),
        ('[ "$USER" = a ] && export CUDA_VISIBLE_DEVICES=0', []),
    ],
)
def test_what_a_shell_may_not_set(tmp_path: Path, line: str, found: list[str]) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/profile").write_text(f"{line}\n")
    (tmp_path / "etc/bashrc").symlink_to("profile")
    assert _run(tmp_path, "CUDA_", certain=True) == [f"other|{tmp_path}/etc/profile|{line}" for line in found]


def _run(root: Path, prefix: str, *, certain: bool = False) -> list[str]:
    script = environment.build_environment_script("other", prefix, certain=certain)
    for folder in ("/etc/", "/root/", "/usr/lib/environment.d", "/usr/lib/systemd", "/run/"):
        script = script.replace(f" {folder}", f" {root}{folder}")
    script = script.replace("systemctl show-environment", "printf ''")
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()
