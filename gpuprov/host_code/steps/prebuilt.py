"""Pack the driver's modules for other hosts. The controller's part of this step is gpuprov/play/prebuilt.py.

state, builder, platform: As in the controller's part.
driver: What gpuprov_judge has worked out of the modules of this host.
sums: Checksums of the package that the controller has; a package with the same modules is not built again.
"""

from __future__ import annotations

from .. import files
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
        packed = packing.make_package(module.params["driver"], module.params["sums"])
    except Failed as error:
        module.fail_json(msg=f"nvidia_driver.build_host: {error}. Fix: correct what it reports, and apply again")
    except OSError as error:
        module.fail_json(msg=files.explain(error))
    module.exit_json(changed=packed)
