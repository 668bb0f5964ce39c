"""Shell scripts of faults of GPU settings, which do not survive a driver reload or a user with nvidia-smi."""

from __future__ import annotations

# Settings kept by the stand-in NVML that a real driver forgets with its last client; ECC modes stay.
#
# Compute modes stay, too: MPS may own them, and `exclusive-mode-lost` takes them away.
FORGET = (
    "for file in /var/lib/gpuprov-sim/settings/[0-9]*; do\n"
    "  [ -e \"$file\" ] || { echo 'nothing is set on the GPUs' >&2; exit 1; }\n"
    "  sed -i 's/^power .*/power 0/; s/^application .*/application 0 0/; s/^\\(graphics\\|memory\\) .*/\\1 0 0/' "
    '"$file"\ndone'
)
AGAIN = "systemctl restart gpuprov-gpu-settings"
