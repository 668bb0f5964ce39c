"""Settings of apt for one call: the versions it may choose and the sources it must ignore."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from typing import Iterator, Sequence

from .model import Pin

PREFERENCES = "/etc/apt/preferences"
SOURCES = "/etc/apt/sources.list.d"


def name_source(name: str) -> str:
    """Return the file of gpuprov's source of this name."""
    return f"{SOURCES}/gpuprov-{name}.sources"


@contextlib.contextmanager
def pin_versions(pin: Pin | None) -> Iterator[list[str]]:
    """Yield options that give these preferences to apt before the host's: the first record that fits a version decides
    (apt_preferences(5))."""
    if not pin:
        yield []
        return
    site_pins = ""
    with contextlib.suppress(FileNotFoundError), open(PREFERENCES, encoding="utf-8", errors="replace") as file:
        site_pins = file.read()
    with tempfile.NamedTemporaryFile("w", prefix="gpuprov-preferences-", encoding="utf-8") as preferences:
        preferences.write(f"{format_records(pin)}\n{site_pins}")
        preferences.flush()
        os.chmod(preferences.name, 0o644)
        yield ["-o", f"Dir::Etc::preferences={preferences.name}"]


def format_records(pin: Pin) -> str:
    """Return preferences: matching packages may only have other versions if those are not a driver's
    (nvidia-container-toolkit 1.18)."""
    packages = f"Package: {' '.join(pin.patterns)}\n"
    pinned_version = rf"Pin: version /^([0-9]+:)?{re.escape(pin.version)}-/" + "\nPin-Priority: 1001\n"
    other_versions = "Pin: version /^([0-9]+:)?[0-9][0-9][0-9][.][0-9]/\nPin-Priority: -1\n"
    return f"{packages}{pinned_version}\n{packages}{other_versions}"


@contextlib.contextmanager
def leave_out_sources(names: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield an environment in which apt has all sources of the host except gpuprov's of these names; empty if it has
    none of them.

    The sources stay in place: a run that is refused later must not have changed the host.
    """
    if os.environ.get("APT_CONFIG"):  # of a bundle: apt sees none of the host's sources anyway
        yield {}
        return
    hidden = [path for path in map(name_source, names) if os.path.exists(path)]
    if not hidden:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="gpuprov-apt-") as folder:
        os.chmod(folder, 0o755)
        parts = os.path.join(folder, "sources.list.d")
        os.mkdir(parts)
        for entry in os.scandir(SOURCES):
            if entry.path not in hidden:
                os.symlink(entry.path, os.path.join(parts, entry.name))
        path = os.path.join(folder, "apt.conf")
        with open(path, "w", encoding="utf-8") as file:
            # The lists of the sources that it does not see are not its to clean up.
            file.write(f'Dir::Etc::sourceparts "{parts}";\nAPT::Get::List-Cleanup "0";\n')
        yield {"APT_CONFIG": path}
