"""Outputs of commands that people save as plain files: which command it is, by what the text says, never by its
name."""

import re

from gpuprov.core.safe_parse import Unreadable
from gpuprov.facts.captures import logs, smi_xml

SMI, NVLINK_ERRORS, NVLINK_STATUS, IBSTAT, LSPCI, NAMELESS = (
    "nvidia-smi -q",
    "nvidia-smi nvlink -e",
    "nvidia-smi nvlink -s",
    "ibstat",
    "lspci -nn",
    "lspci -vv",
)
LOG = "dmesg"
# The outputs that are read, beside logs of the kernel.
COMMANDS = (SMI, "nvidia-smi -q -x", NVLINK_ERRORS, NVLINK_STATUS, IBSTAT, LSPCI, NAMELESS)
# The first line of nvidia-smi -q.
SMI_LOG = "==NVSMI LOG=="
_HEAD = 4000
_GPU = r"^GPU \d{1,3}: .*\n(?:\s*\n)*\s+"
_LINK = _GPU + r"Link \d{1,3}: "
_INACTIVE = "NVML: Unable to retrieve Nvlink information as all links are inActive"
_ADDRESS, _ID = r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.\d", "[0-9a-f]{4}"
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (NVLINK_ERRORS, re.compile(rf"{_LINK}(?:Tx packets|[\w ]+ ?(?:Errors|BER|events)[\w ]*): ", re.MULTILINE)),
    (NVLINK_STATUS, re.compile(rf"{_LINK}(?:[0-9.]+ [GM]B/s|<?in[aA]ctive)|{_GPU}{_INACTIVE}", re.MULTILINE)),
    (IBSTAT, re.compile(r"^\s*CA '[\w.-]{1,60}'\s*\n\s+CA type:", re.MULTILINE)),
    (LSPCI, re.compile(rf"^{_ADDRESS} .*\[{_ID}\]: .*\[{_ID}:{_ID}\]", re.MULTILINE)),
)
# lspci without -nn: names alone, which are what the machine's own list says.
# 61:00.0 3D controller: NVIDIA Corporation Device 2331 (rev a1)
_NAMELESS = re.compile(rf"\A\s*{_ADDRESS} [A-Z0-9][\w/ -]{{2,60}}: ")
# What names are enough for: links of PCIe, and functions that do not answer.
_WITH_LINKS = re.compile(r"^\s+LnkSta:|\(rev ff\)|!!! Unknown header type", re.MULTILINE)


def identify(text: str) -> tuple[str, str]:
    """Return the command whose output a text is, and the text in the form that is read; two empty texts for another
    one. Raises Unreadable for one that is known, and says too little."""
    if smi_xml.is_one(text):
        return SMI, smi_xml.convert(text)
    if SMI_LOG in text[:2000]:
        return SMI, text
    head = text[:_HEAD]
    for command, pattern in _KINDS:
        if pattern.search(head):
            return command, text
    if _NAMELESS.match(text):
        if _WITH_LINKS.search(text):
            return NAMELESS, text
        raise Unreadable("it is lspci without the ids of devices", "lspci -nnk or lspci -nnvv")
    return (LOG, text) if logs.is_log(text) else ("", "")
