"""gpuprov's own captures: the exact output of the probes on a host, without its secrets, in one file per host."""

import re
import time
from collections.abc import Collection
from urllib.parse import quote, unquote

import msgspec

from gpuprov import __version__
from gpuprov.core import safe_parse
from gpuprov.core.masking import masked
from gpuprov.core.safe_parse import Unreadable, format_document
from gpuprov.core.safe_parse.archives import MEMBER
from gpuprov.facts.captures.model import Record
from gpuprov.facts.probes.base import Facts, Output

# Version of the format; it is increased when a probe's output changes meaning, as captures of an earlier gpuprov would
# be misread.
FORMAT = 2
SUFFIX = ".capture.json"


class Capture(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The file."""

    gpuprov_capture: int
    version: str = ""
    host: str
    # Seconds since 1970.
    read_at: float = 0
    # Number of replaced secrets.
    masked: int = 0
    outputs: dict[str, Output]


def file_name(host: str) -> str:
    """Return the file name of a host's capture: a plain name, unique for each host, whatever its name in the
    inventory."""
    return re.sub(r"\A\.", "%2E", quote(host, safe="@+")) + SUFFIX


def host_of(name: str) -> str:
    """Return the host whose file has this name."""
    return unquote(name.removesuffix(SUFFIX))


def made(host: str, facts: Facts, version: str, secrets: Collection[str] = ()) -> Capture:
    """Make the capture of a host. `secrets`: values of the inventory that must not be in it, whatever they look
    like."""
    outputs: dict[str, Output] = {}
    count = 0
    for name, output in facts.outputs().items():
        body, hidden = masked(output.text, secrets)
        error, more = masked(output.error, secrets)
        count += hidden + more
        outputs[name] = Output(body, output.status, error)
    return Capture(
        gpuprov_capture=FORMAT, version=version, host=host, read_at=facts.read_at, masked=count, outputs=outputs
    )


def text(capture: Capture) -> str:
    """Return the file's text."""
    return format_document(capture, indent=1) + "\n"


def is_one(text: str) -> bool:
    """Return whether a text begins as a capture does."""
    return text.lstrip().startswith("{") and '"gpuprov_capture"' in text[:400]


def parse(text: str, path: str) -> Record:
    """Parse a capture. Raises Unreadable for other text, or another version of the format."""
    try:
        capture = safe_parse.parse_typed_json(text, Capture, largest=MEMBER)  # one byte of a host may be six here
    except Unreadable as error:
        if is_one(text):
            raise Unreadable(
                f"a damaged capture of gpuprov: {error}", "a whole one, copied or captured again"
            ) from error
        raise Unreadable(f"no capture of gpuprov: {error}") from error
    if capture.gpuprov_capture != FORMAT:
        raise Unreadable(
            f"a capture of form {capture.gpuprov_capture}, made by gpuprov {capture.version[:20]}",
            f"form {FORMAT}, as this gpuprov ({__version__}) captures it anew",
        )
    return Record(
        host=capture.host,
        path=path,
        kind="capture",
        outputs=capture.outputs,
        read_at=capture.read_at if 0 < capture.read_at < time.time() + 86400 else 0,
        text="\n".join(output.text + output.error for output in capture.outputs.values()),
    )
