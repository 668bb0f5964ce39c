"""`vgpu_guest`: the licence of a virtual machine with NVIDIA's vGPU guest driver."""

import time
from collections.abc import Iterable

from gpuprov.capabilities.base import DRIVER_PACKAGES, LOADED, Capability
from gpuprov.capabilities.vgpu_guest import now, preflight, token
from gpuprov.capabilities.vgpu_guest.desired import DESIRED, RESOURCES
from gpuprov.capabilities.vgpu_guest.fragment import SETTING_FIELDS, TOKEN_FIELDS, VgpuGuest, needs_vgpu
from gpuprov.capabilities.vgpu_guest.tasks import TASKS
from gpuprov.catalog import gpus
from gpuprov.catalog import vgpu as catalogue
from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.gpus.vgpu import GRIDD
from gpuprov.host_code.json_members import Json
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.spec.problem import Problem, report_under

HERE = "vgpu_guest"
_problem = report_under(HERE)


def rules(host: HostSpec, block: VgpuGuest) -> Iterable[Problem]:
    yield from fields_that_mean_nothing(block)
    yield from token_rules(block)
    yield from driver_rules(host)
    if bool(block.proxy_address) != bool(block.proxy_port):
        message = "vgpu_guest: proxy_address and proxy_port go together, and one of them is not set"
        yield Problem(
            path=(HERE, "proxy_address" if block.proxy_address else "proxy_port"), message=message, fix="set both"
        )
    if not needs_vgpu(block):
        return
    gpu = gpus.find_gpu(host.gpu.model) if host.gpu else None
    if gpu and catalogue.has_no_vgpu(gpu.key):
        message = f": {gpu.key} has no vGPU on any hypervisor"
        yield _problem("", message, "switch it off for these hosts: vgpu_guest: false")
    for name, why in (
        ("mig", "MIG of a vGPU's GPU is set on the hypervisor, which gives the guest a MIG-backed vGPU"),
        ("fabric_manager", "Fabric Manager runs on the hypervisor that shares the GPUs"),
    ):
        if name in host.capabilities:
            fix = f"{name}: false for hosts with vGPUs, or feature_type: vcs for GPUs that are passed through"
            yield _problem("", f"contradicts {name}: {why}", fix)


def fields_that_mean_nothing(block: VgpuGuest) -> Iterable[Problem]:
    meant = {setting.field for setting in catalogue.list_settings(block.licensing)} | {"licensing"}
    meant |= set(TOKEN_FIELDS) if block.licensing == "token" else set()
    default = VgpuGuest()
    for field in dict.fromkeys((*SETTING_FIELDS, *TOKEN_FIELDS)):
        if field not in meant and getattr(block, field) != getattr(default, field):
            message = f"means nothing with licensing {block.licensing}"
            yield _problem((field,), message, f"take {field} out, or change licensing")
    if block.licensing == "server" and not block.server_address:
        message = "is server, and server_address is not set"
        yield _problem("licensing", message, "server_address: NAME, or licensing: token")


def token_rules(block: VgpuGuest) -> Iterable[Problem]:
    """Yield problems of the token; a token that is not on this machine is only a warning: a spec is also checked
    without its secrets."""
    if not block.token_file or block.licensing != "token":
        return
    client_token = token.read(block.token_file)
    expired = 0 < client_token.expires <= time.time()
    problem = client_token.problem or (
        f"{block.token_file} expired {token.day(client_token.expires)}" if expired else ""
    )
    if problem:
        message = f"vgpu_guest.token_file: {problem}"
        fix = "make a client configuration token in NVIDIA's licensing portal"
        yield Problem(
            path=(HERE, "token_file"),
            message=message,
            fix=fix,
            severity="warning" if client_token.missing else "error",
        )


def driver_rules(host: HostSpec) -> Iterable[Problem]:
    """Yield a problem of nvidia_driver, which would replace the guest driver (one package from the portal, or its .run)
    by the data-centre driver."""
    if "nvidia_driver" in host.capabilities:
        yield _problem("", "needs NVIDIA's vGPU guest driver, which nvidia_driver does not install", catalogue.FIX)


def export(facts: Facts) -> Fragment | None:
    """Return the settings of gridd.conf and the tokens; a token stays where it is."""
    gridd = facts.get(GRIDD)
    if not gridd.installed or not gridd.configured:
        return None
    settings = gridd.settings
    licensing = "server" if settings.get("ServerAddress") else "token" if gridd.tokens else "provider"
    values: dict[str, Json] = {"licensing": licensing}
    for setting in catalogue.list_settings(licensing):
        text = settings.get(setting.key, "")
        if not text or text.casefold() == setting.default.casefold():
            continue
        back = {written.casefold(): name for name, written in setting.values.items()}
        kind = type(getattr(VgpuGuest(), setting.field))
        if (setting.values and text.casefold() not in back) or (kind is int and not is_whole(text)):
            continue
        value = back.get(text.casefold(), text)
        values[setting.field] = value == "True" if kind is bool else int(value) if kind is int else value
    if licensing == "token" and all(token.mode == "0600" for token in gridd.tokens):
        values["token_mode"] = "0600"
    return VgpuGuest(**values)  # type: ignore[arg-type]


CAPABILITY = Capability(
    name=HERE,
    summary="the licence of a guest with NVIDIA's vGPU driver: gridd.conf, token, nvidia-gridd alive, licensed",
    fragment=VgpuGuest,
    checks=now.CHECKS + preflight.CHECKS,
    rules=rules,
    export=export,
    export_probes=(GRIDD,),
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    shown_by="tests/capabilities/test_vgpu_guest.py",
    presupposes={
        "active": DRIVER_PACKAGES,
        "licensed": ("vgpu_guest.active", "vgpu_guest.token_installed", "vgpu_guest.files", *LOADED),
    },
    from_site=True,
)
