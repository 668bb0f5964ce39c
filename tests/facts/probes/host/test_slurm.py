"""What a host says of Slurm, read by the probe's own script from a folder that looks like a compute node's; and what
slurmds print."""

from __future__ import annotations

from pathlib import Path

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.host.slurm import HEALTH, SLURM, Gres, Judged, Slurm, parse
from tests.facts.probes import run_well
from tests.rows import run_each

MIG = "/dev/nvidia1,/dev/nvidia-caps/nvidia-cap156,/dev/nvidia-caps/nvidia-cap157"
SAID = f"""\
slurmd: Gres Name=gpu Type=h100 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 (null)
slurmd: Gres Name=gpu Type=1g.10gb Count=1 Index=157 ID=7696487 File={MIG} (null)
slurmd: WARNING: A line in gres.conf for GRES shard has 4 more configured than expected in slurm.conf. Ignoring extra GRES.
"""
"""As slurmd 22.05.8 of Debian 12 prints it."""


def read(root: Path, conf: str | None = None, **programs: str) -> Slurm:
    """Run the script where /etc/slurm and gpuprov's folders are below `root`."""
    for folder in ("bin", "etc/slurm", "etc/gpuprov", "usr/lib/slurm"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    if conf is not None:
        (root / "etc/slurm/slurm.conf").write_text(conf)
    script = SLURM.script.replace("PATH=$PATH:/usr/sbin:/sbin:/opt/slurm/sbin", ":")
    for place in ("/etc/slurm", "/etc/gpuprov", "/usr/lib/slurm", "/usr/local/lib/gpuprov"):
        script = script.replace(place, f"{root}{place}")
    script = script.replace("/usr/lib/*/", f"{root}/nowhere/*/")
    return parse(run_well(script, root, {"systemctl": "echo 0", **programs}))


def slurmd(said: str = SAID) -> str:
    return f"if [ $1 = -V ]; then echo 'slurm-wlm 22.05.8'; else cat >&2 <<'E'\n{said}E\nfi"


def test_a_host_without_slurm(tmp_path: Path) -> None:
    assert read(tmp_path) == Slurm()


def test_a_node_without_slurm_conf_asks_slurmd_nothing(tmp_path: Path) -> None:
    found = read(tmp_path, slurmd=f"echo >> {tmp_path}/asked; {slurmd()}")
    assert (found.settings, found.gres, found.version) == (None, (), "slurm-wlm 22.05.8")
    assert (tmp_path / "asked").read_text() == "\n", "its version alone: it would ask for a slurmctld on the network"


def test_a_compute_node(tmp_path: Path) -> None:
    (tmp_path / "etc/slurm").mkdir(parents=True)
    (tmp_path / "etc/slurm/gres.conf").write_text("Name=gpu File=/dev/nvidia0\n")
    (tmp_path / "etc/slurm/more.conf").write_text("healthcheckinterval = 60 # seconds\n")
    (tmp_path / "etc/gpuprov").mkdir()
    (tmp_path / "etc/gpuprov/slurm.json").write_text('{"count": 8}\n')
    conf = "ClusterName=c\n#TaskPlugin=task/none\n TaskPlugin=task/affinity,task/cgroup # both\nInclude more.conf\n"
    found = read(tmp_path, conf, slurmd=slurmd())
    assert found.settings == {"taskplugin": "task/affinity,task/cgroup", "healthcheckinterval": "60"}
    assert found.gres == (Gres("gpu", "h100", 1, ("/dev/nvidia0",)), Gres("gpu", "1g.10gb", 1, tuple(MIG.split(","))))
    assert (found.gres_conf, found.written, found.nvml) == ("Name=gpu File=/dev/nvidia0\n", '{"count": 8} ', False)
    assert (found.complaints, found.judged) == ((), None)


def test_the_plugin_for_nvml(tmp_path: Path) -> None:
    (tmp_path / "usr/lib/slurm").mkdir(parents=True)
    (tmp_path / "usr/lib/slurm/gpu_nvml.so").write_text("")
    assert read(tmp_path, "ClusterName=c\n", slurmd=slurmd()).nvml
    (tmp_path / "mine").mkdir()
    assert not read(tmp_path, f"PluginDir={tmp_path}/mine\n", slurmd=slurmd()).nvml, (
        "slurm.conf says where the plugins are"
    )


def test_the_health_check_is_asked_as_a_prolog_which_drains_nothing(tmp_path: Path) -> None:
    program = tmp_path / HEALTH.lstrip("/")
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho $SLURM_SCRIPT_CONTEXT; echo 'slurm: 7 of 8 | GPUs' >&2; exit 1\n")
    program.chmod(0o755)
    judged = read(tmp_path, "ClusterName=c\n", slurmd=slurmd()).judged
    assert judged == Judged(1, judged.milliseconds if judged else 0, "slurm: 7 of 8 | GPUs")
    program.write_text('#!/bin/sh\n[ "$SLURM_SCRIPT_CONTEXT" = prolog_slurmd ]\n')
    judged = read(tmp_path, "ClusterName=c\n", slurmd=slurmd()).judged
    assert judged is not None
    assert judged.status == 0


@run_each(
    ("line", "complaint"),
    [
        (
            "slurmd: fatal: can't stat gres.conf file /dev/nvidia7: No such file",
            "fatal: can't stat gres.conf file /dev/nvidia7: No such file",
        ),
        ("slurmd: error: Waiting for gres.conf file /dev/nvidia7", "error: Waiting for gres.conf file /dev/nvidia7"),
        (
            "slurmd-gpu017: error: Waiting for gres.conf file /dev/nvidia1",
            "error: Waiting for gres.conf file /dev/nvidia1",
        ),
        ("slurmd: debug:  something", ""),
    ],
)
def test_complaints(line: str, complaint: str) -> None:
    assert parse(Output(f"slurmd|x\nsaid|{line}\n")).complaints == ((complaint,) if complaint else ())


def test_newer_slurmds_print_flags_behind_the_files() -> None:
    line = (
        "slurmd: Gres Name=gpu Type=nvidia_h100 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 Cores=0-55 "
        "CoreCnt=112 Links=-1,0"
    )
    more = f"{line} Flags=HAS_FILE,HAS_TYPE,ENV_NVML"
    assert parse(Output(f"slurmd|x\nsaid|{more}\n")).gres == (Gres("gpu", "nvidia_h100", 1, ("/dev/nvidia0",)),)
