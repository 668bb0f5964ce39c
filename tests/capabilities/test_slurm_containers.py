"""slurm.containers: what enroot and pyxis need on a node, the prolog as it really runs, and the plugin as srun really
takes it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from gpuprov.capabilities import slurm
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.slurm import containers
from gpuprov.capabilities.slurm.fragment import Containers, Slurm
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.host import slurm_containers as probe
from gpuprov.resources import Absent, File
from gpuprov.spec.build import convert
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import Row, facts, judge
from tests.capabilities.slurm_host import printed_containers, told
from tests.here import program

ENROOT = Slurm(containers=Containers(enroot=True))
BOTH = Slurm(containers=Containers(enroot=True, pyxis=True))
PLUGIN = "/usr/lib/x86_64-linux-gnu/slurm/spank_pyxis.so"
OTHER = f"srun: plugin_load_from_file: Incompatible Slurm plugin {PLUGIN} version (23.02.0)"
KERNEL = "sysctl|user/max_user_namespaces|9\nsysctl|kernel/"
NAMES = ("enroot", "pyxis_plugin", "enroot_folders", "enroot_gpus", "user_namespaces", "pyxis")
INSTALLED, PLUGGED, FOLDERS, GPUS, NAMESPACES, PYXIS = (f"slurm.{name}" for name in NAMES)


def host(**changes: str) -> dict[str, str]:
    return {"slurm_containers": printed_containers(**changes)}


ROWS = [
    *(Row(f"{name} without containers", name, None, {}, "n/a") for name in (INSTALLED, PLUGGED, FOLDERS, GPUS,
                                                                            NAMESPACES, PYXIS)),
    Row("enroot with its capabilities", INSTALLED, ENROOT, {}, "pass", "enroot 4.1.2"),
    Row("no enroot", INSTALLED, ENROOT, host(enroot=""), "fail", "enroot is not installed", "github.com/NVIDIA/enroot"),
    Row("an enroot without drop-ins", INSTALLED, ENROOT, host(enroot="enroot|3.3.1"), "fail", "reads no enroot.conf.d"),
    Row("an enroot without a version", INSTALLED, ENROOT, host(enroot="enroot|"), "pass"),
    Row("no enroot+caps", INSTALLED, ENROOT, host(caps=""), "fail", "lack their capabilities", "enroot+caps"),
    Row("pyxis", PLUGGED, BOTH, {}, "pass", PLUGIN),
    Row("no pyxis", PLUGGED, BOTH, host(plugin=""), "fail", "no spank_pyxis.so", "the headers of slurm-wlm 22.05.8"),
    Row("pyxis where the site says", PLUGGED, BOTH, host(plugin="", plugged="plugged|/etc/x.conf"), "pass",
        "/etc/x.conf"),
    Row("folders by Prolog", FOLDERS, ENROOT, {}, "pass", "below /run/enroot and /var/lib/enroot"),
    Row("not applied yet", FOLDERS, ENROOT, host(conf=""), "fail", "no ENROOT_RUNTIME_PATH", "gpuprov apply"),
    Row("an earlier line of the site's", FOLDERS, ENROOT, host(first="conf|ENROOT_DATA_PATH /tmp/data"), "fail",
        "ENROOT_DATA_PATH /tmp/data", "the first line wins"),
    Row("no Prolog", FOLDERS, ENROOT, host(prolog=""), "fail", "Prolog does not start it", f"Prolog={probe.PROLOG}"),
    Row("GPUs in containers", GPUS, ENROOT, {}, "pass", "/usr/bin/nvidia-container-cli"),
    Row("no hook", GPUS, ENROOT, host(hook=""), "fail", "no /etc/enroot/hooks.d/98-nvidia.sh"),
    Row("no libnvidia-container", GPUS, ENROOT, host(cli=""), "fail", "no nvidia-container-cli",
        "container_toolkit: {}"),
    Row("namespaces for users", NAMESPACES, ENROOT, {}, "pass"),
    Row("a kernel without them", NAMESPACES, ENROOT, host(sysctl=""), "fail", "a kernel without user namespaces",
        "CONFIG_USER_NS"),
    Row("no namespaces", NAMESPACES, ENROOT, host(sysctl="sysctl|user/max_user_namespaces|0"), "fail",
        "user.max_user_namespaces=0",
        "kernel: {sysctl: {user.max_user_namespaces: 65536}}"),
    Row("Debian without them", NAMESPACES, ENROOT, host(sysctl=f"{KERNEL}unprivileged_userns_clone|0"), "fail",
        "kernel.unprivileged_userns_clone=0", "kernel.unprivileged_userns_clone: 1"),
    Row("Ubuntu 24.04", NAMESPACES, ENROOT, host(sysctl=f"{KERNEL}apparmor_restrict_unprivileged_userns|1"), "fail",
        "kernel.apparmor_restrict_unprivileged_userns=1", "AppArmor profile"),
    Row("Ubuntu 24.04 with enroot's profile", NAMESPACES, ENROOT,
        host(sysctl=f"{KERNEL}apparmor_restrict_unprivileged_userns|1\nprofile|"), "pass"),
    Row("srun with pyxis", PYXIS, BOTH, {}, "pass", "--container-image"),
    Row("pyxis of another Slurm", PYXIS, BOTH, host(srun=f"srun|\nerror|{OTHER}"), "fail",
        "pyxis was built for Slurm 23.02.0, and this is slurm-wlm 22.05.8", "build pyxis again"),
    Row("another error", PYXIS, BOTH, host(srun="srun|\nerror|srun: error: spank: no such file"), "fail",
        "no such file"),
    Row("a plugstack.conf that includes nothing", PYXIS, BOTH, host(srun="srun|", stack="stack|site"), "fail",
        "srun does not have it",
        "include /etc/slurm/plugstack.conf.d/*.conf"),
    Row("named twice", PYXIS, BOTH,
        host(plugged="plugged|/etc/slurm/plugstack.conf\nplugged|/etc/slurm/plugstack.conf.d/pyxis.conf"),
        "fail", "is named in /etc/slurm/plugstack.conf, /etc", "name it in one file"),
    Row("no srun", PYXIS, BOTH, host(srun=""), "skip", "srun is not installed"),
]  # fmt: skip


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_containers(row: Row) -> None:
    judge(row)


def resources(block: Slurm, **changes: str) -> dict[str, File | None]:
    """Return the files that the block asks for, None for those that must not be there."""
    ctx = Context(HostSpec(name="gpu1"), block, facts(slurm=told(), **host(**changes)))
    found: dict[str, File | None] = {}
    for item in containers.desired(ctx):
        assert isinstance(item, File | Absent)
        found[item.path] = item if isinstance(item, File) else None
    return found


def test_enroot_has_its_folders_on_the_local_disk() -> None:
    found = resources(Slurm(containers=Containers(enroot=True, folder="/scratch/enroot")))
    settings = found[probe.ENROOT_CONF]
    assert settings is not None
    assert "ENROOT_CACHE_PATH /scratch/enroot/cache/user-$(id -u)\n" in settings.text
    assert "ENROOT_RUNTIME_PATH /run/enroot/user-$(id -u)\n" in settings.text
    subprocess.run(["bash", "-n"], input=settings.text, text=True, check=True)  # enroot refuses a file that bash does
    assert found[probe.PYXIS_CONF] is None


def test_nothing_of_it_is_left_without_containers() -> None:
    assert resources(Slurm()) == dict.fromkeys((probe.ENROOT_CONF, probe.PROLOG, probe.PYXIS_CONF))


def test_pyxis_is_named_once() -> None:
    found = resources(BOTH)
    line, stack = found[probe.PYXIS_CONF], found[probe.PLUGSTACK]
    assert line is not None
    assert stack is not None
    assert line.text.endswith(f"\nrequired {PLUGIN}\n")
    assert stack.text.endswith("\ninclude /etc/slurm/plugstack.conf.d/*.conf\n")
    assert probe.PLUGSTACK not in resources(BOTH, stack="stack|site"), "the site's own file"
    assert resources(BOTH, plugged="plugged|/etc/slurm/plugstack.conf.d/pyxis.conf")[probe.PYXIS_CONF] is None
    assert resources(BOTH, plugged=f"plugged|{probe.PYXIS_CONF}")[probe.PYXIS_CONF] is not None, "its own"


def test_pyxis_needs_enroot() -> None:
    block = Slurm(containers=Containers(pyxis=True))
    (problem,) = slurm.rules(HostSpec(name="h", capabilities={"slurm": block}), block)
    assert "slurm.containers.pyxis is true, and pyxis runs enroot" in str(problem)


@pytest.mark.parametrize("folder", ["relative", "/", "/a b", "/a/../b", "/a$(id)", "/a\nb", "/a/"])
def test_a_folder_is_words_of_a_shell(folder: str) -> None:
    assert convert({"containers": {"enroot": True, "folder": folder}}, Slurm)[1]


def prolog(folder: Path, user: str = "1234") -> subprocess.CompletedProcess[str]:
    """Run the prolog for a user's job."""
    text = containers.write_prolog([str(folder / "run"), str(folder / "disk/cache")])
    environment = {**os.environ, "SLURM_JOB_UID": user}
    return subprocess.run(["sh"], input=text, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives folders to users")
def test_the_prolog_gives_each_user_folders_that_no_other_may_open(tmp_path: Path) -> None:
    uid = 65534  # nobody: a user whom every system has
    for _ in range(2):
        done = prolog(tmp_path, str(uid))
        assert (done.returncode, done.stderr) == (0, "")
    for above in ("run", "disk/cache"):
        assert (tmp_path / above).stat().st_mode & 0o777 == 0o755
        own = (tmp_path / above / f"user-{uid}").stat()
        assert (own.st_uid, own.st_mode & 0o777) == (uid, 0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives folders to users")
def test_a_folder_that_a_user_made_first_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    os.chown(tmp_path / "run", 65534, 65534)
    assert prolog(tmp_path, "65534").returncode == 1
    (tmp_path / "run").rmdir()
    (tmp_path / "run").symlink_to("/etc")
    done = prolog(tmp_path, "65534")
    assert done.returncode == 1
    assert "is not a folder of root's" in done.stderr


PLUGIN_SOURCE = """
#include <stddef.h>
#include <slurm/spank.h>
/* A stand-in of pyxis: its option only. */
static int take(int value, const char *image, int remote) { return 0; }
static struct spank_option image[] = {{"container-image", "IMAGE", "[stand-in] the image", 1, 0, take}, SPANK_OPTIONS_TABLE_END};
int slurm_spank_init(spank_t sp, int count, char **words) { return spank_option_register(sp, image); }
#ifdef OTHER
const char plugin_name[] = "pyxis", plugin_type[] = "spank";
const unsigned int plugin_version = OTHER, spank_plugin_version = 1;
#else
SPANK_PLUGIN(pyxis, 1);
#endif
"""


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration of Slurm's in place of /etc/slurm, for srun and for the probe."""
    text = (
        f"ClusterName=t\nSlurmctldHost={socket.gethostname()}\nAuthType=auth/none\nCredType=cred/none\nNodeName=n1\n"
        f"PlugStackConfig={tmp_path}/plugstack.conf\nPluginDir={tmp_path}:/usr/lib/x86_64-linux-gnu/slurm-wlm\n"
    )
    (tmp_path / "slurm.conf").write_text(text, encoding="utf-8")
    (tmp_path / "plugstack.conf").write_text(f"include {tmp_path}/plugstack.conf.d/*.conf\n", encoding="utf-8")
    (tmp_path / "plugstack.conf.d").mkdir()
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    return tmp_path


def ask(folder: Path) -> probe.Containers:
    """Run the probe with Slurm's files in the folder."""
    script = probe.CONTAINERS.script.replace("/etc/slurm", str(folder))
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    return probe.parse_containers(Output(done.stdout))


@pytest.mark.install
@pytest.mark.skipif(
    not (shutil.which("srun") and Path("/usr/include/slurm/spank.h").exists()),
    reason="apt-get install slurm-client libslurm-dev gcc"
)  # fmt: skip
def test_srun_says_whether_the_plugin_is_of_its_own_release(read: Path) -> None:
    (read / "plugin.c").write_text(PLUGIN_SOURCE, encoding="utf-8")
    (read / "plugstack.conf.d/site.conf").write_text(f"required {read}/spank_pyxis.so\n", encoding="utf-8")
    build = ["gcc", "-shared", "-fPIC", "-o", str(read / "spank_pyxis.so"), str(read / "plugin.c")]
    subprocess.run(build, check=True)
    own = ask(read)
    assert own.offered, own
    assert own.plugged == (f"{read}/plugstack.conf.d/site.conf",)
    assert own.plugin == f"{read}/spank_pyxis.so"
    assert (own.stack, own.built_for) == ("site", "")
    subprocess.run([*build, "-DOTHER=0x170200"], check=True)
    other = ask(read)
    assert not other.offered
    assert other.built_for == "23.02.0", other


def test_a_prolog_of_the_site_may_start_it(read: Path) -> None:
    (read / "prolog.d").mkdir()
    with (read / "slurm.conf").open("a", encoding="utf-8") as file:
        file.write(f"Prolog={read}/prolog.d/*\n")
    assert not ask(read).prolog
    (read / "prolog.d/10-site").write_text(f"#!/bin/sh\nexec {probe.PROLOG}\n", encoding="utf-8")
    assert ask(read).prolog


def test_the_version_of_enroot_is_that_of_its_script(read: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of NVIDIA's enroot.in: https://github.com/NVIDIA/enroot/blob/main/enroot.in"""
    program(read, "enroot", 'export ENROOT_VERSION="3.2.0"\n')
    monkeypatch.setenv("PATH", f"{read}:/usr/bin:/bin")
    assert ask(read).enroot == "3.2.0"
