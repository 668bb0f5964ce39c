"""Output of `gpuprov show`: the resources of hosts as text and as JSON, and the text of one file."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Annotated

import msgspec

from gpuprov import __version__
from gpuprov.core import terminal
from gpuprov.core.errors import CODES, GpuprovError
from gpuprov.core.safe_parse import format_document
from gpuprov.core.sanitize import counted
from gpuprov.host_code.files import PYTHON
from gpuprov.verify.listing import Item, Listing
from gpuprov.verify.unmanaged import lines as describe_left

FORMAT = 1


class Shown(msgspec.Struct, kw_only=True):
    """The document. `hosts`: their expected resources. `unread`: hosts that could not be read, and why."""

    gpuprov_show: Annotated[int, msgspec.Meta(description="Version of this format")] = FORMAT
    gpuprov: str = __version__
    hosts: tuple[Listing, ...]
    unread: dict[str, str]


# Kinds without a text, in words.
WITHOUT_TEXT = {"unit": "a unit", "setting": "a setting", "module": "a kernel module"}


def show(
    listings: Sequence[Listing], unread: Mapping[str, str], *, path: str | None, as_json: bool, verbose: bool
) -> int:
    """Print hosts' expected resources, or the text of the file at `path`; return the exit code."""
    for name, why in unread.items():
        terminal.progress(why if why.startswith(name) else f"{name}: {why}")
    if path is not None:
        if unread and not any(item.name == path for listing in listings for item in listing.items):
            return CODES["unreachable"]
        text = text_of(listings, path)
        if note := stands_for(text):
            terminal.progress(note)
        terminal.result(text.removesuffix("\n"))
        return CODES["unreachable" if unread else "ok"]
    if as_json:
        terminal.result(document(listings, unread))
    elif listings:
        terminal.result("\n\n".join(as_text(listing, verbose=verbose) for listing in listings), wrap=True)
    differs = any(listing.unknown or any(item.differs for item in listing.items) for listing in listings)
    return CODES["unreachable" if unread else "differs" if differs else "ok"]


def as_text(listing: Listing, *, verbose: bool = False) -> str:
    """Render the resources by capability, one line each; those that match have no remark."""
    lines = []
    for capability, items in groupby(listing.items, key=lambda item: item.capability):
        lines += ["", f"{listing.host}  {capability}"]
        shown = [item for item in items if verbose or item.differs or item.kind != "absent"]
        width = max((len(item.name) for item in shown), default=0)
        for item in shown:
            differs = f"  now: {item.differs}" if item.differs else ""
            lines.append(f"  {item.kind:7}  {item.name:{width}}  {item.wanted}{differs}".rstrip())
    for capability, why in listing.unknown.items():
        lines += ["", f"{listing.host}  {capability}", f"  not known: {why}"]
    if listing.left:
        lines += ["", f"{listing.host}  no longer asked for", *(f"  {line}" for line in describe_left(listing.left))]
    if not lines:
        return f"{listing.host}: nothing that was asked about is a file or a unit of gpuprov's"
    differing = sum(bool(item.differs) for item in listing.items)
    parts = [counted(len(listing.items), "resource")]
    parts += [counted(differing, "difference")] * bool(differing)
    parts += [f"not known of {', '.join(listing.unknown)}"] * bool(listing.unknown)
    parts += [f"{len(listing.left)} no longer asked for"] * bool(listing.left)
    parts += ["all as it should be"] * (not differing and not listing.unknown)
    return "\n".join([*lines[1:], "", f"{listing.host}: {', '.join(parts)}"])


def text_of(listings: Sequence[Listing], path: str) -> str:
    """Return the text of this file. Raises GpuprovError if there is none, or if hosts differ in it."""
    items = [(listing.host, item) for listing in listings for item in listing.items if item.name == path]
    if not items:
        if unknown := [
            f"{name} of {listing.host} ({why})" for listing in listings for name, why in listing.unknown.items()
        ]:
            raise GpuprovError(
                f"whether the spec asks for {path} is unknown: {unknown[0]}", "see on the host why it cannot be read"
            )
        raise GpuprovError(f"the specs do not ask for {path}", _suggest_near(listings, path))
    _refuse_without_text(path, [item for _, item in items])
    texts = {item.text: host for host, item in items}
    if len(texts) > 1:
        raise GpuprovError(f"{path} is not the same on {' and '.join(texts.values())}", "name one host")
    return str(next(iter(texts)))


def _refuse_without_text(path: str, items: Sequence[Item]) -> None:
    for item in items:
        if item.kind == "absent":
            raise GpuprovError(f"{path} should not be there", "gpuprov show without --file lists what should be")
        if item.text is None:
            what = WITHOUT_TEXT.get(item.kind, "not of gpuprov's making alone")
            raise GpuprovError(f"{path} is {what}: it has no text here", "gpuprov plan shows what changes in it")


def _suggest_near(listings: Sequence[Listing], path: str) -> str:
    from difflib import get_close_matches

    names = [item.name for listing in listings for item in listing.items if item.text is not None]
    near = get_close_matches(path, names, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else "gpuprov show without --file lists them"


def stands_for(text: str) -> str:
    """Explain the placeholder in a text that only an apply can fill in; empty without one."""
    return f"{PYTHON} stands for the Python of the host that Ansible uses" if PYTHON in text else ""


def document(listings: Sequence[Listing], unread: Mapping[str, str]) -> str:
    """Return the document as text."""
    return format_document(Shown(hosts=tuple(listings), unread=dict(unread)))
