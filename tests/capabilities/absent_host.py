"""What is left of NVIDIA's software, told as its probes print it: the good host has a driver of packages."""

from __future__ import annotations

from gpuprov.facts.probes.driver.leftovers import UNITS

OWNED = "/etc/modprobe.d/nvidia-blacklists-nouveau.conf"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
OURS = "/etc/modprobe.d/gpuprov.conf"


def software(**versions: str) -> str:
    """The installed packages, by version; with _ for - in names, and __ for : before an architecture."""
    lines = ["own|amd64"]
    for word, version in versions.items():
        name, _, architecture = word.replace("__", ":").replace("_", "-").partition(":")
        lines.append(
            f"row|{name}|{version}|nvidia-graphics-drivers|{architecture or 'amd64'}|Debian NVIDIA Maintainers"
        )
    return "\n".join([*lines, ""])


def units(**states: str) -> str:
    """`systemctl show` of NVIDIA's units, by their state; with _ for - in names. Others are not there."""
    loaded = {f"{name.replace('_', '-')}.service": state for name, state in states.items()}
    names = [line for line in UNITS.script.split() if line.endswith((".service", ".path"))]
    rows = [(name, loaded.get(name, "")) for name in names]
    return "\n".join(
        f"Id={name}\nLoadState={'loaded' if state else 'not-found'}\nActiveState={state or 'inactive'}\nUnitFileState=\n"
        for name, state in rows
    )


def blacklists(*places: tuple[str, str]) -> str:
    """Places that keep nouveau out, each with its owner; |1 after it if it is a link."""
    return "".join(
        ["looked\n", *(f"file|{place}|{owner if '|' in owner else owner + '|'}\n" for place, owner in places)]
    )


PROBES = {
    "nvidia_software": software(libcuda1="535.261.03-1", nvidia_smi="535.261.03-1", libxnvctrl0="535.171.04-1"),
    "nvidia_units": units(nvidia_persistenced="active"),
    "nvidia_libraries": f"looked\n{LIBRARY}\n",
    "nouveau_blacklists": blacklists((OURS, ""), (OWNED, "nvidia-smi: /etc/nvidia/x.conf|1")),
}
