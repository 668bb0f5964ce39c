"""Container engines of a simulated host: Debian's, as all its programs are, whatever distribution it stands in for."""

from __future__ import annotations

from gpuprov.simulate.description import Description
from gpuprov.simulate.parts.base import Part

PACKAGES = {"docker": "docker.io", "podman": "podman"}
SCRIPT = """
for package in {packages}; do
  dpkg-query -W -f '${{db:Status-Abbrev}}' "$package" 2> /dev/null | grep -q '^ii' && continue
  [ -n "${{updated:-}}" ] || {{ apt-get update -q > /dev/null; updated=yes; }}
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$package" > /dev/null
done
"""


def part(_name: str, description: Description) -> Part:
    """Return their packages, from Debian's archive; nothing if the description names no engine."""
    if not description.engines:
        return Part()
    return Part(script=SCRIPT.format(packages=" ".join(PACKAGES[name] for name in description.engines)))
