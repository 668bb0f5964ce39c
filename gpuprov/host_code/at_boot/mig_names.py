"""Names of MIG devices, as nvidia-smi, mig-parted and Slurm write them.

https://docs.nvidia.com/datacenter/tesla/mig-user-guide/concepts.html
"""

from __future__ import annotations


def name_device(profile: str, slices: int) -> str:
    """Return the name of a compute instance with so many slices in a GPU instance of this profile: `3g.40gb` if it has
    all of them, else `1c.3g.40gb`."""
    return profile if profile.startswith(f"{slices}g.") else f"{slices}c.{profile}"
