#!/usr/bin/python
"""NVIDIA's driver in the running kernel."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_driver_loaded
short_description: Take the driver out of the kernel, load it, or put back what was taken out
description:
  - What V(out) has taken out is noted under /run/gpuprov until V(loaded) or V(back) has been run, also by a later run.
  - On a host that waits for a reboot nothing is loaded. What is in use is not taken out.
author: gpuprov
options:
  state:
    description: >-
      V(out) unloads the driver and what stands on it. V(loaded) loads the driver where it is not, and what was taken out with the old
      one, by the services that had loaded it where there are some. V(back) loads again what was taken out, as far as it loads.
    type: str
    choices: [out, loaded, back]
    required: true
  wanted:
    description: Whether the driver is to be loaded at all; not in a container, nor without a GPU (V(loaded)).
    type: bool
    default: true
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
"""

EXAMPLES = r"""
- name: Take the old driver out
  gpuprov_driver_loaded: {state: out}
- name: Load the new one
  gpuprov_driver_loaded: {state: loaded}
"""

RETURN = r"""
modules:
  description: What was unloaded, or loaded.
  type: list
  elements: str
  returned: always
"""

from ansible.module_utils.gpuprov_onhost.driver import loaded
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule

SPEC = {
    "state": {"type": "str", "choices": ["out", "loaded", "back"], "required": True},
    "wanted": {"type": "bool", "default": True},
}


def main() -> None:
    module = AnsibleModule(SPEC, supports_check_mode=True)
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


if __name__ == "__main__":
    main()
