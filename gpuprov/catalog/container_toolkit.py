"""The NVIDIA Container Toolkit: its packages, files and units, and the releases that introduced the features which
gpuprov relies on."""

# The four packages that NVIDIA's install guide pins to one version; they are in a repository of their own, not in the
# driver's.
# https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html
PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
# What the same programs were packaged as before 2023: https://github.com/NVIDIA/cloud-native-docs
# container-toolkit/troubleshooting.md
OLD_PACKAGES = ("nvidia-docker", "nvidia-docker2", "nvidia-container-runtime", "nvidia-container-runtime-hook")
CONFIG = "/etc/nvidia-container-runtime/config.toml"
# Settings of CONFIG that `nvidia-ctk config` comments out if they have these values, whoever has set them; other
# values are then in force.
# commentDefaults in internal/config/toml.go of https://github.com/NVIDIA/nvidia-container-toolkit (v1.17.8, v1.19.1)
COMMENTED = {
    ("swarm-resource",): "DOCKER_RESOURCE_GPU",
    ("nvidia-container-cli", "root"): "/run/nvidia/driver",
    ("nvidia-container-cli", "debug"): "/var/log/nvidia-container-toolkit.log",
    ("nvidia-container-cli", "ldcache"): "/etc/ld.so.cache",
    ("nvidia-container-cli", "user"): "root:video",
    ("nvidia-container-runtime", "debug"): "/var/log/nvidia-container-runtime.log",
}
# The first release that keeps them: https://github.com/NVIDIA/nvidia-container-toolkit/commit/d5ae0644
KEEPS_SETTINGS = "1.20.0"
REFRESH_ENVIRONMENT = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
OUTPUT_VARIABLE = "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH"
# Features of `nvidia-ctk cdi generate`, with commas between them.
FLAGS_VARIABLE = "NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS"
# The version of a CDI file in which nvidia-ctk 1.19.1 and newer give containers the groups of device files
# (additionalGids).
# https://github.com/NVIDIA/nvidia-container-toolkit/issues/1860, and pkg/nvcdi/api.go, internal/edits/device.go of
# v1.19.0 and v1.19.1
WRITTEN_CDI = "0.7.0"
# The feature that leaves them out, so that the file has an older version. In a container, a user other than root then
# has no access to device files of a group, such as /dev/dri/renderD128.
WITHOUT_GIDS = "no-additional-gids-for-device-nodes"
WITHOUT_GIDS_SINCE = "1.19.0"
# The first release with nvidia-cdi-refresh, drop-in files for containerd and cri-o, and jit-cdi instead of legacy as
# mode auto.
# https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/CHANGELOG.md
MODERN = "1.18.0"
# The first release whose own refresh unit makes /dev/nvidia-uvm before it writes the specification.
MAKES_UVM = "1.20.0"
REFRESH_UNITS = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")
# Units that refresh the CDI specification: the toolkit's own, or gpuprov's if it has none.
OWN_UNITS = ("gpuprov-cdi-refresh.path", "gpuprov-cdi-refresh.service")
REFRESH_DROP_IN = "/etc/systemd/system/nvidia-cdi-refresh.service.d/50-gpuprov.conf"
# The rule of https://github.com/NVIDIA/nvidia-container-toolkit/issues/48
UDEV_RULE = "/etc/udev/rules.d/71-gpuprov-nvidia-dev-char.rules"
