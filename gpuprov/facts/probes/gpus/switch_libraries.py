"""The libraries through which DCGM reads NVSwitches."""

import re

import msgspec

from gpuprov.facts.probes.base import Output, Probe


class SwitchLibrary(msgspec.Struct, frozen=True):
    """A library through which DCGM reads NVSwitches: `libnvidia-nscq` or `libnvsdm`, and the version in its path."""

    name: str
    path: str
    version: str


def parse_libraries(output: Output) -> tuple[SwitchLibrary, ...]:
    rows = [line.split("|") for line in output.text.splitlines()]
    libraries = []
    for path, real in (row[1:] for row in rows if len(row) == 3 and row[0] == "library"):
        match = re.search(r"\.so\.(\d{3}(?:\.\d+)+)\Z", real)
        libraries.append(SwitchLibrary(path.rpartition("/")[2].partition(".so")[0], path, match[1] if match else ""))
    return tuple(libraries)


# Libraries that DCGM reads NVSwitches by, as the dynamic linker finds them. NSCQ's file has the version in its name
# (https://github.com/nvidia/apt-packaging-libnvidia-nscq); NVSDM's has not
# (https://docs.nvidia.com/datacenter/tesla/nvsdm/installation.html).
LIBRARIES = Probe(
    "switch_libraries",
    r"""PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | sed -n 's/.*=> //p' | grep -E '/lib(nvidia-nscq|nvsdm)\.so\.[0-9]+$' |
while read -r f; do echo "library|$f|$(readlink -f "$f")"; done; true""",
    parse_libraries,
    "ldconfig -p | grep -E 'nscq|nvsdm'; readlink -f /usr/lib*/*/libnvidia-nscq.so.2",
)
