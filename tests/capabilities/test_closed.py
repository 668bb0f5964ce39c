"""Preflight never takes silence for a good answer: who holds a GPU, and whose the package sources are."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.facts.probes.base import Output, ProbeFailed
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.software.repositories import REPOSITORIES
from tests.capabilities.asking import ask

SILENCE = (Output("", 127, "sh: find: not found\n"), Output("", 127), Output(""), Output("811|Xorg|gdm.service\n", 1))
NEWEST = NvidiaDriver(version="535.309.01")
TOOLS = ("find", "sort", "sed", "tail", "stat", "cat", "dirname")


def test_no_answer_of_who_holds_a_gpu_is_none() -> None:
    for output in SILENCE:
        with pytest.raises(
            ProbeFailed, match=r"processes that hold a GPU could not be listed|gpu_clients cannot be read"
        ):
            ask("nvidia_driver.clients", NEWEST, gpu_clients=output, loaded_driver=LOADED)
    assert ask("nvidia_driver.clients", NEWEST, gpu_clients="looked\n", loaded_driver=LOADED).status == "pass"


def test_no_answer_of_the_package_sources_is_none() -> None:
    for text in ("", "@arch amd64\n", "@unread /etc/apt/sources.list\n@arch amd64\n@end\n"):
        with pytest.raises(ProbeFailed, match=r"package sources could not be read|repositories cannot be read"):
            ask("host.package_sources", repositories=Output(text, 127))
    assert ask("host.package_sources", repositories="@arch amd64\n@end\n").status == "pass"


LOADED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  530.30.02  Thu Oct 10 00:00:00 UTC 2025\n"


@pytest.mark.install
def test_a_tool_that_is_missing_or_broken_is_no_answer(tmp_path: Path) -> None:
    """Each in turn; with all of them the answer is one."""
    for name in TOOLS:
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    (tmp_path / "sh").symlink_to("/bin/sh")

    def ran(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)

    assert nvidia.parse_clients(Output(ran("/bin/sh", "-c", nvidia.CLIENTS.script).stdout)) is not None
    for name in ("find", "sort", "sed"):
        for broken in (None, "#!/bin/sh\nexit 127\n", "#!/bin/sh\nexit 0\n"):
            (tmp_path / name).unlink()
            if broken:
                (tmp_path / name).write_text(broken)
                (tmp_path / name).chmod(0o755)
            with pytest.raises(ProbeFailed):
                nvidia.parse_clients(Output(ran("/bin/sh", "-c", nvidia.CLIENTS.script).stdout))
            (tmp_path / name).unlink(missing_ok=True)
            (tmp_path / name).symlink_to(str(shutil.which(name)))
    (tmp_path / "sed").unlink()
    assert "@unread" in ran("/bin/sh", "-c", f"family=debian\n{REPOSITORIES.script}").stdout
