"""Silence is never taken for a good answer: by preflight, and by any check of the good host."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.explain import all_checks
from gpuprov.facts.probes.base import Facts, Output, ProbeFailed
from gpuprov.facts.probes.driver import driver_packages, nvidia
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.kernel import boot
from gpuprov.facts.probes.software.repositories import REPOSITORIES
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import CHECKS, ask, good, with_own_files
from tests.capabilities.silent import ANSWERS, EXCUSED, SILENCES, green, greens

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


DESIRED = [probe for capability in BY_NAME.values() if capability.desired for probe in capability.desired.probes]
PROBES = {probe.name: probe for probe in [*DESIRED, *(probe for check in all_checks() for probe in check.probes)]}


def test_no_check_of_the_good_host_passes_without_its_probes() -> None:
    """All checks, all their probes, three silences; demanding specs are asked so wherever a test here sees a check
    pass."""
    wrong: list[object] = []
    for check in CHECKS.values():
        texts = {name: text for name, text in good().items() if name in {probe.name for probe in check.probes}}
        ctx = with_own_files(check, BY_NAME[check.capability].fragment(), texts)
        if check.run(ctx).status == "pass":
            wrong += [
                (check.id, *row)
                for row in greens(check, ctx)
                if row[1] != "nothing" and row[:2] not in ANSWERS and check.id not in EXCUSED
            ]
    assert not wrong


def test_a_missing_program_and_garbage_are_errors_of_every_probe_that_does_not_know_them() -> None:
    texts = {name: text if isinstance(text, Output) else Output(text) for name, text in good().items()}
    for name, probe in PROBES.items():
        if not probe.knows_missing:
            with pytest.raises(ProbeFailed):
                Facts({**texts, name: SILENCES["no program"]}).get(probe)
        if probe.speaks:
            with pytest.raises(ProbeFailed):
                Facts({**texts, name: SILENCES["nothing"]}).get(probe)
        if name in texts:
            Facts(texts).get(probe)


def test_the_tables_name_probes_and_checks_that_there_are() -> None:
    assert set(CHECKS) >= set(EXCUSED)
    assert set(PROBES) >= {probe for probe, _ in ANSWERS}


def test_preflight_fails_closed() -> None:
    """What must hold before a host is touched does not hold where nobody could read it."""
    for check in CHECKS.values():
        if check.moment != "preflight" or not check.probes:
            continue
        texts = {probe.name: SILENCES["no program"] for probe in check.probes}
        ctx = Context(HostSpec(name="gpu1"), BY_NAME[check.capability].fragment(), Facts(texts))
        assert green(check, ctx, texts) is None, check.id


def test_the_words_of_a_silent_probe() -> None:
    with pytest.raises(ProbeFailed, match="container printed nothing on the host"):
        Facts({"container": Output("")}).get(system.CONTAINER)
    with pytest.raises(
        ProbeFailed, match="os_release cannot be read: a program that it needs is missing on the host: sh: 1: cat"
    ):
        Facts({"os_release": Output("", 127, "sh: 1: cat: not found")}).get(system.OS_RELEASE)
    with pytest.raises(ProbeFailed, match="os_release cannot be understood; the host printed: 'junk'"):
        Facts({"os_release": Output("junk\n")}).get(system.OS_RELEASE)


def test_archives_that_are_not_the_distributions_own_are_an_answer() -> None:
    """A host whose only source is a flat repository of the site, as apt-get indextargets prints it."""
    kept = "archive|file:/var/lib/gpuprov/packages/|./|$(COMPONENT)|$(ORIGIN)\n"
    assert Facts({"debian_archives": Output(kept)}).get(driver_packages.ARCHIVES) == ()
    with pytest.raises(ProbeFailed):
        Facts({"debian_archives": Output("E: what nobody knows")}).get(driver_packages.ARCHIVES)


def test_a_file_of_comments_alone_says_that_nothing_is_configured() -> None:
    text = "# /etc/modules: kernel modules to load at boot time.\n\n  # one a line\n; and no others\n"
    for probe in (boot.MODULES_LOAD, boot.LOGIN_LIMITS):
        assert not Facts({probe.name: Output(text)}).get(probe)
    with pytest.raises(ProbeFailed, match="cannot be understood"):
        Facts({boot.LOGIN_LIMITS.name: Output(text + "\x01\x02 what is this\n")}).get(boot.LOGIN_LIMITS)
