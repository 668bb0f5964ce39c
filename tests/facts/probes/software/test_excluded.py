"""Packages that a site keeps out of dnf's sight, and what is said of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from gpuprov.capabilities.nvidia_driver.decision import repository
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.software import excluded
from gpuprov.facts.probes.software.excluded import Excluded, find_excluded
from tests.capabilities import contexts
from tests.capabilities.asking import ask
from tests.capabilities.test_nvidia_driver_source import LEAP, R580, ROCKY, repoquery, rpm
from tests.rows import run_each

NAME = "kmod-nvidia-open-dkms"
AWAY = f"away|/etc/dnf/dnf.conf|main|{NAME} kernel*\n"


def test_settings_are_read_with_their_sections_and_continued_lines(tmp_path: Path) -> None:
    (tmp_path / "dnf.conf").write_text(
        "[main]\nbest=True\nexcludepkgs = nvidia* , cuda*\n  kmod-*\n# exclude=no\n  x\n"
    )
    (tmp_path / "yum.repos.d").mkdir()
    repo = "[cuda]\nenabled=1\nexclude=dkms\n[other]\nincludepkgs=a, b*\n"
    (tmp_path / "yum.repos.d/cuda.repo").write_text(repo)
    script = excluded.SCRIPT.replace("/etc/dnf", str(tmp_path)).replace("/etc/yum.repos.d", f"{tmp_path}/yum.repos.d")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    found = excluded.parse(Output(done.stdout, 0).rows())
    main = [Excluded(pattern, "main", f"{tmp_path}/dnf.conf") for pattern in ("nvidia*", "cuda*", "kmod-*", "x")]
    file = f"{tmp_path}/yum.repos.d/cuda.repo"
    assert found == (*main, Excluded("dkms", "cuda", file), Excluded("a b*", "other", file, only=True))


def test_a_list_of_what_is_let_in_hides_the_rest_of_the_repository() -> None:
    only = Excluded("cuda-* dkms", "cuda-rhel9", "/f", only=True)
    assert find_excluded([only], [NAME, "dkms"]) == {NAME: "includepkgs=cuda-* dkms in /f [cuda-rhel9]"}
    assert not find_excluded([Excluded("dkms", "epel", "/etc/yum.repos.d/epel.repo", only=True)], [NAME])
    assert find_excluded([Excluded("dkms", "main", "/etc/dnf/dnf.conf", only=True)], [NAME])


def test_the_toolkit_is_told_hidden_too_and_no_repository_is_proposed() -> None:
    name = "nvidia-container-toolkit"
    host = {"os_release": ROCKY, "packages": "", "package_index": f"away|/f|main|{name}*\n"}
    answer = ask("container_toolkit.resolvable", ContainerToolkit(), **host)
    assert (answer.status, answer.fix.partition(":")[0]) == ("fail", "take it out there")
    assert f"dnf does not see {name} (excludepkgs={name}* in /f)" in answer.found


@run_each(
    ("pattern", "hidden"),
    [
        (NAME, True),
        ("*nvidia*", True),
        (f"{NAME}.noarch", True),
        (f"{NAME}-3:580.95.05-1.el9.noarch", True),
        (f"{NAME}-580.*", True),
        ("kmod-nvidia-open", False),
        (f"{NAME}-extra", False),
    ],
)
def test_names_and_patterns(pattern: str, hidden: bool) -> None:
    place = f"excludepkgs={pattern} in /f [cuda]"
    assert find_excluded([Excluded(pattern, "cuda", "/f")], [NAME]) == ({NAME: place} if hidden else {})


def test_a_driver_that_is_kept_away_is_said_to_be_and_no_source_is_added() -> None:
    """Adding NVIDIA's repository would not bring it: NVIDIA's own is there, and the site filters it."""
    rest = "".join(line + "\n" for line in repoquery(R580).splitlines() if f"|{NAME}|" not in line)
    host = {"os_release": ROCKY, "packages": "", "package_index": AWAY + rest}
    answer = ask("nvidia_driver.resolvable", NvidiaDriver(version="580"), **host)
    assert (answer.status, answer.found) == (
        "fail",
        f"dnf does not see {NAME} (excludepkgs={NAME} in /etc/dnf/dnf.conf)",
    )
    assert "take it out there" in answer.fix


def test_a_driver_that_is_installed_stays_and_no_source_is_added() -> None:
    rest = "".join(line + "\n" for line in repoquery(R580).splitlines() if f"|{NAME}|" not in line)
    host = {"os_release": ROCKY, "packages": rpm(R580), "package_index": AWAY + rest}
    driver = NvidiaDriver(version="580")
    assert ask("nvidia_driver.resolvable", driver, **host).status == "pass"
    spec = contexts.spec(nvidia_driver=driver)
    assert repository(contexts.context("nvidia_driver", spec, host)) == {}
    open_to_dnf = contexts.context("nvidia_driver", spec, {**host, "package_index": rest})
    assert repository(open_to_dnf)["name"] == "nvidia"


def test_locks_that_zypper_does_not_heed_are_set_right_in_zypps_files() -> None:
    host = {"os_release": LEAP, "package_locking": "suse|\napply|no\n"}
    answer = ask("nvidia_driver.holdable", NvidiaDriver(version="580"), **host)
    assert (answer.status, "zypp.conf.d" in answer.found) == ("fail", True)
    assert answer.fix == "locksfile.apply = yes there: grep -rn locksfile.apply /etc/zypp; or hold: false"
