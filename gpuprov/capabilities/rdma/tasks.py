"""The tasks of the role, and what is handed to them."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl.desired import Conf
from gpuprov.capabilities.steps import Step, hand_steps, select_values
from gpuprov.capabilities.tasks import (
    Part,
    Stages,
    Task,
    files,
    judge,
    packages,
    report,
    step,
    taken,
    try_packages,
    unit,
)
from gpuprov.catalog.rdma.nccl import CONFIG
from gpuprov.host_code.json_members import Json

BUILD_FIX = (
    "correct what /var/lib/dkms/NAME/VERSION/build/make.log says (headers, or a newer DOCA-OFED for this kernel), and "
    "apply again"
)
OPENSM_FIX = "an InfiniBand port (ibstat -p), ib_umad loaded; journalctl -u 'opensm*' and /var/log/opensm*, on the host"
# Owner and mode of the files that this role copies.
OWN = {"owner": "root", "group": "root", "mode": "0644"}

TASKS: Stages = {
    "assert": (
        step("Fetch the files named in the spec", "fetch", each="path", prepares="once"),
        Part(
            title="Add DOCA-OFED's package source",
            file="ofed",
            tasks=(
                files("Pin apt to the distribution's dkms", part="ofed_pin"),
                step("Add the doca-host package source", "doca_host"),
                judge("Evaluate again, with the new package source", "sources"),
            ),
            key="ofed",
        ),
        try_packages(),
    ),
    "install": (
        packages("Install the RDMA packages", "install"),
        Part(
            title="Build DOCA-OFED's modules",
            file="ofed",
            tasks=(
                judge(
                    "Evaluate again, with the installed packages",
                    "now",
                    "Before the modules of others are built: nvidia-fs, and the driver's for peer memory.",
                ),
                step("Build OFED's modules for every kernel", "command", "ofed_build", {"fix": BUILD_FIX}, each="argv"),
            ),
            key="ofed",
        ),
        Part(
            title="Install Alibaba's driver for every kernel",
            file="erdma",
            tasks=(
                step("Run Alibaba's installer", "erdma", "erdma_run", {"state": "installed"}),
                judge("Evaluate again, with the driver as it is now", "now"),
                step("Build the driver for kernels without it", "erdma", "erdma_build", {"state": "built"}),
            ),
            key="erdma",
        ),
        step("Run AWS's installer", "efa", "efa_run"),
    ),
    "configure": (
        files(
            "Write the boot-time RDMA configuration",
            key="files",
            why="ExecStop of the unit of software devices removes them.",
        ),
        step("Rebuild outdated initramfs images", "boot", takes={"written": "files.paths"}),
        Part(
            title="Configure DOCA-OFED",
            file="ofed",
            tasks=(
                packages(
                    "Hold or release the DOCA-OFED packages",
                    "hold",
                    part="ofed",
                    why="Only here: what came along with the packages that were asked for has been seen now.",
                ),
                files("Configure openibd, and request a reboot if it cannot be restarted", part="ofed_conf"),
            ),
            key="ofed",
        ),
    ),
    "service": (
        Part(
            title="Bring up DOCA-OFED",
            file="openibd",
            tasks=(
                unit("Enable openibd", "openibd"),
                Part(
                    title="Load OFED's modules",
                    file="openibd_modules",
                    tasks=(
                        judge("Evaluate again, with the users of RDMA devices", "now"),
                        step("Start or restart openibd", "openibd", "openibd_start"),
                        judge("Evaluate again, with the loaded modules", "now"),
                        step("Check that OFED's modules are loaded", "openibd", "openibd_left"),
                    ),
                    key="openibd_modules",
                ),
            ),
            key="openibd",
        ),
        step("Load the EFA driver", "efa", "efa_load", {"state": "loaded"}),
        unit("Start opensm, now and at boot", "opensm"),
        unit("Set up the RDMA devices, now and at boot"),
        judge("Evaluate again, with the devices as they are now", "now"),
        files("Raise the limits of services", part="limits"),
        step("Raise the limits of running services", "command", "raise", each="argv"),
        Part(
            title="Write NCCL's configuration",
            file="nccl",
            tasks=(
                Task(
                    title="Copy the site's topology file",
                    module="ansible.builtin.copy",
                    options={**taken("src", "dest"), **OWN},
                    key="topology",
                ),
                report("Report why nothing is written", "nccl_problem", prepares="always"),
                Task(
                    title="Write /etc/nccl.conf",
                    module="ansible.builtin.copy",
                    options={**taken("content", "dest"), **OWN, **taken("backup")},
                    key="nccl_conf",
                ),
            ),
            key="nccl",
        ),
    ),
}


def handed(ctx: Context[Rdma], decided: Mapping[str, Any]) -> dict[str, Json]:
    """Return the arguments of the tasks that are needed. decided: the decisions of all parts of the capability."""
    return hand_steps(list_steps(ctx, decided), TASKS)


def list_steps(ctx: Context[Rdma], decided: Mapping[str, Any]) -> Iterator[Step]:
    """Yield the steps of all parts."""
    yield Step("fetch", decided["fetch"])
    yield Step("boot", {}, decided["initramfs"])
    yield Step("efa_run", decided["efa"], decided["efa"] is not None)
    yield Step("efa_load", {}, decided["efa_loads"])
    erdma = decided["erdma"]
    yield Step("erdma", {}, erdma["due"])
    yield Step(
        "erdma_run", select_values(erdma, "archive", "sha256", "named", "mode", "kernels", "environment"), erdma["run"]
    )
    yield Step("erdma_build", {"kernels": erdma["build"], "environment": erdma["environment"]})
    yield from _list_ofed_steps(decided["ofed"])
    opensm = {"state": "ran", "enabled": True, "answer": "opensm", "fix": OPENSM_FIX}
    own = decided["opensm"]
    yield Step("opensm", {"name": own["unit"], **opensm, "differs": own["differs"], "ask": own["ask"]}, own["here"])
    if part := decided["unit"]:
        given = {"name": part.unit, "state": decided["now"], "enabled": True, "differs": part.differs}
        yield Step("unit", {**given, "program": part.speaks, "fix": part.fix})
    yield Step("raise", [{"argv": argv} for argv in decided["limits"]["commands"]])
    yield from _list_nccl_steps(ctx, decided["nccl"])


def _list_ofed_steps(ofed: Mapping[str, Any]) -> Iterator[Step]:
    yield Step("ofed", {}, ofed["asked"])
    yield Step("doca_host", {"package": ofed["source"], "named": ofed["named"]}, ofed["asked"])
    yield Step("ofed_build", [{"argv": argv} for argv in ofed["build"]])
    if service := ofed["openibd"]:
        yield Step("openibd", {"name": service["unit"], "state": "observed", "enabled": True})
        yield Step("openibd_modules", {}, service["start"] or service["replace"])
        yield Step("openibd_start", select_values(service, "unit", "replace", "unload", "start"))
        yield Step("openibd_left", select_values(service, "unit", "left"))


def _list_nccl_steps(ctx: Context[Rdma], conf: Conf) -> Iterator[Step]:
    block = ctx.fragment.nccl
    yield Step("nccl", {}, conf["manage"])
    yield Step("topology", {"src": block.topo_source, "dest": block.topo_file}, block.topo_source)
    yield Step("nccl_problem", {"msg": conf["problem"]}, conf["problem"])
    yield Step("nccl_conf", {"content": conf["text"], "dest": CONFIG, "backup": conf["keep"]}, conf["text"])
