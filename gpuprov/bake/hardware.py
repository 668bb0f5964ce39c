"""The hardware that an image sees while it is baked: the PCI functions of the GPUs that its spec names, and no
other."""

from gpuprov.catalog.gpus import find_gpu
from gpuprov.simulate.description import MOST_GPUS, Description, Gpus
from gpuprov.simulate.devices import devices
from gpuprov.simulate.parts.silicon_files import sysfs
from gpuprov.spec.model import HostSpec

# GPUs on a board with NVSwitches: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
BOARD = 8


def describe(spec: HostSpec) -> Description:
    """Describe the GPUs and NVSwitches of this spec; nothing if it names no model, or one that the catalogue does not
    have."""
    known = find_gpu(spec.gpu.model) if spec.gpu else None
    if spec.gpu is None or known is None:
        return Description()
    generation = (known.nvswitch.generation if known.nvswitch else 0) or 0
    count = spec.gpu.count or (BOARD if generation else 1)
    return Description(
        gpu=Gpus(model=known.key, count=min(count, MOST_GPUS)), nvswitch=generation if count >= BOARD else 0
    )


def tree(spec: HostSpec) -> dict[str, bytes | str]:
    """Return the files of these functions below /sys, by path; links as text."""
    files: dict[str, bytes | str] = {}
    for function in devices(spec.name, describe(spec)):
        folder = f"devices/{function.path}"
        files |= {f"{folder}/{name}": content for name, content in sysfs.files(function).items()}
        files[f"bus/pci/devices/{function.address}"] = f"../../../{folder}"
    return files
