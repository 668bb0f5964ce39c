"""A peer module built again through its module, where stand-ins answer for the host; in a process of its own, which may
be ended."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import here
from tests.host_code.modules import step

pytestmark = pytest.mark.install

K = "6.1.0-47-amd64"
USES = b"\x7fELF ib_register_peer_memory_client\x00"
TREE = f"nvidia-current/535.261.03/{K}/x86_64/module"
DKMS = r"""#!/bin/sh
echo "$*" >> ROOT/log
tree=ROOT/var/lib/dkms
while [ $# -gt 0 ]; do case $1 in
  --dkmstree) tree=$2; shift ;; -m) name=$2; shift ;; -v) version=$2; shift ;; -k) kernel=$2; shift ;;
  add|build|uninstall|install) verb=$1 ;;
esac; shift; done
case $verb in
  add) mkdir -p "$tree/$name/$version" ;;
  build) mkdir -p "$tree/$name/$version/build" "$tree/$name/$version/$kernel/x86_64/module"
    [ -e ROOT/broken ] && { echo 'x.c:1: error: no such thing' > "$tree/$name/$version/build/make.log"; exit 10; }
    cp ROOT/made "$tree/$name/$version/$kernel/x86_64/module/nvidia-peermem.ko" ;;
  install) made=$tree/$name/$version/$kernel/x86_64/module/nvidia-peermem.ko
    [ -e ROOT/full ] && ! grep -q old "$made" && { echo 'No space left'; exit 6; }
    [ -e ROOT/killed ] && ! grep -q old "$made" && kill $PPID
    mkdir -p ROOT/installed; cp "$made" ROOT/installed/ ;;
esac
exit 0
"""


WHY = f"{K}: it was built without peer memory"
# As Ansible runs it, with the folders of the host below one.
PROGRAM = """
import json, sys
import ansible.module_utils
from ansible.module_utils.testing import patch_module_args
sys.path.insert(0, sys.argv[1])
ansible.module_utils.__path__.append(sys.argv[1] + "/plugins/module_utils")
from ansible.module_utils.gpuprov_host_code.steps import peer_build
for name in ("DKMS", "SOURCES", "WORK"):
    setattr(peer_build, name, sys.argv[2] + getattr(peer_build, name))
from plugins.modules import gpuprov_step
with patch_module_args(json.loads(sys.argv[3])):
    gpuprov_step.main()
"""


class Site:
    """A host below a folder: files, and programs that answer for it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "bin").mkdir()

    def program(self, name: str, text: str) -> None:
        here.program(self.root / "bin", name, text.replace("ROOT", str(self.root)))

    def file(self, path: str, content: bytes | str = "") -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
        return place

    def rebuild(self) -> tuple[int, str]:
        """The exit status, and what is said."""
        asked = {"name": "peer_build", "arguments": {"module": "nvidia_peermem", "kernels": [K], "why": WHY}}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(here.ROLES.parent), str(self.root), json.dumps(asked)],
            env={**os.environ, "PATH": f"{self.root}/bin:/usr/bin:/bin"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    made.program("dkms", DKMS)
    made.file("made", USES)
    made.file(f"var/lib/dkms/{TREE}/nvidia-peermem.ko", "old")
    return made


def module(site: Site) -> str:
    """What is in DKMS's tree, and what is installed."""
    there = (site.root / "var/lib/dkms" / TREE / "nvidia-peermem.ko").read_bytes()
    installed = site.root / "installed/nvidia-peermem.ko"
    return f"{there!r} {installed.read_bytes()!r}" if installed.exists() else repr(there)


def test_a_module_is_built_again_and_put_in_place(site: Site) -> None:
    code, said = site.rebuild()
    assert (code, f"built nvidia_peermem again for {WHY}" in said) == (0, True), said
    assert module(site) == f"{USES!r} {USES!r}"
    assert not (site.root / "var/lib/gpuprov/rebuild").exists()
    verbs = [line.split()[0] for line in (site.root / "log").read_text().splitlines()]
    assert verbs == ["add", "build", "uninstall", "install"]


@pytest.mark.parametrize(
    ("trouble", "made", "told"),
    [("broken", USES, "x.c:1: error: no such thing"), ("", b"\x7fELF nothing", "built again without peer memory")],
)
def test_what_does_not_build_leaves_the_host_as_it_was(site: Site, trouble: str, made: bytes, told: str) -> None:
    site.file("made", made)
    if trouble:
        site.file(trouble)
    code, said = site.rebuild()
    assert (code, told in said) == (1, True), said
    assert "the modules that were there are untouched" in said
    assert module(site) == "b'old'"
    assert "uninstall" not in (site.root / "log").read_text()


def test_what_does_not_install_is_taken_back(site: Site) -> None:
    site.file("full")
    code, said = site.rebuild()
    assert (code, "DKMS does not install what it built: No space left" in said) == (1, True), said
    assert module(site) == "b'old' b'old'"


@pytest.mark.parametrize("trouble", ["copying", "killed"])
def test_what_is_cut_off_is_taken_back(site: Site, trouble: str) -> None:
    """The package has nvidia.ko, too: without it, the host would boot without a driver."""
    site.file(trouble)
    if trouble == "copying":
        site.program("cp", 'case "$1 $2" in "-a "*/tree/*) echo full >&2; exit 1 ;; esac\nexec /bin/cp "$@"\n')
    code, said = site.rebuild()
    assert code == 1, said
    assert module(site) == "b'old' b'old'"
    assert not (site.root / "var/lib/gpuprov/rebuild").exists()


def test_what_an_earlier_run_left_is_put_back(site: Site) -> None:
    """As after a loss of power."""
    home = site.root / "var/lib/dkms" / TREE
    shutil.rmtree(home.parent)
    site.file("var/lib/gpuprov/rebuild/home", str(home.parent))
    site.file("var/lib/gpuprov/rebuild/old/module/nvidia-peermem.ko", "old")
    site.file("broken")
    code, said = site.rebuild()
    assert (code, "x.c:1: error" in said) == (1, True), said
    assert module(site) == "b'old' b'old'"


def test_modules_that_came_ready_made(site: Site) -> None:
    shutil.rmtree(site.root / "var/lib/dkms")
    code, said = site.rebuild()
    assert (code, "does not come from DKMS" in said) == (1, True), said


def test_no_dkms(site: Site) -> None:
    if shutil.which("dkms", path="/usr/bin:/bin"):
        pytest.skip("this machine has DKMS")
    (site.root / "bin/dkms").unlink()
    code, said = site.rebuild()
    assert (code, "DKMS is not installed" in said) == (1, True), said


def test_check_mode_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    told = step(capsys, "peer_build", check=True, module="nvidia_peermem", kernels=[K], why=WHY)
    assert (told["changed"], told["msg"]) == (True, f"would build nvidia_peermem again for {WHY}")
