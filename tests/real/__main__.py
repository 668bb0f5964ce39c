"""Counts of the corpus, and the paragraph for docs/explanation/limits.md: python -m tests.real"""

from __future__ import annotations

from tests.real.corpus import captures, counts, parsers, summary

files = sum(len(capture.files) for capture in captures())
tried = sum(counts()[name] >= 3 for name in parsers())
messages = sum(len(capture.about.messages) for capture in captures())
print(
    f"{len(captures())} captures, {files} files, {messages} messages; {tried} of {len(parsers())} parsers have "
    "three or more"
)
for name in sorted(parsers(), key=lambda name: -counts()[name]):
    print(f"{counts()[name]:4} {name}")
print(summary())
