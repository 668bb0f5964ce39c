"""Take the driver out of the kernel, load it, or put back what was taken out.

What `out` has taken out is noted under /run/gpuprov until `loaded` or `back` has been run, also by a later run.
On a host that waits for a reboot nothing is loaded. What is in use is not taken out.

state: `out` unloads the driver and what stands on it. `loaded` loads the driver where it is not, and what was
    taken out with the old one, by the services that had loaded it where there are some. `back` loads again what
    was taken out, as far as it loads.
wanted: Whether the driver is to be loaded at all; not in a container, nor without a GPU (`loaded`).

Returns:
modules: What was unloaded, or loaded.
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
        names = loaded.loaded() if check else loaded.take_out()
    elif state == "back":
        try:
            names = [] if check else loaded.put_back()
        except loaded.Failed as error:
            module.fail_json(msg=str(error))
    else:
        names = _load(module)
    before, after = ("loaded", "not loaded") if state == "out" else ("not loaded", "loaded")
    diff = {
        word: "".join(f"{name}: {what}\n" for name in names) for word, what in (("before", before), ("after", after))
    }
    module.exit_json(changed=bool(names), modules=names, diff=diff)


def _load(module: AnsibleModule) -> list[str]:
    names: list[str] = ["nvidia"] if module.params["wanted"] and loaded.waits() else []
    missing: list[str] = loaded.missing() if names or loaded.stands() else []
    if module.check_mode:
        return names + missing
    if names:
        try:
            loaded.load()
        except loaded.Failed as error:
            module.fail_json(msg=str(error))
    for complaint in loaded.restore() if missing else []:
        module.warn(
            f"what was loaded on the old driver does not load on the new one, and is missing: {complaint}. Fix: build or install it "
            "for this driver, then modprobe it"
        )
    still = loaded.missing()
    loaded.settled()
    return names + [name for name in missing if name not in still]
