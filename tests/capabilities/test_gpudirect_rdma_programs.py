"""The programs of role gpudirect_rdma, and what the driver's role takes out of the kernel, run where stand-ins answer for the host."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuprov import assets

FILES = assets.root() / "roles" / "gpudirect_rdma" / "files"
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


class Site:
    """A host below a folder: files, and programs that answer for it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.programs = root / "bin"
        self.programs.mkdir()

    def program(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text.replace("ROOT", str(self.root)))
        (self.programs / name).chmod(0o755)

    def file(self, path: str, content: bytes | str = "") -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
        return place

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        for folder in ("/var/lib/", "/sys/", "/run/gpuprov", "/usr/src"):
            script = script.replace(folder, f"{self.root}{folder}")
        env = {**os.environ, "PATH": f"{self.programs}:/usr/bin:/bin"}
        return subprocess.run(
            ["sh", "-c", script, "program", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
            env=env,
        )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def rebuild(site: Site, made: bytes = USES) -> subprocess.CompletedProcess[str]:
    site.program("dkms", DKMS)
    site.file("made", made)
    site.file(f"var/lib/dkms/{TREE}/nvidia-peermem.ko", "old")
    return site.run((FILES / "rebuild.sh").read_text(), "nvidia_peermem", K)


def test_a_module_is_built_again_and_put_in_place(site: Site) -> None:
    done = rebuild(site)
    assert (done.returncode, done.stdout) == (0, f"built again for {K}\n"), done
    assert (site.root / "installed" / "nvidia-peermem.ko").read_bytes() == USES
    assert (site.root / "var/lib/dkms" / TREE / "nvidia-peermem.ko").read_bytes() == USES
    assert not (site.root / "var/lib/gpuprov/rebuild").exists()
    verbs = [line.split()[0] for line in (site.root / "log").read_text().splitlines()]
    assert verbs == ["add", "build", "uninstall", "install"]


@pytest.mark.parametrize(
    ("trouble", "made", "told"),
    [
        ("broken", USES, "x.c:1: error: no such thing"),
        ("", b"\x7fELF nothing", "built again without peer memory"),
    ],
)
def test_what_does_not_build_leaves_the_host_as_it_was(site: Site, trouble: str, made: bytes, told: str) -> None:
    if trouble:
        site.file(trouble)
    done = rebuild(site, made)
    assert done.returncode == 1
    assert told in done.stdout
    assert (site.root / "var/lib/dkms" / TREE / "nvidia-peermem.ko").read_text() == "old"
    assert "uninstall" not in (site.root / "log").read_text()


def test_what_does_not_install_is_taken_back(site: Site) -> None:
    site.file("full")
    done = rebuild(site)
    assert done.returncode == 1
    assert "DKMS does not install what it built:\nNo space left" in done.stdout
    assert (site.root / "installed" / "nvidia-peermem.ko").read_text() == "old"


@pytest.mark.parametrize("trouble", ["copying", "killed"])
def test_what_is_cut_off_is_taken_back(site: Site, trouble: str) -> None:
    """The package has nvidia.ko, too: without it, the host would boot without a driver."""
    site.file(trouble)
    if trouble == "copying":
        site.program(
            "cp", '#!/bin/sh\ncase "$1 $2" in "-a "*/tree/*) echo full >&2; exit 1 ;; esac\nexec /bin/cp "$@"\n'
        )
    done = rebuild(site)
    assert done.returncode == 1
    assert (site.root / "var/lib/dkms" / TREE / "nvidia-peermem.ko").read_text() == "old"
    assert (site.root / "installed" / "nvidia-peermem.ko").read_text() == "old"
    assert not (site.root / "var/lib/gpuprov/rebuild").exists()


def test_what_an_earlier_run_left_is_put_back(site: Site) -> None:
    """As after a loss of power."""
    site.file("var/lib/gpuprov/rebuild/home", str(site.root / "var/lib/dkms" / TREE).removesuffix("/module"))
    site.file("var/lib/gpuprov/rebuild/old/module/nvidia-peermem.ko", "old")
    site.file("broken")
    site.program("dkms", DKMS)
    done = site.run((FILES / "rebuild.sh").read_text(), "nvidia_peermem", K)
    assert "x.c:1: error" in done.stdout, done
    assert (site.root / "var/lib/dkms" / TREE / "nvidia-peermem.ko").read_text() == "old"
    assert (site.root / "installed" / "nvidia-peermem.ko").read_text() == "old"


def test_modules_that_came_ready_made(site: Site) -> None:
    site.program("dkms", "#!/bin/sh\n")
    done = site.run((FILES / "rebuild.sh").read_text(), "nvidia_peermem", K)
    assert done.returncode == 1
    assert "does not come from DKMS" in done.stdout


def test_no_dkms(site: Site) -> None:
    if shutil.which("dkms", path="/usr/bin:/bin"):
        pytest.skip("this machine has DKMS")
    done = site.run((FILES / "rebuild.sh").read_text(), "nvidia_peermem", K)
    assert done.returncode == 1
    assert "DKMS is not installed" in done.stdout
