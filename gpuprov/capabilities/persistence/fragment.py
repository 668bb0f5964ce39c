"""The `persistence` block."""

from typing import Annotated, Literal

import msgspec

from gpuprov.host_code.clients import OURS
from gpuprov.spec.model import Fragment

DAEMON = "nvidia-persistenced.service"
LEGACY = OURS
LEGACY_FILE = f"/etc/systemd/system/{LEGACY}"
DROP_IN = "/etc/systemd/system/nvidia-persistenced.service.d/50-gpuprov.conf"
PROGRAM = "/usr/bin/nvidia-persistenced"
# An option of Ubuntu's unit: the daemon runs, and every GPU's mode stays off.
IDLE = "--no-persistence-mode"


class Persistence(Fragment, frozen=True):
    """nvidia-persistenced, or `nvidia-smi -pm 1` at boot if there is no daemon."""

    mode: Annotated[
        Literal["auto", "daemon", "legacy"],
        msgspec.Meta(
            description="the daemon, the legacy mode, or auto: the daemon where the host's repositories have it, else "
            "legacy"
        ),
    ] = "auto"
