"""Limits of a puller on sizes and waiting times."""

from __future__ import annotations

BUNDLE = 16 << 20
"""Maximum size of a bundle in bytes: the job of one host has some KiB."""
CONFIG = 64 << 10
SIGNATURE = 16 << 10
WHEEL = 128 << 20
WHEELS = 512 << 20
"""Maximum size of all wheels that a host fetches, in bytes; gpuprov with its dependencies has 15 MiB."""
UNPACKED = 1 << 30
FILES = 50_000
ROOM = 64 << 20
"""Bytes that stay free on the disk."""
SOCKET = 30.0
"""Maximum number of seconds without an answer."""
FETCH = 600.0
"""Maximum number of seconds for one file."""
