"""slurm: slurmd and its files before anything is changed, and the GPUs, limits and health check of a node as slurmd has
them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuprov.capabilities import BY_NAME, slurm
from gpuprov.capabilities.base import Context, Outcome
from gpuprov.capabilities.fabric_manager.fragment import FabricManager, Imex
from gpuprov.capabilities.mig.fragment import Mig
from gpuprov.capabilities.slurm.desired import DESIRED, DROP_IN, HEALTH, UNIT, UNIT_FILE, UNIT_TEXT
from gpuprov.capabilities.slurm.fragment import Slurm, make_request
from gpuprov.catalog.xids import XID
from gpuprov.facts.probes.host import slurm as probe
from gpuprov.host_code.at_boot import slurm as onhost
from gpuprov.host_code.at_boot.slurm import HEADER
from gpuprov.spec.build import convert
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from tests.capabilities import contexts, mig_host
from tests.capabilities.asking import NO_GPU, Row, facts, judge, older
from tests.capabilities.contents_host import unit
from tests.capabilities.slurm_host import SETTINGS, told
from tests.rows import run_each

NODE, AUTODETECT, OWN, GRES, CONSTRAINED, ACTIVE, CHECKED, FILES = (
    f"slurm.{name}" for name in ("node", "autodetect", "own", "gres", "constrained", "active", "health_check", "files")
)
NVML, WATCHED = Slurm(gres="nvml"), Slurm(health_check=True)
GONE = "slurmd: fatal: can't stat gres.conf file /dev/nvidia7: No such file or directory"
CUT = mig_host.state(mig_host.gpu(("3g.40gb", 0, (3,)), ("1g.10gb", 4, (1,))))
PATHS = mig_host.capabilities(*(f"gpu0/mig/gi{gi}/{part}access" for gi in (1, 2) for part in ("", "ci0/")))
MIG_LINES = (
    "Name=gpu Type=3g.40gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap12,/dev/nvidia-caps/nvidia-cap13",
    "Name=gpu Type=1g.10gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap14,/dev/nvidia-caps/nvidia-cap15",
)
MIG_FOUND = tuple(f"gpu|{line.split()[1][5:]}|1|{line.split()[2].partition('=')[2]}" for line in MIG_LINES)
MIG = {"mig": CUT, "mig_capabilities": PATHS}
AUTO = ("AutoDetect=nvml",)
SHARED = ("Name=gpu File=/dev/nvidia0", "Name=shard Count=4 File=/dev/nvidia0")

AT_REST = {"reboot_reasons": "", "container": "none\n"}
UNDRIVEN = {"container": "podman\n", "loaded_driver": ""}
ROWS = [
    Row("in a container without a driver", GRES, None, {**UNDRIVEN, "mig": mig_host.state(complaint="gone")}, "skip",
        "none is loaded there"),
    Row("nor does its health check say something", CHECKED, WATCHED,
        {**UNDRIVEN, "slurm": told(health="1|300|slurm: gone")}, "skip",
        "none is loaded there"),
    Row("a compute node", NODE, None, {}, "pass", "22.05.8"),
    Row("no slurmd", NODE, None, {"slurm": ""}, "fail", "slurmd is not installed", "slurm: false"),
    Row("a configless node", NODE, None, {"slurm": told(settings=None)}, "fail", "no /etc/slurm/slurm.conf",
        "slurmctld's gres.conf"),
    Row("nvml not asked for", AUTODETECT, None, {}, "n/a", "gres: auto"),
    Row("a slurmd without it", AUTODETECT, NVML, {}, "fail", "without gpu_nvml.so", "gres: auto or files"),
    Row("a slurmd with it", AUTODETECT, NVML, {"slurm": told(nvml=True)}, "pass", "gpu_nvml.so"),
    Row("its own file", OWN, None, {}, "pass"),
    Row("no file yet", OWN, None, {"slurm": told(lines=())}, "pass", "no /etc/slurm/gres.conf"),
    Row("the site's file", OWN, None, {"slurm": told(header="# ours")}, "fail", "by another tool", "gres: site"),
    Row("the site's file, as asked", OWN, Slurm(gres="site"), {"slurm": told(header="# ours")}, "n/a", "gres: site"),
    Row("no GPU at all", GRES, None, NO_GPU, "skip", "no NVIDIA GPU"),
    Row("a driver that lists none", GRES, None, {"mig": mig_host.state()}, "fail", "NVML lists no GPU",
        "see nvidia_driver.loaded"),
    Row("not written yet", GRES, None, {"slurm": told(lines=())}, "fail", "gres.conf: absent", "gpuprov apply"),
    Row("a type", GRES, Slurm(type="h100"),
        {"slurm": told(lines=("Name=gpu Type=h100 File=/dev/nvidia0",), found=("gpu|h100|1|/dev/nvidia0",))}, "pass",
        "gpu:h100:1"),
    Row("slurm.conf does not name it", GRES, None, {"slurm": told(found=())}, "fail", "slurmd finds 0 GPUs",
        "GresTypes=gpu, and Gres=gpu:1 for this node; then scontrol reconfigure"),
    Row("slurmd says why", GRES, None, {"slurm": told(found=(), said=(GONE,))}, "fail",
        "can't stat gres.conf file /dev/nvidia7"),
    Row("a terminal's sequence is data", GRES, None, {"slurm": told(found=(), said=(f"{GONE}\x1b[2J",))}, "fail",
        "/dev/nvidia7"),
    Row("MIG devices", GRES, None, {**MIG, "slurm": told(lines=MIG_LINES, found=MIG_FOUND)}, "pass",
        "gpu:3g.40gb:1,gpu:1g.10gb:1"),
    Row("a MIG device without its file", GRES, None, {"mig": CUT}, "fail", "gpu0/mig/gi1/access is not there",
        "mig.capabilities"),
    Row("shard among the types", GRES, None,
        {**MIG, "slurm": told(lines=MIG_LINES, found=(*MIG_FOUND, "gpu|1g.10gb|1|/dev/nvidia-caps/nvidia-cap15"))},
        "fail", "each device file of a MIG device", "take shard and mps out of GresTypes"),
    Row("auto takes NVML", GRES, None, {"slurm": told(nvml=True, lines=AUTO)}, "pass"),
    Row("shards", GRES, Slurm(shards=4), {"slurm": told(lines=SHARED,
                                                        found=("gpu||1|/dev/nvidia0", "shard||4|/dev/nvidia0"))},
                                                        "pass",
        "gpu:1,shard:4"),
    Row("shards that slurm.conf lacks", GRES, Slurm(shards=4), {"slurm": told(lines=SHARED)}, "fail",
        "1 GPU and 0 shards",
        "GresTypes=gpu,shard"),
    Row("the site's, and right", GRES, Slurm(gres="site"), {"slurm": told(header="# ours",
                                                                          lines=("Name=gpu File=/dev/nvidia[0]",))},
        "pass"),
    Row("the site's, and wrong", GRES, Slurm(gres="site"), {"slurm": told(header="# ours",
                                                                          found=("gpu||1|/dev/nvidia1",))}, "fail",
        "slurmd finds 1 GPU"),
    Row("constrained", CONSTRAINED, None, {}, "pass", "task/cgroup"),
    Row("not asked for", CONSTRAINED, Slurm(constrain_devices=False), {}, "n/a"),
    Row("without the plugin", CONSTRAINED, None, {"slurm": told(settings=("TaskPlugin=task/affinity",))}, "fail",
        "TaskPlugin=task/affinity", "TaskPlugin=task/affinity,task/cgroup"),
    Row("with another tracking", CONSTRAINED, None,
        {"slurm": told(settings=("taskplugin = task/cgroup", "ProctrackType=proctrack/linuxproc"))},
        "fail", "proctrack/linuxproc", "ProctrackType=proctrack/cgroup"),
    Row("slurmd newer than its files", ACTIVE, None, {}, "pass", "newer than its files"),
    Row("slurmd off", ACTIVE, None, {"contents": unit(probe.UNIT, "inactive", "disabled")}, "n/a", "no unit"),
    Row("slurmd older", ACTIVE, None, {"unit_reads": older(probe.UNIT, onhost.GRES)}, "fail",
        f"is older than {onhost.GRES}",
        "systemctl restart", change=f"service {probe.UNIT}: older than {onhost.GRES} -> started anew"),
    Row("no health check", CHECKED, None, {}, "n/a"),
    Row("a health check", CHECKED, WATCHED, {}, "pass", "every 300 s, in 310 ms"),
    Row("one that is not there", CHECKED, WATCHED, {"slurm": told(health="")}, "fail", "not there", "gpuprov apply"),
    Row("one that finds something", CHECKED, WATCHED, {"slurm": told(health="1|300|slurm: 7 of 8 GPUs")}, "fail",
        "7 of 8 GPUs"),
    Row("one that takes too long", CHECKED, WATCHED, {"slurm": told(health="0|2400|")}, "fail", "2400 ms",
        "persistence"),
    Row("one that slurm.conf does not name", CHECKED, WATCHED, {"slurm": told(settings=SETTINGS[:2])}, "fail",
        "HealthCheckProgram=none", f"HealthCheckProgram={probe.HEALTH}, HealthCheckInterval=300"),
    Row("one without an interval", CHECKED, WATCHED, {"slurm": told(settings=SETTINGS[:3])}, "fail",
        "HealthCheckInterval=0"),
    Row("the files of the node", FILES, None, {}, "pass", "ConstrainDevices=yes"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_slurm(row: Row) -> None:
    judge(row)


def ask(block: Slurm, text: str, model: str = "H100-SXM5-80GB") -> Outcome:
    host = HostSpec(name="gpu1", gpu=GpuSpec(model=model, count=1), capabilities={"slurm": block})
    return contexts.answer(GRES, host, {"slurm": text})


def test_the_model_is_the_type_where_the_spec_names_one() -> None:
    kind = "h100-sxm5-80gb"
    text = told(lines=(f"Name=gpu Type={kind} File=/dev/nvidia0",), found=(f"gpu|{kind}|1|/dev/nvidia0",))
    assert ask(Slurm(), text).found == f"gpu:{kind}:1"
    assert (
        "slurmd finds 1 GPU"
        in ask(Slurm(), text.replace(f"Name=gpu Type={kind} Count", "Name=gpu Type=a100 Count")).found
    )


def test_a_gres_conf_that_apply_writes_is_shown_whole() -> None:
    outcome = ask(Slurm(type="h100"), told(lines=()))
    (change,) = outcome.changes
    assert (change.name, change.before) == ("/etc/slurm/gres.conf", "")
    assert change.after == f"{HEADER}Name=gpu Type=h100 File=/dev/nvidia0\n"


def test_what_the_role_brings_about() -> None:
    block = Slurm(health_check=True)
    ctx = Context(
        HostSpec(name="gpu1", gpu=GpuSpec(model="H100-SXM5-80GB", count=8)), block, facts(slurm=told(), **AT_REST)
    )
    found: dict[str, Any] = dict(DESIRED.make(ctx))
    assert found["lines"] == [{"path": "/etc/slurm/cgroup.conf", "keys": {"ConstrainDevices": "yes"}, "made": True}]
    assert found["units"] == {UNIT_FILE: UNIT_TEXT}
    assert found["files"][probe.DROP_IN] == DROP_IN
    assert f"Wants={UNIT}\nAfter={UNIT}\n" in DROP_IN
    assert "RemainAfterExit" not in UNIT_TEXT, "it would run once a boot, and not before each start of slurmd"
    assert found["programs"] == {probe.HEALTH: HEALTH}
    settings = json.loads(found["files"]["/etc/gpuprov/slurm.json"])
    assert (settings["gres"], settings["count"], settings["type"]) == ("files", 8, "h100-sxm5-80gb")
    assert "79" in settings["xids"], "a GPU that has fallen off the bus, by NVIDIA's catalogue"
    assert "48" not in settings["xids"], "what a reset repairs NVML itself reports while it lasts"
    assert not {name for name in found if name in ("on", "off", "run")}, "whether slurmd runs is the site's"
    assert DESIRED.make(Context(ctx.host, Slurm(constrain_devices=False), ctx.facts))["lines"] == []


def test_gres_conf_is_not_written_before_the_boot_that_brings_the_driver() -> None:
    """The step would wait for GPUs, and end what comes after it; the unit before slurmd writes the file at that
    boot."""

    def steps(**changed: str) -> set[str]:
        texts = {"slurm": told(), "reboot_reasons": "", "container": "none\n", "loaded_driver": "", **changed}
        made: Any = DESIRED.make(Context(HostSpec(name="gpu1"), Slurm(), facts(**texts)))
        return {*made["tasks"]}

    assert steps() == {"slurm", "unit"}
    assert steps(reboot_reasons="nvidia_driver|nouveau is loaded\n") == {"unit"}
    assert steps(container="podman\n") == {"unit"}


def test_the_block_that_was_applied_is_exported() -> None:
    block = Slurm(gres="files", type="h100", shards=2)
    ctx = Context(HostSpec(name="gpu1"), block, facts(slurm=told()))
    export = BY_NAME["slurm"].export
    assert export(facts(slurm=told(wanted=json.dumps(make_request(ctx))))) == block
    assert export(facts(slurm=told())) is None
    assert export(facts(slurm=told(wanted='{"block": {"gres": "{{ x }}"}}'))) is None, (
        "what a host says is checked like a spec"
    )
    assert export(facts(slurm=told(wanted="[]"))) is None


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("[  9.1] NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus.", "Xid 79 of 0000:3b:00: "),
        ("[  9.1] NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 79, pid=7, it is gone", "Xid 79 of 0000:3b:00: "),
        ("[  9.1] NVRM: Xid (0000:3b:00): 79, as drivers before 343 write it", "Xid 79 of 0000:3b:00: "),
        ("NVRM: Xid (PCI:0000:3b:00): 79, of a kernel without time stamps", "Xid 79 of 0000:3b:00: "),
        ("[  9.1] NVRM: Xid (PCI:0000:3b:00): 13, Graphics Exception: the program's fault", ""),
        ("[  9.1] job[7]: NVRM: Xid (PCI:0000:3b:00): 79, which a program has written", ""),
    ],
)
def test_the_node_is_drained_for_every_form_of_an_xid(
    line: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia-uvm").touch()
    monkeypatch.setattr(onhost, "UVM", str(tmp_path / "nvidia-uvm"))
    settings: Any = {"count": 1, "xid": XID.pattern, "xids": {"79": "reboot the host"}}
    assert onhost.unfit(settings, {"gpus": [{}]}, f"{line}\n") == (found and f"{found}reboot the host")


ON: dict[str, Fragment] = {"mig": Mig(layout=())}


@run_each(
    ("block", "others", "said"),
    [
        (Slurm(shards=4, type="h100"), {}, ""),
        (Slurm(), ON, ""),
        (Slurm(gres="nvml", constrain_devices=False), ON, ""),
        (Slurm(shards=4), ON,
            "slurm.shards is 4, and mig cuts GPUs into MIG devices, which Slurm does not share; shards: 0"),
        (Slurm(gres="nvml", type="h100"), {},
            'slurm.type is "h100", and has no effect with gres: nvml, as AutoDetect=nvml names'),
        (Slurm(gres="site", type="h100"), {}, "as gres.conf is the site's; gres: files"),
        (Slurm(gres="site", shards=2), {}, "slurm.shards has no effect with gres: site"),
        (Slurm(constrain_devices=False), ON,
            "slurm.constrain_devices is false, and jobs are kept to their MIG device by its device files"),
        (Slurm(), {"fabric_manager": FabricManager(imex=Imex(nodes=("a", "b")))}, "SwitchType=switch/nvidia_imex"),
        (Slurm(), {"fabric_manager": FabricManager(imex=Imex(nodes=("a", "b"), channel0=False))}, ""),
    ],
)  # fmt: skip
def test_rules(block: Slurm, others: dict[str, Fragment], said: str) -> None:
    host = HostSpec(name="h", capabilities={"slurm": block, **others})
    found = [str(problem) for problem in slurm.rules(host, block)]
    assert len(found) == bool(said), found
    assert not said or said in found[0], found


@run_each(
    "values",
    [
        {"gres": "rsmi"},
        {"type": "h100 Count=9"},
        {"type": "h100\nName=gpu"},
        {"shards": -1},
        {"shards": 2000},
        {"enroot": True},
    ],
)
def test_what_no_spec_may_say(values: dict[str, object]) -> None:
    assert convert(values, Slurm)[1], "it would be a line of gres.conf"
