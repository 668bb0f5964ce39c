"""Desired state of the role: gridd.conf, the one token, nvidia-gridd with both."""

from collections.abc import Iterator

from gpuprov.capabilities.base import Context, Desired, Resources
from gpuprov.capabilities.steps import Step, hand_steps
from gpuprov.capabilities.vgpu_guest.fragment import SETTING_FIELDS, VgpuGuest, differences, wanted_settings
from gpuprov.capabilities.vgpu_guest.now import find_complaint
from gpuprov.capabilities.vgpu_guest.tasks import TASKS
from gpuprov.catalog import vgpu as catalogue
from gpuprov.facts.probes.gpus.vgpu import GRIDD
from gpuprov.host_code.json_members import Json
from gpuprov.resources import File, Resource, Unit, role_values
from gpuprov.spec.model import HostSpec

Ctx = Context[VgpuGuest]
# As earlier versions wrote it: another text would have every running daemon restarted.
HEADER = "#\n# Ansible managed\n#\n"
# https://github.com/Azure/aks-gpu/pull/90: some installers of the driver bring the program without a unit
NO_UNIT = "install the guest driver's packages; its .run brings a unit only where systemd is found while it installs"

# A licence takes some seconds; verify says whether it came.
DAEMON = {
    "enabled": True,
    "ask": ["nvidia-smi", "-q"],
    "answer": "License Status +. Licensed",
    "unanswered": "the host has no licence yet",
    "fix": f"journalctl -u {catalogue.UNIT}, on the host",
}


def gridd_conf(block: VgpuGuest) -> str:
    """Return the text of gridd.conf."""
    return HEADER + "".join(f"{key}={value}\n" for key, value in wanted_settings(block).items())


def reads(_host: HostSpec, block: VgpuGuest) -> dict[str, tuple[str, ...]]:
    """Return what the daemon has read at its start, by unit."""
    folder = block.token_directory if block.licensing == "token" else ""
    return {catalogue.UNIT: (catalogue.CONFIG, *([folder] if folder else []))}


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield gridd.conf, and the daemon with it and with the token."""
    gridd = ctx.facts.get(GRIDD)
    yield File(catalogue.CONFIG, gridd_conf(ctx.fragment), differs="; ".join(differences(ctx.fragment, gridd.settings)))
    yield Unit(
        name=catalogue.UNIT,
        enabled=True,
        active=True,
        reads=reads(ctx.host, ctx.fragment)[catalogue.UNIT],
        process="nvidia-gridd",
        message=find_complaint(gridd),
        missing=NO_UNIT,
    )


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the values of the role. A token is copied to its folder, unless it is on the host already, and then gets
    its mode. `absent`: other tokens, which the daemon might take."""
    block, values = ctx.fragment, role_values(desired(ctx), "files", "on", "run")
    by_token = block.licensing == "token"
    folder = block.token_directory if by_token else ""
    token_paths = [
        token.path for token in ctx.facts.get(GRIDD).tokens if by_token and token.path.startswith(f"{folder}/")
    ]
    dest = f"{folder}/{block.token_file.rpartition('/')[2]}" if by_token and block.token_file else ""
    steps = [
        Step("own", [] if dest else [{"path": path, "mode": block.token_mode} for path in token_paths]),
        Step("unit", {**values["run"][0], **DAEMON}),
        Step("folder", {"path": folder}, folder),
        Step("token", {"src": block.token_file, "dest": dest, "mode": block.token_mode}, dest),
    ]
    return {
        "files": values["files"],
        "absent": [path for path in token_paths if dest and path != dest],
        "tasks": hand_steps(steps, TASKS),
    }


RESOURCES: Resources[VgpuGuest] = Resources(
    desired,
    lambda _host, _block: (catalogue.CONFIG,),
    (GRIDD,),
    reads=reads,
    units=lambda _host, _block: (catalogue.UNIT,),
    proves={"files": ("licensing", *SETTING_FIELDS)},
)
DESIRED: Desired[VgpuGuest] = Desired((GRIDD,), make)
