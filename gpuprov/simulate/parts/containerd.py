"""containerd of any release on a simulated host: the real daemon, built from its Go module, with the unit of its
packages."""

from __future__ import annotations

from gpuprov.simulate import engines_built
from gpuprov.simulate.description import Description
from gpuprov.simulate.parts.base import File, Part, text

UNIT = "containerd.service"
SERVICE = """\
# Of a gpuprov simulated host: the real containerd {version}, built from its Go module.
[Unit]
Description=containerd container runtime
After=network.target local-fs.target

[Service]
ExecStart=/usr/bin/containerd
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
"""


def part(_name: str, description: Description) -> Part:
    """Return the daemon, without a configuration file; nothing if the description names no release."""
    if not description.containerd:
        return Part()
    program = File(engines_built.containerd(description.containerd), 0o755)
    unit = text(SERVICE.format(version=description.containerd))
    return Part(files={"/usr/bin/containerd": program, f"/lib/systemd/system/{UNIT}": unit}, units=(UNIT,))
