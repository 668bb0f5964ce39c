"""Common parts of every page: one file that loads nothing, with a headline, its origin, one search and copy buttons.

A page is a template that extends base.html.j2. All texts are cleaned and escaped; styles and scripts are gpuprov's own
files, and the only ones that the page's Content-Security-Policy lets a browser run: it names their digests.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from markupsafe import Markup

from gpuprov import __version__
from gpuprov.core.sanitize import cleaned

if TYPE_CHECKING:
    from jinja2 import Environment

# State of a host, or of all of them; the names of the colours in page.css.
State = Literal["right", "part", "unproven", "boot", "error", "fail", "gone"]

FOLDER = Path(__file__).parent
_OPTION = re.compile(r"((?<!\S)--?[a-z][a-z-]{0,20}(?![\w-])|\bif-needed\b)")


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict as one sentence, and other facts that matter most."""

    state: State
    sentence: str
    more: str = ""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """Origin of a page."""

    # The time, for people.
    at: str = ""
    # The files.
    inventory: str = ""
    # The command line, quoted for a shell.
    command: str = ""


def render(
    template: str,
    *,
    title: str,
    headline: Headline,
    about: About | None = None,
    data: Any = None,
    styles: Sequence[str] = (),
    scripts: Sequence[str] = (),
    **values: Any,
) -> str:
    """Render a template that extends base.html.j2. The same values give the same text.

    `data`: input of the scripts, as plain data; its strings are cleaned here. `styles` and `scripts`: files of the
    folder assets that follow page.css and page.js.
    """
    style = _asset("page.css", *styles)
    script = _asset("page.js", *scripts)
    policy = (
        f"default-src 'none'; style-src '{_compute_digest(style)}'; script-src '{_compute_digest(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = environment().get_template(template)
    return page.render(
        title=title,
        headline=headline,
        about=about or About(),
        version=__version__,
        policy=policy,
        style=style,
        script=script,
        data=None if data is None else as_data(data),
        **values,
    )


def as_data(value: Any) -> Markup:
    """Return JSON for a script element: no text in it can end the element, open a comment or hide."""
    text = json.dumps(_clean(value), ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return cleaned(value)
    if isinstance(value, Mapping):
        return {cleaned(str(key)): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value


@lru_cache(maxsize=1)
def environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: cleaned(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["unbroken"] = unbroken
    return made


def unbroken(text: str) -> Markup:
    """Keep options in the text (`--html`, `if-needed`) in one piece: a browser breaks lines after a hyphen."""
    return Markup("").join(
        Markup('<span class="one">{}</span>').format(part) if number % 2 else cleaned(part)
        for number, part in enumerate(_OPTION.split(text))
    )


@lru_cache(maxsize=8)
def _asset(*names: str) -> Markup:
    return Markup("\n".join((FOLDER / "assets" / name).read_text(encoding="utf-8") for name in names))


def _compute_digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
