"""Have a kernel module for peer memory that was built against the ib_core that is there.

The DKMS package that has the module is built again in a tree of its own, and put in place only if it has peer
memory then. What is cut off or fails leaves the modules that were there.
In check mode it is said.

module: The module.
kernels: Kernels that it is built for.
why: Why it is, in words.

Returns:
msg: What was done, or would be. (changed)
"""

from __future__ import annotations

from .. import peer_build
from ..module import AnsibleModule

OPTIONS = {
    "module": {"type": "str", "choices": ["nvidia_peermem", "nv_peer_mem"], "required": True},
    "kernels": {"type": "list", "elements": "str", "required": True},
    "why": {"type": "str", "required": True},
}


def run(module: AnsibleModule) -> None:
    name, kernels, why = (module.params[key] for key in ("module", "kernels", "why"))
    if module.check_mode:
        module.exit_json(changed=True, msg=f"would build {name} again for {why}")
    try:
        peer_build.rebuild(name, kernels)
    except (peer_build.Failed, OSError) as error:
        told = f"{name} could not be built again, the modules that were there are untouched ({why}). {error}"
        module.fail_json(msg=f"{told}. Fix: correct what the build says; or method dmabuf, which needs no such module")
    module.exit_json(changed=True, msg=f"built {name} again for {why}")
