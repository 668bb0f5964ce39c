"""The role host holds and releases Debian packages in every architecture that they are installed for, here on stand-ins of apt."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.here import play, program

pytestmark = pytest.mark.install

MARK = """\
case $1 in
showhold) cat "$STATE/held" ;;
hold) shift; printf '%s\\n' "$@" >> "$STATE/held" ;;
unhold) shift; for one in "$@"; do grep -vxF "$one" "$STATE/held" > "$STATE/new"; mv "$STATE/new" "$STATE/held"; done ;;
esac
"""
ROWS = """\
ii |libcuda1|amd64
ii |libcuda1|i386
ii |libnvidia-ml1|amd64
ii |nvidia-smi|all
ii |libglx-nvidia0|i386
rc |nvidia-smi|i386
ii |libc6|i386
"""


def run(folder: Path, hold: list[str], release: list[str]) -> tuple[list[str], bool]:
    """What is held after the role has run, and whether it changed anything."""
    program(folder, "apt-mark", MARK)
    program(folder, "dpkg", "echo amd64\n")
    program(folder, "dpkg-query", f"cat << 'END'\n{ROWS}END\n")
    given = {"host_hold_packages": hold, "host_release_packages": release, "__host_family": "debian"}
    task = {"ansible.builtin.include_role": {"name": "host", "tasks_from": "packages_hold"}, "vars": given}
    done = play(folder, {"tasks": [task]})
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted((folder / "held").read_text(encoding="utf-8").split()), "changed=0" not in done.stdout


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
    tmp_path: Path, before: list[str], hold: list[str], release: list[str], after: list[str], changed: bool
) -> None:
    (tmp_path / "held").write_text("".join(f"{name}\n" for name in before), encoding="utf-8")
    assert run(tmp_path, hold, release) == (after, changed)
