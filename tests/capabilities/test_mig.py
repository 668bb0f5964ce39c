"""mig: mode, instances, boot unit, CDI devices, device files; and whether apply may begin."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities.base import Outcome
from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from gpuprov.capabilities.mig.fragment import Mig
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus.mig import UNIT
from gpuprov.host_code.mig_program import WANTED
from gpuprov.spec.build import convert
from tests.capabilities import contexts
from tests.capabilities import mig_host as mh
from tests.capabilities.asking import NO_GPU, PODMAN, Row, ask, judge
from tests.capabilities.contents_host import Also, unit
from tests.rows import run_each

MODE, INSTANCES, CDI, CAPABILITIES = "mig.mode", "mig.instances", "mig.cdi", "mig.capabilities"
FILES, ENABLED, ACTIVE = "mig.files", "mig.enabled", "mig.active"
MANAGER, FITS, CLIENTS, RESETTABLE = "mig.manager", "mig.fits", "mig.clients", "mig.resettable"
WHOLE: mh.Cut = ("3g.40gb", 0, (3,))
OTHER: mh.Cut = ("3g.40gb", 4, (3,))
SMALL: mh.Cut = ("1g.10gb", 6, (1,))


def block(**values: Any) -> Mig:
    made, findings = convert(values, Mig, ("mig",))
    assert isinstance(made, Mig), findings
    return made


def cut(instances: Any, gpus: Any = "all", **more: Any) -> Mig:
    return block(layout=[{"gpus": gpus, "instances": instances, **more}])


TWO, OFF, THREE = cut({"3g.40gb": 2}), block(mode="disabled"), cut({"1c.3g.40gb": 3})
GOOD = {"mig": mh.state(mh.gpu(WHOLE, OTHER))}
PLAIN = {"mig": mh.state(mh.gpu(model=mh.T4, capable=False))}
HELD = "701| /dev/nvidia0 /dev/nvidiactl /dev/nvidia-uvm|python3|session-1.scope\n"
DAEMON = "702| /dev/nvidia0 /dev/nvidiactl|nv-hostengine|nvidia-dcgm.service\n"
VM = {"machine": "kind|kvm\nvendor|QEMU\nflag|1\n", "gpu_functions": "gpu|0000:19:00.0|physical|||\n"}
BARE = {"machine": "kind|none\n", "gpu_functions": "gpu|0000:19:00.0|physical|||flr\n"}
BESIDE = BARE | {
    "mig": mh.state(
        mh.gpu(), mh.gpu(index=1, model="RTX-PRO-6000-WS", capable=False), mh.gpu(index=2, model=mh.T4, capable=False)
    )
}
AMPERE = cut({"3g.20gb": 2})


def a100(**more: Any) -> dict[str, str]:
    return {"mig": mh.state(mh.gpu(model=mh.A100, **more))}


ROWS = [
    Row("mode as asked", MODE, TWO, GOOD | BARE, "pass", "enabled on 1, disabled on 0 GPUs"),
    Row("beside a card that could have MIG", MODE, cut({}), BESIDE, "pass",
        "disabled on 0 GPUs; left out: GPU 1 (0000:29:00.0) NVIDIA RTX PRO 6000 Blackwell Workstation Edition has "
        "no MIG (VBIOS"),
    Row("mode off", MODE, TWO, {"mig": mh.state(mh.gpu(on=False))} | BARE, "fail", "GPU 0 (0000:19:00.0): disabled",
        "gpuprov apply", change="setting GPU 0 (0000:19:00.0): MIG mode: disabled -> enabled"),
    Row("mode on, asked off", MODE, OFF, GOOD | BARE, "fail", "GPU 0 (0000:19:00.0): enabled"),
    Row("pending, held", MODE, AMPERE, a100(on=False, pending=True) | BARE | {"mig_holders": HELD}, "fail",
        "disabled, enabled is pending", "python3 (pid 701, session-1.scope)"),
    Row("pending off", MODE, TWO, {"mig": mh.state(mh.gpu(WHOLE, OTHER, pending=False))} | BARE, "fail",
        "enabled, disabled is pending"),
    Row("pending in a VM", MODE, AMPERE, a100(on=False, pending=True) | VM, "fail", "enabled is pending",
        "reboot the VM", "lets the VM reset no GPU"),
    Row("pending in a container on a VM", MODE, AMPERE, a100(on=False, pending=True) | VM | PODMAN, "fail",
        "enabled is pending",
        "gpuprov apply stops services"),
    Row("one of two", MODE, cut({"3g.40gb": 2}, [1]), {"mig": mh.state(mh.gpu(on=False),
                                                                       mh.gpu(WHOLE, OTHER, index=1))} | BARE,
        "pass", "enabled on 1"),
    Row("a GPU that is not there", MODE, cut({}, [4]), GOOD | BARE, "fail", "4"),
    Row("a lost GPU", MODE, TWO, {"mig": mh.state(unread=["GPU 1: GPU is lost"])} | BARE, "fail", "GPU 1: GPU is lost"),
    Row("no driver", MODE, TWO, {"mig": mh.state(complaint="Driver Not Loaded")} | BARE, "fail", "Driver Not Loaded",
        "nvidia_driver.loaded"),
    Row("no driver in a container", MODE, TWO, {"mig": mh.state(complaint="Driver Not Loaded")} | BARE | PODMAN, "skip",
        "Driver Not Loaded"),
    Row("no GPU", MODE, TWO, NO_GPU | BARE, "skip", "no NVIDIA GPU"),
    Row("a GPU without MIG", MODE, TWO, PLAIN | BARE, "fail", "Tesla T4"),

    Row("MIG off where no GPU has it", MODE, OFF, PLAIN | BARE, "n/a", "the spec has none"),
    Row("MIG off where no GPU has it, before", FITS, OFF, PLAIN, "n/a", "the spec has none"),

    Row("instances as asked", INSTANCES, TWO, GOOD, "pass", "3g.40gb at 0, 3g.40gb at 4"),
    Row("as asked, in another order", INSTANCES, cut({"1g.10gb": 1, "3g.40gb": 1}),
        {"mig": mh.state(mh.gpu(WHOLE, SMALL))}, "pass"),
    Row("many GPUs alike", INSTANCES, TWO, {"mig": mh.state(*(mh.gpu(WHOLE, OTHER, index=n) for n in range(3)))},
        "pass",
        "GPUs 0, 1, 2: 3g.40gb at 0, 3g.40gb at 4"),
    Row("one is missing", INSTANCES, TWO, {"mig": mh.state(mh.gpu(WHOLE))}, "fail", "3g.40gb at 0", "gpuprov apply",
        change="setting GPU 0 (0000:19:00.0): 3g.40gb at 4:  -> created"),
    Row("one too many", INSTANCES, cut({"3g.40gb": 1}), {"mig": mh.state(mh.gpu(WHOLE, SMALL))}, "fail", "1g.10gb at 6",
        change="setting GPU 0 (0000:19:00.0): 1g.10gb at 6: there -> destroyed"),
    Row("at another place", INSTANCES, cut([{"profile": "3g.40gb", "placement": 4}]), {"mig": mh.state(mh.gpu(WHOLE))},
        "fail",
        "3g.40gb at 0", change="setting GPU 0 (0000:19:00.0): 3g.40gb at 4:  -> created"),
    Row("at its place", INSTANCES, cut([{"profile": "3g.40gb", "placement": 4}]), {"mig": mh.state(mh.gpu(OTHER))},
        "pass"),
    Row("cut up inside", INSTANCES, THREE, {"mig": mh.state(mh.gpu(("3g.40gb", 0, (1, 1, 1))))}, "pass", "1c, 1c, 1c"),
    Row("not cut up inside", INSTANCES, THREE, {"mig": mh.state(mh.gpu(WHOLE))}, "fail", "3g.40gb at 0",
        change="setting GPU 0 (0000:19:00.0): compute instances of 3g.40gb at 0: 3c -> 1c, 1c, 1c"),
    Row("without compute instance", INSTANCES, cut({"3g.40gb": 1}), {"mig": mh.state(mh.gpu(("3g.40gb", 0, ())))},
        "fail",
        "no compute instance", change="setting GPU 0 (0000:19:00.0): compute instances of 3g.40gb at 0: none -> 3c"),
    Row("MIG off: all are to come", INSTANCES, TWO, {"mig": mh.state(mh.gpu(on=False))}, "fail", "no instance",
        change="setting GPU 0 (0000:19:00.0): 3g.40gb at 0:  -> created"),
    Row("MIG asked off", INSTANCES, OFF, {"mig": mh.state(mh.gpu(on=False))}, "pass", "no instance"),
    Row("MIG without instances", INSTANCES, block(), {"mig": mh.state(mh.gpu())}, "pass", "no instance"),
    Row("cannot fit here", INSTANCES, cut({"3g.40gb": 1, "4g.40gb": 1, "1g.10gb": 1}), GOOD, "fail", "memory slices",
        "gpuprov mig fit"),
    Row("another model's profile", INSTANCES, cut({"1g.5gb": 1}), GOOD, "fail", "1g.5gb"),

    Row("no container_toolkit", CDI, TWO, GOOD, "n/a", "the spec has no container_toolkit"),
    Row("device files", CAPABILITIES, TWO, GOOD | {"mig_capabilities": mh.capabilities(
        "gpu0/mig/gi1/access", "gpu0/mig/gi1/ci0/access", "gpu0/mig/gi2/access", "gpu0/mig/gi2/ci0/access")},
        "pass", "4 device files"),
    Row("no device file", CAPABILITIES, TWO, {"mig": mh.state(mh.gpu(WHOLE))} | {"mig_capabilities": mh.capabilities(
        "gpu0/mig/gi1/access", "gpu0/mig/gi1/ci0/access", mode="")}, "fail", "/dev/nvidia-caps/nvidia-cap12",
        "gpuprov apply",
        change="file /dev/nvidia-caps/nvidia-cap13:  -> made"),
    Row("device file for root only", CAPABILITIES, TWO,
        {"mig": mh.state(mh.gpu(WHOLE))} | {"mig_capabilities": mh.capabilities(
        "gpu0/mig/gi1/access", "gpu0/mig/gi1/ci0/access", mode="400")}, "fail", "0400 root:root", "chmod o+r"),
    Row("as the administrator made it", CAPABILITIES, TWO,
        {"mig": mh.state(mh.gpu(WHOLE))} | {"mig_capabilities": mh.capabilities(
        "gpu0/mig/gi1/access", "gpu0/mig/gi1/ci0/access", mode="440", modify=0, owner="root:gpu")}, "pass"),
    Row("the driver tells of none", CAPABILITIES, TWO, GOOD, "fail", "gpu0/mig/gi1/access"),
    Row("in a container", CAPABILITIES, TWO, GOOD | PODMAN, "skip", "its machine's"),
    Row("no instance to open", CAPABILITIES, OFF, {"mig": mh.state(mh.gpu(on=False))}, "n/a", "no instance"),

    Row("kept", ENABLED, TWO, {}, "pass", "gpuprov-mig.service enabled"),
    Row("no unit", ENABLED, TWO, {"contents": unit(UNIT, "inactive", "")}, "fail", "not-found", "gpuprov apply",
        change="service gpuprov-mig.service: not-found -> enabled"),
    Row("unit off", ENABLED, TWO, {"contents": unit(UNIT, "active", "disabled")}, "fail",
        "gpuprov-mig.service is disabled"),
    Row("its last run failed", ACTIVE, OFF, {"contents": unit(UNIT, "failed", "enabled", "gpuprov-mig: in use")},
        "fail",
        'gpuprov-mig.service is failed ("gpuprov-mig: in use")', "journalctl -u gpuprov-mig.service"),
    Row("it did not run", ACTIVE, OFF, {"contents": unit(UNIT, "inactive", "enabled")}, "fail", "is inactive",
        "journalctl -u"),
    Row("nothing to cut up", ACTIVE, TWO, NO_GPU | {"contents": unit(UNIT, "failed", "enabled")}, "skip",
        "no NVIDIA GPU"),
    Row("no driver", ACTIVE, TWO, {"mig": mh.state(complaint="no"), "contents": unit(UNIT, "failed", "enabled")},
        "fail", "is failed"),
    Row("another spec's layout", FILES, TWO, {"contents": Also(f"sum|0  {WANTED}\n")}, "fail",
        "/etc/gpuprov/mig.json: another text",
        change="file /etc/gpuprov/mig.json: another text -> written"),
    Row("a second manager", MANAGER, TWO, {"mig_units": mh.units(manager="enabled-runtime")}, "fail",
        "nvidia-mig-manager.service is enabled-runtime", "systemctl disable --now"),
    Row("a manager that is off", MANAGER, TWO, {"mig_units": mh.units(manager="disabled")}, "pass", "disabled"),
    Row("no manager", MANAGER, TWO, {}, "pass", "not-found"),

    Row("it fits", FITS, TWO, GOOD, "pass", "fits on 1 of 1 GPU"),
    Row("it does not fit", FITS, cut({"1g.10gb+me": 2}), GOOD, "fail", "1g.10gb+me"),
    Row("a GPU without MIG is named", FITS, TWO, PLAIN, "fail", "Tesla T4 has no MIG",
        "mig: false"),
    Row("a workstation card not in compute mode", FITS, TWO, {"mig": mh.state(mh.gpu(model="RTX-PRO-6000-WS",
                                                                                     capable=False))}, "fail",
        "VBIOS 98.02.55.00.00"),
    Row("no GPU to cut up", FITS, TWO, NO_GPU, "fail", "no NVIDIA GPU"),
    Row("no driver yet, and none asked for", FITS, TWO, {"mig": mh.state(complaint="no library")}, "fail",
        "no library"),
    Row("an index of a GPU without MIG", FITS, cut({}, [0]), {"mig": mh.state(mh.gpu(model=mh.T4, capable=False),
                                                                              mh.gpu(index=1))},
        "fail", "has no MIG"),
    Row("nobody in the way", CLIENTS, TWO, GOOD, "pass", "nothing"),
    Row("someone on another instance", CLIENTS, cut({"3g.40gb": 1}), {"mig": mh.state(mh.gpu(WHOLE, SMALL, processes=[
        {"pid": 701, "instance": 1, "part": 0}]))}, "pass", "nothing"),
    Row("someone on an instance that goes", CLIENTS, cut({"3g.40gb": 1}), {"mig_holders": HELD, "mig": mh.state(mh.gpu(
        WHOLE, SMALL, processes=[{"pid": 701, "instance": 2, "part": 0}]))}, "fail",
        "python3 (pid 701, session-1.scope)", "--drain",
        change="client python3 (pid 701, session-1.scope):  -> stopped"),
    Row("someone with its device file open", CLIENTS, cut({"3g.40gb": 1}), {
        "mig": mh.state(mh.gpu(WHOLE, SMALL)), "mig_capabilities": mh.capabilities("gpu0/mig/gi2/access"),
        "mig_holders": "701| /dev/nvidia-caps/nvidia-cap12|python3|\n"}, "fail", "python3 (pid 701)"),
    Row("a mode change ends what computes", CLIENTS, TWO, {"mig": mh.state(mh.gpu(on=False)), "mig_holders": HELD},
        "fail", "python3"),
    Row("from Hopper on no reset", CLIENTS, TWO, {"mig": mh.state(mh.gpu(on=False)), "mig_holders": DAEMON}, "pass",
        "nothing"),
    Row("a service is stopped for a reset", CLIENTS, AMPERE, a100(on=False) | {"mig_holders": DAEMON}, "pass",
        "stopped for it: 1 service",
        change="client nv-hostengine (pid 702, nvidia-dcgm.service):  -> stopped"),
    Row("a reset stops what holds any GPU", CLIENTS, cut({"3g.20gb": 2}, [0]),
        {"mig_holders": HELD.replace("nvidia0", "nvidia1"),
        "mig": mh.state(mh.gpu(model=mh.A100, on=False), mh.gpu(model=mh.A100, on=False, index=1))}, "fail", "python3"),
    Row("clients where nobody can say", CLIENTS, TWO, {"mig": mh.state(complaint="Driver Not Loaded")}, "skip",
        "mig.fits"),
    Row("a reset is allowed", RESETTABLE, AMPERE, a100(on=False) | BARE, "pass", "reset when the MIG mode changes"),
    Row("no reset in this VM", RESETTABLE, AMPERE, a100(on=False) | VM, "fail", "lets the VM reset no GPU",
        "nvidia-smi -i 0000:19:00.0 -mig 1; reboot the VM"),
    Row("pending in this VM", RESETTABLE, AMPERE, a100(on=False, pending=True) | VM, "fail", "reset no GPU",
        "reboot the VM"),
    Row("no reset is needed", RESETTABLE, TWO, {"mig": mh.state(mh.gpu(on=False))} | VM, "pass", "no GPU is reset"),
]  # fmt: skip


@run_each("row", ROWS, ids=lambda row: f"{row.check}: {row.name}")
def test_a_check(row: Row) -> None:
    judge(row)


def with_toolkit(check: str, **changed: Output | str) -> Outcome:
    host = contexts.spec(container_toolkit=ContainerToolkit(), nvidia_driver=NvidiaDriver(), mig=TWO)
    return contexts.answer(check, host, changed)


def test_every_mig_device_is_in_the_specification() -> None:
    spec = "@spec /var/run/cdi/nvidia.yaml\nkind: nvidia.com/gpu\ndevices:\n  - name: 0:0\n  - name: MIG-2-0\n"
    assert with_toolkit(CDI, cdi_specifications=spec, **GOOD).status == "pass"
    short = with_toolkit(CDI, cdi_specifications=spec.replace("  - name: MIG-2-0\n", ""), **GOOD)
    assert (short.status, short.found) == ("fail", "not in it: 0:1")
    assert with_toolkit(CDI, mig=mh.state(complaint="x")).status == "fail"


@run_each("check", [FITS, CLIENTS, RESETTABLE])
def test_a_driver_that_comes_with_the_same_apply_is_waited_for(check: str) -> None:
    answer = with_toolkit(check, mig=mh.state(complaint="no library"), loaded_driver="")
    assert (answer.status, "the driver is installed by the same apply" in answer.found) == ("skip", True)
    assert with_toolkit(FITS, mig=mh.state(complaint="Unknown Error")).status == "fail"


def test_a_card_that_could_have_mig_and_that_the_spec_does_not_mean_is_not_told() -> None:
    assert ask(MODE, cut({}, [0]), **BESIDE).found == "enabled on 1, disabled on 0 GPUs"
