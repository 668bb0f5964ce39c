"""The NVIDIA Container Toolkit: its packages, files and units, and the releases in which it learned what gpuprov relies on."""

from __future__ import annotations

from typing import Any

# https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html
PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
"""The four that NVIDIA's install guide pins to one version; they lie in a repository of their own, not in the driver's."""
REPOSITORY = "https://nvidia.github.io/libnvidia-container/stable/deb"
# What the same programs were packaged as before 2023, and source lists that break apt beside the present one ("Conflicting
# values set for option Signed-By"): https://github.com/NVIDIA/cloud-native-docs container-toolkit/troubleshooting.md
OLD_PACKAGES = ("nvidia-docker", "nvidia-docker2", "nvidia-container-runtime", "nvidia-container-runtime-hook")
OLD_LISTS = ("libnvidia-container.list", "nvidia-docker.list", "nvidia-container-runtime.list")
HOOK = "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"
"""The hook of the legacy mode for podman and cri-o, which must not meet CDI devices."""
CONFIG = "/etc/nvidia-container-runtime/config.toml"
REFRESH_ENVIRONMENT = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
OUTPUT_VARIABLE = "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH"
# https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/CHANGELOG.md
MODERN = "1.18.0"
"""The first release with nvidia-cdi-refresh, drop-in files for containerd and cri-o, and jit-cdi instead of legacy as mode auto."""
REFRESH_UNITS = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")
OWN_UNITS = ("gpuprov-cdi-refresh.path", "gpuprov-cdi-refresh.service")
"""What refreshes the CDI specification: the toolkit's own units, or gpuprov's where it has none."""
REFRESH_DROP_IN = "/etc/systemd/system/nvidia-cdi-refresh.service.d/50-gpuprov.conf"
SPECIFICATION = "nvidia.yaml"
UVM = "/dev/nvidia-uvm"
"""What CUDA opens first, and no kernel makes: a specification that is generated without it gives GPUs on which no program runs.
https://github.com/NVIDIA/nvidia-container-toolkit/issues/50"""
NODES = "nvidia-ctk --quiet system create-device-nodes --control-devices"
"""Makes it. With --load-kernel-modules, which fails where one of the driver's modules is not there, it loads them first. The
toolkit's own unit does so from 1.20 on."""
# The rule of https://github.com/NVIDIA/nvidia-container-toolkit/issues/48
UDEV_RULE = "/etc/udev/rules.d/71-gpuprov-nvidia-dev-char.rules"


def tables() -> dict[str, Any]:
    """What the role decides by."""
    return {
        "packages": list(PACKAGES),
        "repository": REPOSITORY,
        "old_packages": list(OLD_PACKAGES),
        "old_lists": list(OLD_LISTS),
        "hook": HOOK,
        "config": CONFIG,
        "modern": MODERN,
        "refresh_environment": REFRESH_ENVIRONMENT,
        "output_variable": OUTPUT_VARIABLE,
        "refresh_units": list(REFRESH_UNITS),
        "own_units": list(OWN_UNITS),
        "refresh_drop_in": REFRESH_DROP_IN,
        "specification": SPECIFICATION,
        "uvm": UVM,
        "nodes": f"[ -e {UVM} ] || {NODES} --load-kernel-modules || {NODES}",
        "udev_rule": UDEV_RULE,
    }
