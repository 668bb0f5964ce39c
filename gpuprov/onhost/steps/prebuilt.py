"""Pack the driver's modules for other hosts. What else there is of this step is decided in gpuprov/play/prebuilt.py.

state, builder, platform: Of the controller's part.
driver: What gpuprov_judge has worked out for nvidia_driver on this host.
sums: Those of the package that the controller keeps; one with the same modules is not made again.
"""

from __future__ import annotations

from ..driver import packing
from ..driver.dkms import Failed
from ..module import AnsibleModule

OPTIONS = {
    "state": {"type": "str", "choices": ["packed", "judged", "brought"], "required": True},
    "driver": {"type": "dict", "required": True},
    "builder": {"type": "str", "required": True},
    "platform": {"type": "str", "required": True},
    "sums": {"type": "str", "default": ""},
}


def run(module: AnsibleModule) -> None:
    if module.check_mode:
        module.exit_json(changed=False)
    try:
        packed = packing.pack(module.params["driver"], module.params["sums"])
    except Failed as error:
        module.fail_json(msg=f"nvidia_driver.build_host: {error}. Fix: correct what it reports, and apply again")
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}. Fix: see the file system of the host")
    module.exit_json(changed=packed)
