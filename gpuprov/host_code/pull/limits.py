"""Limits of a puller on sizes and waiting times."""

from __future__ import annotations

# Maximum size of a bundle in bytes: the job of one host has some KiB.
BUNDLE = 16 << 20
CONFIG = 64 << 10
SIGNATURE = 16 << 10
WHEEL = 128 << 20
# Maximum size of all wheels that a host fetches, in bytes; gpuprov with its dependencies has 15 MiB.
WHEELS = 512 << 20
UNPACKED = 1 << 30
FILES = 50_000
# Bytes that stay free on the disk.
ROOM = 64 << 20
# Maximum number of seconds without an answer.
SOCKET = 30.0
# Maximum number of seconds for one file.
FETCH = 600.0
