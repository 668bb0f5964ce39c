"""Unload the driver, load it, or restore the modules that were unloaded with it.

`out` records what it unloads under /run/gpuprov until `loaded` or `back` has run, in this or a later run.
On a host with a pending reboot nothing is loaded. Modules in use are not unloaded.

state: `out` unloads the driver and the modules that depend on it. `loaded` loads the driver if it is not loaded, and
    the modules that were unloaded with the old one, through the services that had loaded them if there are any.
    `back` loads the unloaded modules again, as far as they load.
wanted: True if the driver should be loaded at all: false in a container and without a GPU (`loaded`).

Returns:
modules: The modules that were unloaded or loaded.
"""

from __future__ import annotations

from ..driver import loaded
from ..module import AnsibleModule

OPTIONS = {
    "state": {"type": "str", "choices": ["out", "loaded", "back"], "required": True},
    "wanted": {"type": "bool", "default": True},
}


def run(module: AnsibleModule) -> None:
    state, check = module.params["state"], module.check_mode
    if state == "out":
        names = loaded.list_loaded() if check else loaded.take_out()
    elif state == "back":
        names = [] if check else loaded.put_back()
    else:
        names = _load(module)
    before, after = ("loaded", "not loaded") if state == "out" else ("not loaded", "loaded")
    diff = {
        word: "".join(f"{name}: {what}\n" for name in names) for word, what in (("before", before), ("after", after))
    }
    module.exit_json(changed=bool(names), modules=names, diff=diff)


def _load(module: AnsibleModule) -> list[str]:
    names: list[str] = ["nvidia"] if module.params["wanted"] and loaded.is_waiting() else []
    missing: list[str] = loaded.list_missing() if names or loaded.is_lasting() else []
    if module.check_mode:
        return names + missing
    if names:
        loaded.load()
    for complaint in loaded.restore() if missing else []:
        module.warn(
            f"what was loaded on the old driver does not load on the new one, and is missing: {complaint}. Fix: "
            "build or install it for this driver, then modprobe it"
        )
    still = loaded.list_missing()
    loaded.forget_unloaded()
    return names + [name for name in missing if name not in still]
