"""apt's part: packages are held and released in every architecture that they are installed for, and what apt-get is
called with.

Here on stand-ins of the programs; tests/host_code/test_packages_hosts.py has the real ones.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuprov.host_code.packages import actions, apt, apt_database, apt_files, apt_settings, judge
from gpuprov.host_code.packages.apt import Apt
from gpuprov.host_code.packages.model import Pin, Refused, Settings, Transaction
from tests.here import program

MARK = """\
case $1 in
showhold) cat "$STATE/held" ;;
hold) shift; printf '%s\\n' "$@" >> "$STATE/held" ;;
unhold) shift; for one in "$@"; do grep -vxF "$one" "$STATE/held" > "$STATE/new"; mv "$STATE/new" "$STATE/held"; done ;;
esac
"""
ROWS = """\
ii |libcuda1|1|libcuda1|amd64|Debian
ii |libcuda1|1|libcuda1|i386|Debian
ii |libnvidia-ml1|1|libnvidia-ml1|amd64|Debian
ii |nvidia-smi|1|nvidia-smi|all|Debian
ii |libglx-nvidia0|1|libglx-nvidia0|i386|Debian
rc |nvidia-smi|1|nvidia-smi|i386|Debian
ii |libc6|1|libc6|i386|Debian
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins lie here, and their state."""
    monkeypatch.setenv("STATE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def run(folder: Path, hold: list[str], release: list[str], check: bool = False) -> tuple[list[str], bool]:
    """What is held afterwards, and whether anything was changed."""
    program(folder, "apt-mark", MARK)
    program(folder, "dpkg", "echo amd64\n")
    program(folder, "dpkg-query", f"cat << 'END'\n{ROWS}END\n")
    changes = Apt(Settings()).hold(hold, release, check)
    return sorted((folder / "held").read_text(encoding="utf-8").split()), bool(changes)


EACH = ["libcuda1", "libcuda1:i386", "libglx-nvidia0:i386", "nvidia-smi"]


@pytest.mark.parametrize(
    ("before", "hold", "release", "after", "changed"),
    [
        (["bash"], ["libcuda1", "libglx-nvidia0", "nvidia-smi"], [], ["bash", *EACH], True),
        (EACH, ["libcuda1", "libglx-nvidia0", "nvidia-smi"], [], EACH, False),
        (["libcuda1"], ["libcuda1"], ["libcuda1"], ["libcuda1", "libcuda1:i386"], True),
        ([*EACH, "libc6:i386"], [], ["libcuda1", "libglx-nvidia0"], ["libc6:i386", "nvidia-smi"], True),
    ],
    ids=["held", "a second time", "the other was loose", "released"],
)
def test_every_architecture(
    folder: Path, before: list[str], hold: list[str], release: list[str], after: list[str], changed: bool
) -> None:
    (folder / "held").write_text("".join(f"{name}\n" for name in before), encoding="utf-8")
    assert run(folder, hold, release) == (after, changed)


def test_check_mode_holds_nothing(folder: Path) -> None:
    (folder / "held").write_text("bash\n")
    assert run(folder, ["libcuda1"], ["bash"], check=True) == (["bash"], True)


SAY = """\
echo "$0" "$@" >> "$STATE/said"
env | grep -E "^(LC_ALL|DEBIAN_FRONTEND|autoinstall_all_kernels|http_proxy)=" >> "$STATE/said"
for word in "$@"; do case $word in Dir::Etc::preferences=*) cat "${word#*=}" >> "$STATE/said" ;; esac; done
"""


def test_what_apt_is_called_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.setattr(apt_settings, "PREFERENCES", str(folder / "preferences"))
    (folder / "preferences").write_text("Package: theirs\n")
    program(folder, "apt-get", f"{SAY}exit 0\n")
    wanted = Transaction("it", ("a=1", "b:i386=2"), ("c",), pin=Pin("580.95.05", ("libnvidia-*", "nvidia-*")))
    assert Apt(Settings(42)).commit(wanted).problem == ""
    said = (folder / "said").read_text()
    assert "--allow-change-held-packages" in said
    assert "-o DPkg::Lock::Timeout=42 install a=1 b:i386=2 c-\n" in said
    for word in (
        "LC_ALL=C.UTF-8",
        "DEBIAN_FRONTEND=noninteractive",
        "autoinstall_all_kernels=1",
        "http_proxy=http://proxy.example:3128",
    ):
        assert word in said
    first, second, last = said.partition("Package: ")[2].split("\n\n")
    assert first == "libnvidia-* nvidia-*\nPin: version /^([0-9]+:)?580\\.95\\.05-/\nPin-Priority: 1001"
    assert second.endswith("Pin: version /^([0-9]+:)?[0-9][0-9][0-9][.][0-9]/\nPin-Priority: -1")
    assert last == "Package: theirs\n"


TRIAL = """cat << 'END'
Reading package lists...
Remv nvidia-kernel-dkms [535.1-1]
Inst libcuda1 [535.1-1] (550.2-1 Debian:12.5/stable [amd64]) []
Inst libcuda1:i386 (550.2-1 Debian:12.5/stable [i386])
Conf libcuda1 (550.2-1 Debian:12.5/stable [amd64])
END
"""


def test_a_trial_in_words_that_all_managers_have(folder: Path) -> None:
    program(folder, "apt-get", TRIAL)
    trial = Apt(Settings()).attempt(Transaction("it", ("libcuda1",)))
    assert trial.rows == ["Remv nvidia-kernel-dkms", "Inst libcuda1 550.2-1", "Inst libcuda1:i386 550.2-1"]
    assert trial.unfinished
    program(
        folder,
        "apt-get",
        "echo 'The following packages have unmet dependencies:'; echo 'E: held broken packages' >&2; exit 100\n",
    )
    problem = Apt(Settings()).attempt(Transaction("it", ("libcuda1",))).problem
    assert problem == "The following packages have unmet dependencies: E: held broken packages"


def test_what_stands_in_the_way_is_told_before_what_is_there_already() -> None:
    """As apt 2.6 says it of a held package that conflicts: the sentence that names both comes last."""
    said = (
        *(
            f"{name} is already the newest version (535.1-1)."
            for name in ("libnvidia-cfg1", "nvidia-smi", "nvidia-cuda-mps")
        ),
        "Some packages could not be installed. This may mean that you have",
        "requested an impossible situation or if you are using the unstable",
        "distribution that some required packages have not yet been created",
        "or been moved out of Incoming.",
        "The following information may help to resolve the situation:",
        "",
        "The following packages have unmet dependencies:",
        " blocker : Conflicts: libcuda1 but 535.1-1 is to be installed",
    )
    assert apt.find_reason(said) == f"{apt.UNMET} blocker : Conflicts: libcuda1 but 535.1-1 is to be installed."
    assert apt.find_reason(said[:4]) == "Some packages could not be installed. This may mean that you have"


def test_a_program_that_is_not_there_or_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(folder, "dpkg-query", "echo 'dpkg-query: error: no such file' >&2; exit 2\n")
    with pytest.raises(Refused, match=r"dpkg-query -W fails: dpkg-query: error: no such file\. Fix: "):
        Apt(Settings()).read([])
    monkeypatch.setenv("PATH", str(folder / "nowhere"))
    assert Apt(Settings()).attempt(Transaction("it", ("a",))).problem.strip() == "apt-get: No such file or directory"


class Lists:
    """A package manager that fetches lists, or cannot."""

    def __init__(self, problem: str = "") -> None:
        self.problem, self.fetched = problem, 0

    def fetch(self, _source: str) -> None:
        self.fetched += 1
        if self.problem:
            raise Refused(self.problem)


def test_a_source_comes_with_its_lists_or_not_at_all(tmp_path: Path) -> None:
    place = tmp_path / "non-free.sources"
    asked: dict[str, Any] = {
        "of": "Debian's",
        "source": "non-free",
        "sources": {str(place): "Types: deb\n"},
        "fix": "try again",
    }
    good, bad = Lists(), Lists("404 Not Found")
    assert actions.fetch(good, asked, True)["changed"]  # type: ignore[arg-type]
    assert (good.fetched, place.exists()) == (0, False)
    with pytest.raises(Refused, match=r"^Debian's: .*taken away again: 404 Not Found\. Fix: try again$"):
        actions.fetch(bad, asked, False)  # type: ignore[arg-type]
    assert not place.exists()
    assert actions.fetch(good, asked, False)["changes"] == [str(place)]  # type: ignore[arg-type]
    assert not actions.fetch(good, asked, False)["changed"]  # type: ignore[arg-type]
    assert good.fetched == 2, "a run that was cut off may have left it without lists"
    with pytest.raises(Refused, match="left as it was: 404"):
        actions.fetch(bad, asked, False)  # type: ignore[arg-type]
    assert place.read_text() == "Types: deb\n"
    place.unlink()
    place.mkdir()
    with pytest.raises(Refused, match="is a folder, where gpuprov keeps a file"):
        actions.fetch(good, asked, False)  # type: ignore[arg-type]


def test_the_lock_of_apts_lists_is_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apt_files, "PAUSE", 0.01)
    busy = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)"
    program(
        folder,
        "apt-get",
        f"echo x >> $STATE/tries\n[ $(wc -l < $STATE/tries) -gt 2 ] || {{ echo '{busy}' >&2; exit 100; }}\n",
    )
    assert apt_files.wait_and_fetch(apt_database.update_lists, 60) == ""
    assert (folder / "tries").read_text() == "x\n" * 3
    (folder / "tries").unlink()
    assert apt_files.wait_and_fetch(apt_database.update_lists, 0) == busy, "no longer than asked for"
    assert (folder / "tries").read_text() == "x\n"


def test_what_a_bundle_lacks_is_told_with_the_way_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(folder, "apt-get", "echo 'E: Unable to locate package pciutils' >&2; exit 100\n")
    wanted = Transaction("PCIe settings", ("pciutils",))
    with pytest.raises(Refused, match=r"locate package pciutils\. Fix: correct what it reports"):
        judge.try_transaction(Apt(Settings()), wanted)
    monkeypatch.setenv("GPUPROV_BUNDLE", "/var/lib/gpuprov/bundle/0123456789abcdef")
    with pytest.raises(
        Refused, match=r"locate package pciutils\. Fix: this run sees the packages of the bundle alone; make it"
    ):
        judge.try_transaction(Apt(Settings()), wanted)


def test_a_removal_takes_along_only_what_it_may(folder: Path) -> None:
    program(folder, "apt-get", "echo 'Remv nvidia-installer-cleanup [1]'; echo 'Remv glx-diversions [1.2.2]'\n")
    removal = Transaction("the removal of it", remove=("nvidia-installer-cleanup",), may_remove=("glx-diversions",))
    assert judge.try_transaction(Apt(Settings()), removal).rows == [
        "Remv nvidia-installer-cleanup",
        "Remv glx-diversions",
    ]
    message = "apt would remove glx-diversions for the removal of it. Fix: remove them yourself"
    with pytest.raises(Refused, match=f"^{message}$"):
        judge.try_transaction(Apt(Settings()), replace(removal, may_remove=()))
    program(folder, "apt-get", "echo 'E: broken' >&2; exit 100\n")
    with pytest.raises(Refused, match=r"^apt cannot do the removal of it: .*broken\. Fix"):
        judge.try_transaction(Apt(Settings()), removal)
