"""The role kernel finds sysctls that a host does not have, or that nobody can write, before anything is changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = (ROOT / "roles/kernel/files/sysctl.sh").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--"], ""),
        (["kernel.ostype=Linux", "--"], ""),
        (["kernel.ostype=Plan 9", "--"], "fixed kernel.ostype\n"),
        (["kernel.of_nobody=1", "kernel.ostype=x", "--"], "absent kernel.of_nobody\nfixed kernel.ostype\n"),
        (["kernel.of_nobody=1", "--", "a_module_that_is_not_loaded"], ""),
        (["kernel.of_nobody=1", "--", "printk"], "absent kernel.of_nobody\n"),
        (["kernel.of_nobody=1", "--", "printk", "a_module_that_is_not_loaded"], ""),
        (["net.ipv4.conf.lo.of_nobody=1", "--"], "absent net.ipv4.conf.lo.of_nobody\n"),
    ],
)
def test_what_a_host_cannot_have(words: list[str], said: str) -> None:
    assert Path("/sys/module/printk").is_dir(), "printk is part of every kernel"
    done = subprocess.run(["sh", "-c", SCRIPT, "sysctl.sh", *words], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (said, "")


def test_spaces_between_the_values_of_one_setting_count_as_one(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "rmem").write_text("4096\t131072\t6291456\n")
    (tmp_path / "net" / "a.b").write_text("1\n")
    script = SCRIPT.replace("/proc/sys/", f"{tmp_path}/").replace('[ ! -w "$file" ]', "true")
    for word, said in (("net.rmem=4096 131072  6291456", ""), ("net.rmem=4096", "fixed net.rmem\n"), ("net.a/b=1", "")):
        done = subprocess.run(["sh", "-c", script, "sysctl.sh", word, "--"], capture_output=True, text=True, check=True)
        assert done.stdout == said
