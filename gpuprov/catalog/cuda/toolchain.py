"""Names and versions of packages of the CUDA toolkit, cuDNN and NCCL, which show the toolkit and the release."""

import re
from collections.abc import Iterable

from gpuprov.rules import resolve

# Names of a toolkit's packages, before the dash and the version that end them.
FAMILY = r"(?:cuda|lib(?:cu[a-z]+|npp|nv[a-z]+)|gds-tools|nvidia-gds)(?:-[a-z0-9]+)*?"


def is_satisfying(version: str, series: str) -> bool:
    """Return whether a version is the requested one, or belongs to the requested series: 12.4.1 is a 12.4."""
    return f"{resolve.upstream(version)}.".startswith(f"{series}.")


def take_minor(version: str) -> str:
    """12.4.1 -> 12.4"""
    return ".".join(version.split(".")[:2])


def take_major(version: str) -> str:
    """12.4.1 -> 12"""
    return version.partition(".")[0]


def derive_runtime(version: str) -> str:
    """Return the soname of a toolkit's libcudart: until 10 every minor has its own, all of 11 have that of 11.0, and
    later ones the major."""
    number = take_major(version)
    return f"libcudart.so.{number if int(number) > 11 else '11.0' if number == '11' else take_minor(version)}"


def format_dashed(version: str) -> str:
    """12.4.1 -> 12-4, as in package names."""
    return take_minor(version).replace(".", "-")


def find_toolkit(name: str) -> str:
    """Return the toolkit (`12.4`) in a package's name; "" if it belongs to none."""
    match = re.fullmatch(rf"{FAMILY}-(\d+)-(\d+)(?:-config-common)?", name)
    return f"{match[1]}.{match[2]}" if match else ""


def find_built_for(version: str) -> str:
    """Return the CUDA version in a library's package version: `2.21.5-1+cuda12.4` -> `12.4`; "" if it names none."""
    match = re.search(r"[+.]cuda(\d+\.\d+)\Z", version)
    return match[1] if match else ""


def select_matching(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Return the names that one of the regular expressions fully matches."""
    known = list(patterns)
    return sorted(name for name in names if any(re.fullmatch(pattern, name) for pattern in known))
