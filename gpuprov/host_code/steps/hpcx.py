"""Unpack NVIDIA's HPC-X to its own folder in /opt, and let /opt/hpcx lead to it.

The archive's checksum is verified before it is unpacked. A folder that somebody else unpacked is not touched, and
folders of other releases stay.

archive: Path of the archive on the host. In check mode it need not exist.
sha256: The archive's checksum.
folder: The name of the folder in the archive, and in /opt.

Returns:
due: The reason why there was something to do; empty if there was not.
"""

from __future__ import annotations

import os

from .. import hpcx
from ..failed import Failed
from ..files import read
from ..module import AnsibleModule

OPTIONS = {
    "archive": {"type": "str", "required": True},
    "sha256": {"type": "str", "required": True},
    "folder": {"type": "str", "required": True},
}


def run(module: AnsibleModule) -> None:
    archive, sha256, folder = (module.params[name] for name in OPTIONS)
    link = os.path.realpath(os.path.join(hpcx.HOME, hpcx.LINK))
    link = link if os.path.isdir(link) else ""
    due = hpcx.explain_installation(link, read(os.path.join(link, hpcx.MARK)) if link else "", folder, sha256)
    try:
        if due and not module.check_mode:
            hpcx.install(archive, sha256, folder)
    except (Failed, OSError) as error:
        module.fail_json(msg=f"hpc.hpcx: {error}. Fix: what it says, on the host, or in hpc.hpcx; then apply again")
    module.exit_json(changed=bool(due), due=due)
