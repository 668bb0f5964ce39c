"""`nvidia-smi -q -x` -> the text of `nvidia-smi -q`, so that the probes' own parsers read it.

The elements are those of nvsmi_device_v10 to v13 (drivers 430 to 590), as in the outputs that Telegraf keeps:
https://github.com/influxdata/telegraf/tree/master/plugins/inputs/nvidia_smi/testdata. An element that is not named here
keeps its own name, which no parser reads.
"""

import re
import xml.etree.ElementTree as xml
from collections.abc import Iterator

from gpuprov.core.safe_parse import Unreadable, is_whole
from gpuprov.facts.captures.smi_names import NAMES

ROOT = "nvidia_smi_log"
# Maximum number of elements in each other; nvidia-smi has seven.
DEPTH = 12
_HEAD = {
    "timestamp": "Timestamp",
    "driver_version": "Driver Version",
    "cuda_version": "CUDA Version",
    "attached_gpus": "Attached GPUs",
}
_ADDRESS = re.compile(r"(?:[0-9A-Fa-f]{4})?[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")
# Long lists that no parser reads; the memory of MIG devices would be taken for the GPU's.
_LEFT_OUT = frozenset({"supported_clocks", "accounted_processes", "mig_devices"})


_BEGIN = re.compile(rf"^(?:<\?xml[^>]*>\s*)?(?:<!DOCTYPE {ROOT}[^>\[]*>\s*)?<{ROOT}>", re.MULTILINE)


def is_one(text: str) -> bool:
    """Return whether the text is such a document, also below the command that printed it."""
    return _BEGIN.search(text[:1000]) is not None


def convert(text: str) -> str:
    """Convert the document. Raises Unreadable if it is not well-formed, as one that was cut off."""
    if re.search(r"<!(ENTITY|ELEMENT|ATTLIST)", text, re.IGNORECASE):
        raise Unreadable(
            "it declares entities or elements, which nvidia-smi does not", "the output of nvidia-smi -q -x"
        )
    begin = _BEGIN.search(text[:1000])
    try:
        root = xml.fromstring(text[begin.start() :] if begin else text)
    except xml.ParseError as error:
        raise Unreadable(f"it is not well-formed: {error}", "the whole output of nvidia-smi -q -x") from error
    rows = ["==============NVSMI LOG==============", ""]
    rows += [f"{name:<40} : {_get_value(root.find(tag))}" for tag, name in _HEAD.items() if root.find(tag) is not None]
    for gpu in root.iter("gpu"):
        address = gpu.get("id", "")
        if not _ADDRESS.fullmatch(address):
            raise Unreadable(f'a GPU has the id "{address[:40]}"', "a PCI address")
        rows += ["", f"GPU {address if len(address) == 16 else f'0000{address}'}"]
        for element in gpu:
            if element.tag == "processes":
                rows += _list_processes(element)
            elif element.tag not in _LEFT_OUT:
                rows += _list_rows(element, "gpu", 1)
        if gpu.find("processes") is None:
            rows.append(f"    {'Processes':<36} : N/A")
    return "\n".join(rows) + "\n"


def _list_rows(element: xml.Element, parent: str, depth: int) -> Iterator[str]:
    if depth > DEPTH:
        raise Unreadable(f"it has more than {DEPTH} elements in each other")
    name = _get_name(element.tag, parent)
    if not len(element):
        yield f"{' ' * 4 * depth}{name:<36} : {_get_value(element)}"
        return
    counted = element.find("retired_count")
    if counted is not None:  # of retired pages the text has the number alone
        yield f"{' ' * 4 * depth}{name:<36} : {_get_value(counted)}"
        return
    yield f"{' ' * 4 * depth}{name}"
    for child in element:
        yield from _list_rows(child, element.tag, depth + 1)


def _list_processes(element: xml.Element) -> Iterator[str]:
    """Yield the numbers of processes alone: users choose their names."""
    pids = [(pid.text or "").strip() for pid in element.iter("pid")]
    numbers = [pid for pid in pids if is_whole(pid)]
    if not numbers:
        yield f"    {'Processes':<36} : {'None' if element.find('process_info') is None else 'N/A'}"
        return
    yield "    Processes"
    yield from (f"        {'Process ID':<32} : {number}" for number in numbers)


def _get_name(tag: str, parent: str) -> str:
    """Return the name of an element in the text."""
    return NAMES.get((parent, tag), tag)


def _get_value(element: xml.Element | None) -> str:
    """Return an element's text in one line."""
    return " ".join((element.text or "").split())[:200] if element is not None else ""
