"""The kernel command line of every boot entry, on hosts that have grubby, or (SUSE) make grub.cfg from GRUB's defaults.

`check` lists the differences; `write` fixes them: the entries and grub's environment through grubby or grub2-mkconfig,
and the templates for entries of later kernels (/etc/default/grub, and /etc/kernel/cmdline if it exists). Words that an
earlier run wrote and that are no longer wanted are removed; RECORD lists them.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence

BOOT = "/boot"
DEFAULTS = "/etc/default/grub"
INHERITED = "/etc/kernel/cmdline"
RECORD = "/var/lib/gpuprov/command_line"
# A value in quotes, or a word without, and nothing behind it but a comment: what else a shell takes cannot be written
# anew.
SETTING = re.compile(
    r"""^GRUB_CMDLINE_LINUX=("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s"'#;\\]*)(?=[ \t]*(?:[ \t]#.*)?$)""", re.MULTILINE
)
GIVEN = re.compile(r"^[ \t]*(?:export[ \t]+)?GRUB_CMDLINE_LINUX=.*", re.MULTILINE)


def read(path: str) -> str:
    """Return the text of a file; "" if there is none."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def replace(path: str, text: str) -> None:
    """Replace a file, which is complete at any moment."""
    scratch = path + ".gpuprov"
    with open(scratch, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    if os.path.exists(path):
        shutil.copymode(path, scratch)
    os.replace(scratch, path)


def pairs(words: Iterable[str]) -> dict[str, str]:
    """Return values by key, the last one winning as in the kernel."""
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def expanded(options: str, environment: Mapping[str, str]) -> list[str]:
    """Return the words of an entry; EL 8 keeps them in grub's environment, as $kernelopts."""
    filled = (environment.get(word[1:], "") if word.startswith("$") else word for word in options.split())
    return " ".join(filled).split()


def entries() -> dict[str, list[str]]:
    """Return the words of each boot entry, by the entry's name in messages."""
    # EL 8: grub.cfg has the words that count where grubenv lacks them:
    #     set kernelopts="root=/dev/rl ro iommu=on quiet"
    # grubenv: kernelopts=root=/dev/rl ro iommu=on quiet
    fallback = re.search(r'set kernelopts="(.*)"', read(BOOT + "/grub2/grub.cfg"))
    environment = {"kernelopts": fallback.group(1)} if fallback else {}
    environment.update(re.findall(r"^(\w+)=(.*)$", read(BOOT + "/grub2/grubenv"), re.MULTILINE))
    command_lines = {}
    for path in sorted(glob.glob(BOOT + "/loader/entries/*.conf")):
        options = " ".join(re.findall(r"^options[ \t]+(.*)$", read(path), re.MULTILINE))
        command_lines[path] = expanded(options, environment)
    if not command_lines:
        for path in [BOOT + "/grub2/grub.cfg"] + glob.glob(BOOT + "/efi/EFI/*/grub.cfg"):
            for kernel, options in re.findall(r"^\s*linux(?:efi|16)?\s+(\S+)[ \t]*(.*)$", read(path), re.MULTILINE):
                command_lines[path + " " + kernel] = options.split()
    return command_lines


def setting(text: str) -> tuple[int, int, str, list[str]]:
    """Return (start, end, quotes, words) of the effective line of GRUB's defaults, the last one."""
    matches, given = list(SETTING.finditer(text)), GIVEN.findall(text)
    if len(matches) != len(given):
        raise OSError(f'{DEFAULTS} has {given[-1].strip()}; write it as GRUB_CMDLINE_LINUX="...", on one line')
    if not matches:
        return 0, 0, "", []
    value = matches[-1].group(1)
    quote = value[:1] if value[:1] in ('"', "'") else ""
    return matches[-1].start(), matches[-1].end(), quote, (value[1:-1] if quote else value).split()


def inherited() -> dict[str, list[str]]:
    """Return the words that entries of later kernels will have, by file."""
    command_lines = {DEFAULTS: setting(read(DEFAULTS))[3]} if os.path.exists(DEFAULTS) else {}
    if read(INHERITED).strip():
        command_lines[INHERITED] = read(INHERITED).split()
    return command_lines


def wrong(words: Sequence[str], desired: Sequence[str], unwanted: Sequence[str]) -> bool:
    """Return whether words lack a wanted one, or include an unwanted one."""
    have = pairs(words)
    return any(have.get(key) != value for key, value in pairs(desired).items()) or any(key in have for key in unwanted)


def settled(words: Sequence[str], desired: Sequence[str], unwanted: Sequence[str]) -> list[str]:
    """Return the words with the wanted ones, each key once, and without the unwanted ones."""
    gone = set(pairs(desired)) | set(unwanted)
    return [word for word in words if word.partition("=")[0] not in gone] + list(desired)


def inherit(path: str, words: Sequence[str]) -> None:
    """Write the words for later kernels."""
    if path == INHERITED:
        replace(path, " ".join(words) + "\n")
        return
    text = read(path)
    if not GIVEN.search(text):
        text = text.rstrip("\n") + "\nGRUB_CMDLINE_LINUX=\n"
    start, end, quote, _ = setting(text)
    value = " ".join(words).join([quote or '"'] * 2)
    replace(path, text[:start] + "GRUB_CMDLINE_LINUX=" + value + text[end:])


def grubby(desired: Sequence[str], unwanted: Sequence[str]) -> str:
    """Change every entry. grubby takes an option and its value as two words in all its versions."""
    command = ["grubby", "--update-kernel", "ALL"]
    command += ["--remove-args", " ".join(unwanted)] if unwanted else []
    command += ["--args", " ".join(desired)] if desired else []
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", check=False
    )
    return " ".join(done.stdout.split())


def remade() -> str:
    """Regenerate grub.cfg from GRUB's defaults."""
    command = ["grub2-mkconfig", "-o", BOOT + "/grub2/grub.cfg"]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", check=False
    )
    return " ".join(done.stdout.split())


def check(desired: Sequence[str]) -> list[str]:
    """List the differences. Raises OSError for a line of the site that cannot be rewritten."""
    earlier = read(RECORD).split()
    if not desired and not earlier:
        return []
    unwanted = _list_unwanted(earlier, desired)
    differing = [name for name, words in {**entries(), **inherited()}.items() if wrong(words, desired, unwanted)]
    return differing or ([RECORD] if sorted(pairs(desired)) != sorted(earlier) else [])


def write(desired: Sequence[str]) -> str:
    """Fix the differences that `check` lists; return what could not be fixed, or "". Raises OSError as `check` does."""
    earlier = read(RECORD).split()
    if not desired and not earlier:
        return ""
    unwanted = _list_unwanted(earlier, desired)
    differing = [name for name, words in entries().items() if wrong(words, desired, unwanted)]
    late = [name for name, words in inherited().items() if wrong(words, desired, unwanted)]
    os.makedirs(os.path.dirname(RECORD), exist_ok=True)
    replace(RECORD, "\n".join(sorted(set(earlier) | set(pairs(desired)))) + "\n")
    by_grubby = shutil.which("grubby") is not None
    error = grubby(desired, unwanted) if differing and by_grubby else ""
    for name, words in inherited().items():
        if name in late:
            inherit(name, settled(words, desired, unwanted))
    if not by_grubby:
        error = remade()
    missing = [name for name, words in entries().items() if wrong(words, desired, unwanted)]
    if missing:
        by = "grubby" if by_grubby else "grub2-mkconfig"
        return f"{by} left {', '.join(missing)} as it was" + (f": {error}" if error else "")
    if desired:
        replace(RECORD, "\n".join(sorted(pairs(desired))) + "\n")
    else:
        os.remove(RECORD)
    return ""


def _list_unwanted(earlier: Sequence[str], desired: Sequence[str]) -> list[str]:
    return sorted(set(earlier) - set(pairs(desired)))
