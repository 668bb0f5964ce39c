"""The message about a failed step after its unfinished changes have been reverted."""

from __future__ import annotations

from typing import Any, Iterable, Mapping


def find_reason(failure: Mapping[str, Any]) -> str:
    """Return the reason why a task failed, from its result; for a loop, that of the first item that failed."""
    items = [item for item in failure.get("results") or [] if isinstance(item, dict) and item.get("failed")]
    first = items[0] if items else failure
    messages = [str(first.get(name) or "").strip() for name in ("msg", "stderr")]
    return ": ".join(dict.fromkeys(word for word in messages if word)) or "failed without a message"


def describe_failure(failure: Mapping[str, Any], leftovers: Iterable[str], not_started: Iterable[str]) -> str:
    """Return the reason, and what could not be undone: `left` in words, `not_started` by the services' names."""
    words = [find_reason(failure), *leftovers]
    if names := ", ".join(not_started):
        words.append(f"stopped for it, and not to be started again: {names} (systemctl status says why)")
    return "; ".join(words)
