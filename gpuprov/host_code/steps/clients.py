"""Check which processes hold GPUs, stop services that do, and start them again.

Never ends a user's process. While one holds a GPU, no service is stopped.
Services that are stopped are recorded under /run/gpuprov/stopped until they have been started again, by this or a
later run. So are the units that systemd stops along with them (`Requires=`, `BindsTo=`, `PartOf=`).
On a host with a pending reboot, services that do not start are left to the reboot.
Check mode reports what would be stopped or started.

state: `listed` only lists the processes that hold GPUs. `free` fails if a user's process holds one. `stopped` does
    the same, then stops the services. `started` starts what was stopped.
services: Units that may be stopped, in this order; patterns match the units that systemd has loaded.
guests: True to count a process that holds a GPU for a virtual machine, as before a reboot.
drained: True if a drain command ends users' processes. Check mode does not run it, and so does not fail.
leave: Patterns of units that are forgotten rather than started, as their own role starts them (`started`).
tolerant: True if a service that does not start is not an error.

Returns:
clients: Users' processes that hold a GPU, each with its PID, user and unit. (state is not started)
stopped: The services that were stopped, followed by the units that systemd stops with them. (state is stopped)
started: The services that were started. (state is started)
not_started: The services that did not start. (state is started)
"""

from __future__ import annotations

from .. import clients
from ..module import AnsibleModule

OPTIONS = {
    "state": {"type": "str", "choices": ["listed", "free", "stopped", "started"], "required": True},
    "services": {"type": "list", "elements": "str", "required": True},
    "guests": {"type": "bool", "default": False},
    "drained": {"type": "bool", "default": False},
    "leave": {"type": "list", "elements": "str", "default": []},
    "tolerant": {"type": "bool", "default": False},
}


def run(module: AnsibleModule) -> None:
    if module.params["state"] == "started":
        start_services(module)
    services, state = module.params["services"], module.params["state"]
    try:
        held = clients.list_holders(services, guests=module.params["guests"])
    except OSError as error:
        module.fail_json(msg=f"the processes that hold a GPU cannot be listed: {error}. Fix: mount /proc on the host")
    if held and state != "listed" and not (module.check_mode and module.params["drained"]):
        ran = "The drain command ran and did not end them. " if module.params["drained"] else ""
        module.fail_json(
            msg=f"{len(held)} process(es) hold a GPU: {', '.join(held[:10])}. {ran}Fix: end or drain them, or give "
            "apply a drain command (--drain COMMAND); nothing was stopped",
            clients=held,
        )
    if state != "stopped":
        module.exit_json(changed=False, clients=held)
    units = clients.list_active(services)
    more = clients.list_dependents(units)
    problem = "" if module.check_mode else clients.stop(units, more)
    if problem:
        module.fail_json(
            msg=f"{problem}. Fix: systemctl status says why, on the host; fix it, and apply again", clients=held
        )
    stopped = [*units, *more]
    module.exit_json(changed=bool(units), clients=held, stopped=stopped, diff=build_diff("running", stopped))


def start_services(module: AnsibleModule) -> None:
    if not module.check_mode:
        clients.forget(module.params["leave"])
    units = clients.list_stopped(module.params["services"])
    started, failed = (units, {}) if module.check_mode else clients.start_services(units)
    if failed and not module.params["tolerant"]:
        names, does = " ".join(failed), "does" if len(failed) == 1 else "do"
        module.fail_json(
            msg=f"{', '.join(failed)}, stopped for the change of the driver, {does} not start again: "
            f"{'; '.join(failed.values())}. "
            f"Fix: systemctl status {names}, on the host; correct what it reports, and apply again",
            started=started,
            not_started=list(failed),
        )
    module.exit_json(
        changed=bool(started), started=started, not_started=list(failed), diff=build_diff("stopped", started)
    )


def build_diff(before: str, units: list[str]) -> dict[str, str]:
    after = "stopped" if before == "running" else "running"
    return {
        "before": "".join(f"{unit} {before}\n" for unit in units),
        "after": "".join(f"{unit} {after}\n" for unit in units),
    }
