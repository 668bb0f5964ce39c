"""Traits that distinguish drivers of different archives on the same host: patterns of versions, sources, conflicts,
pins."""

from typing import Any

from gpuprov.host_code.json_members import Json

# Kernel modules prebuilt by Ubuntu, by driver branch and kernel; and NVIDIA's for dnf, kmod-nvidia-VERSION-KERNEL.
PREBUILT = (r"linux-(modules|objects)-nvidia-\d.*", r"kmod-nvidia-\d.*")

# What tells a driver of one archive from another's on the same host. `versions`: of its packages, where two archives
# have the same names (NVIDIA's revisions are -0ubuntu1 and -1ubuntu1, Ubuntu's end in the release). `sources`: the
# source packages, whatever else of which is installed moves along. `conflicts`: packages that bring another driver,
# unless they are of `sources`. `pin`: names of which none may come in another version.
_METAPACKAGES = (r"cuda(-runtime|-demo-suite)?(-\d+-\d+)?", r"cuda-drivers.*", r"nvidia-open(-\d+)?")
_BRANCHED = (
    r"nvidia-(dkms|driver|kernel-common|kernel-source|utils|compute-utils|headless|headless-no-dkms|firmware)(-\d+)"
    r"?(-open)?(-[\d.]+)?",
    r"libnvidia-(cfg1|common|compute|decode|encode|extra|fbc1|gl|gpucomp)(-\d+)?",
    r"xserver-xorg-video-nvidia(-\d+)?",
)
# NVIDIA's program that names a driver, its local repositories as packages, its pins and its policy for SELinux: beside
# any driver, in versions of their own.
_BESIDE = r"(?!driver-(assistant|local-repo|pinning|selinux))"
_APT = ("nvidia-*", "libnvidia-*", "xserver-xorg-video-nvidia*", "cuda-drivers*", "libxnvctrl*")
# Modules that are no part of NVIDIA's set for DKMS: those that SUSE has built and signed, those of NVIDIA's that
# compile when they are installed (to 570), and older generations:
# https://sndirsch.github.io/nvidia/2025/07/16/nvidia-drivers.html
_ZYPPER: dict[str, Json] = {
    "sources": (r"nvidia-(video|compute|persistenced|modprobe|settings|xconfig)(-G\d+)?",),
    "conflicts": (
        r"nvidia-(open-)?(driver-|gfx)G\d+(-signed)?(-cuda)?-kmp.*",
        r"(x11-video-nvidia|nvidia-(compute|gl))G\d+",
        r"nv-prefer-signed-open-driver|cuda-cloud-opengpu",
    ),
    "pin": (
        *("nvidia-open-driver-G0[0-9]", "nvidia-driver-G0[0-9]", "nvidia-common-G0[0-9]", "nvidia-compute-G0[0-9]"),
        *("nvidia-compute-utils-G0[0-9]", "nvidia-video-G0[0-9]", "nvidia-gl-G0[0-9]", "nvidia-persistenced"),
        *("nvidia-modprobe", "nvidia-settings", "libnvidia-ml", "libnvidia-cfg", "libnvidia-gpucomp"),
    ),
}
# Other builders' names: RPM Fusion (akmod-, xorg-x11-drv-), ELRepo (nvidia-x11-drv), negativo17 (dkms-nvidia).
_DNF: dict[str, Any] = {
    "sources": (
        rf"nvidia-{_BESIDE}(driver|kmod|kmod-common|open|persistenced|modprobe|settings|xconfig|libXNVCtrl).*",
        r"(kmod|dkms)-nvidia.*|xorg-x11-nvidia|cuda-drivers|libnvidia-(ml|cfg|fbc|gpucomp)",
    ),
    "conflicts": (
        r"(akmod|xorg-x11-drv)-nvidia.*|nvidia-x11-drv.*|dkms-nvidia",
        r"kmod-nvidia(-open-\d.*)?",
        *PREBUILT,
    ),
    "pin": (
        *("nvidia-driver*", "nvidia-kmod-common", "nvidia-persistenced", "nvidia-modprobe", "nvidia-settings"),
        *("nvidia-xconfig", "nvidia-libXNVCtrl*", "nvidia-open", "cuda-drivers*", "kmod-nvidia-*-dkms"),
        *("libnvidia-ml", "libnvidia-cfg", "libnvidia-fbc", "libnvidia-gpucomp", "xorg-x11-nvidia"),
    ),
}
TRAITS: dict[tuple[str, str], dict[str, Any]] = {
    ("sles", "nvidia"): _ZYPPER,
    ("opensuse-leap", "nvidia"): _ZYPPER,
    ("debian", "debian"): {
        "sources": ("nvidia-graphics-drivers", "nvidia-open-gpu-kernel-modules"),
        # NVIDIA's own repository: the metapackages that drag a driver in (not cuda-toolkit and its kind, which bring
        # none), and the driver's other names; Debian's legacy and tesla branches: other names for the same files.
        "conflicts": (
            *_METAPACKAGES,
            r"nvidia-driver-(pinning|open|cuda|\d+).*",
            r"nvidia-kernel-open-.*",
            r"nvidia-(tesla|legacy-\d).*",
            r"libnvidia-compute.*",
        ),
    },
    ("debian", "nvidia"): {
        "sources": (rf"nvidia-{_BESIDE}(graphics-drivers|driver|settings|xconfig|persistenced|modprobe).*",),
        "conflicts": (r"nvidia-open-kernel-.*", r"nvidia-(tesla|legacy-\d).*", r"libnvidia-compute.*"),
        "pin": (*_APT, "libcuda1", "libcudadebugger1", "libnvcuvid1", "libnvoptix1", "firmware-nvidia-gsp"),
    },
    ("ubuntu", "ubuntu"): {
        "sources": (r"nvidia-graphics-drivers-\d+-server",),
        "conflicts": (
            *_METAPACKAGES,
            *_BRANCHED,
            *PREBUILT,
            r"nvidia-driver-(pinning|open).*",
            r"nvidia-kernel-open-.*",
        ),
        "pin": ("nvidia-*-server*", "libnvidia-*-server", "xserver-xorg-video-nvidia-*-server"),
    },
    ("ubuntu", "nvidia"): {
        "versions": r"[\d.]+-[01]ubuntu1",
        "sources": (r"nvidia-(graphics-drivers(-\d+)?|driver|settings|xconfig|persistenced|modprobe)", "libxnvctrl.*"),
        "conflicts": (r".*nvidia.*-\d+-server(-open)?(-[\d.]+)?", *PREBUILT),
        "pin": _APT,
    },
    ("rhel", "nvidia"): _DNF,
    ("amzn", "nvidia"): _DNF,
    ("alinux", "runfile"): _DNF,
    # Microsoft's own: https://packages.microsoft.com/azurelinux/3.0/prod/nvidia/x86_64/Packages/
    ("azurelinux", "nvidia"): _DNF | {"conflicts": (*_DNF["conflicts"], r"cuda(-open)?(-hwe)?")},
    ("amzn", "amazon"): _DNF,
}
