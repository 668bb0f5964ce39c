"""Limits of a puller on sizes and waiting times."""

from __future__ import annotations

BUNDLE = 16 << 20
"""Bytes of a bundle: the job of one host has some KiB."""
CONFIG = 64 << 10
SIGNATURE = 16 << 10
WHEEL = 128 << 20
WHEELS = 512 << 20
"""Bytes of all wheels that a host fetches; gpuprov with what it needs has 15 MiB."""
UNPACKED = 1 << 30
FILES = 50_000
ROOM = 64 << 20
"""Bytes that stay free on the disk."""
SOCKET = 30.0
"""Seconds without an answer."""
FETCH = 600.0
"""Seconds for one file."""
