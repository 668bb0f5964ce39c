"""The `nvidia_absent` block."""

from gpuprov.spec.model import Fragment


class NvidiaAbsent(Fragment, frozen=True):
    """No software of NVIDIA's for GPUs: the packages that the catalogue knows, a .run file's driver, loaded modules.

    Blocks that need the driver are errors beside it. What gpuprov set up for them goes with it, as with --prune.
    """
