"""The kernel command line of every boot entry, on hosts that have grubby or (SUSE) make grub.cfg from GRUB's defaults. usage: command_line.py check|write WORD...

check prints what differs, a line each; write puts it right: the entries and grub's environment through grubby, and what entries
of later kernels are made from (/etc/default/grub, and /etc/kernel/cmdline where it is). Words that an earlier run wrote and
that are not asked for any more are taken out; RECORD remembers them.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys

BOOT = "/boot"
DEFAULTS = "/etc/default/grub"
INHERITED = "/etc/kernel/cmdline"
RECORD = "/var/lib/gpuprov/command_line"
# A value in quotes, or a word without, and nothing behind it but a comment: what else a shell takes cannot be written anew.
SETTING = re.compile(
    r"""^GRUB_CMDLINE_LINUX=("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s"'#;\\]*)(?=[ \t]*(?:[ \t]#.*)?$)""", re.MULTILINE
)
GIVEN = re.compile(r"^[ \t]*(?:export[ \t]+)?GRUB_CMDLINE_LINUX=.*", re.MULTILINE)


def read(path):
    """The text of a file; nothing if there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def write(path, text):
    """The file is whole at any moment."""
    scratch = path + ".gpuprov"
    with open(scratch, "w", encoding="utf-8") as file:
        file.write(text)
    if os.path.exists(path):
        shutil.copymode(path, scratch)
    os.replace(scratch, path)


def pairs(words):
    """Values by key, the last one winning as in the kernel."""
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def expanded(options, environment):
    """Words of an entry; EL 8 keeps them in grub's environment, as $kernelopts."""
    filled = (environment.get(word[1:], "") if word.startswith("$") else word for word in options.split())
    return " ".join(filled).split()


def entries():
    """The words of each boot entry, by what a message calls it."""
    fallback = re.search(r'set kernelopts="(.*)"', read(BOOT + "/grub2/grub.cfg"))
    environment = {"kernelopts": fallback.group(1)} if fallback else {}
    environment.update(re.findall(r"^(\w+)=(.*)$", read(BOOT + "/grub2/grubenv"), re.MULTILINE))
    found = {}
    for path in sorted(glob.glob(BOOT + "/loader/entries/*.conf")):
        options = " ".join(re.findall(r"^options[ \t]+(.*)$", read(path), re.MULTILINE))
        found[path] = expanded(options, environment)
    if not found:
        for path in [BOOT + "/grub2/grub.cfg"] + glob.glob(BOOT + "/efi/EFI/*/grub.cfg"):
            for kernel, options in re.findall(r"^\s*linux(?:efi|16)?\s+(\S+)[ \t]*(.*)$", read(path), re.MULTILINE):
                found[path + " " + kernel] = options.split()
    return found


def setting(text):
    """(start, end, quotes, words) of the line of GRUB's defaults that counts, the last one."""
    found, given = list(SETTING.finditer(text)), GIVEN.findall(text)
    if len(found) != len(given):
        raise OSError('%s has %s; write it as GRUB_CMDLINE_LINUX="...", on one line' % (DEFAULTS, given[-1].strip()))
    if not found:
        return 0, 0, "", []
    value = found[-1].group(1)
    quote = value[:1] if value[:1] in ('"', "'") else ""
    return found[-1].start(), found[-1].end(), quote, (value[1:-1] if quote else value).split()


def inherited():
    """The words that entries of later kernels will have, by file."""
    found = {DEFAULTS: setting(read(DEFAULTS))[3]} if os.path.exists(DEFAULTS) else {}
    if read(INHERITED).strip():
        found[INHERITED] = read(INHERITED).split()
    return found


def wrong(words, wanted, unwanted):
    """Whether words lack one that is wanted, or have one that is not."""
    have = pairs(words)
    return any(have.get(key) != value for key, value in pairs(wanted).items()) or any(key in have for key in unwanted)


def settled(words, wanted, unwanted):
    """The words with those that are wanted, each key once, and without those that are not."""
    gone = set(pairs(wanted)) | set(unwanted)
    return [word for word in words if word.partition("=")[0] not in gone] + wanted


def inherit(path, words):
    """Write what later kernels get."""
    if path == INHERITED:
        write(path, " ".join(words) + "\n")
        return
    text = read(path)
    if not GIVEN.search(text):
        text = text.rstrip("\n") + "\nGRUB_CMDLINE_LINUX=\n"
    start, end, quote, _ = setting(text)
    value = " ".join(words).join([quote or '"'] * 2)
    write(path, text[:start] + "GRUB_CMDLINE_LINUX=" + value + text[end:])


def grubby(wanted, unwanted):
    """Change every entry. grubby takes an option and its value as two words in all its versions."""
    command = ["grubby", "--update-kernel", "ALL"]
    command += ["--remove-args", " ".join(unwanted)] if unwanted else []
    command += ["--args", " ".join(wanted)] if wanted else []
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False
    )
    return " ".join(done.stdout.split())


def remade():
    """Make grub.cfg anew from GRUB's defaults."""
    command = ["grub2-mkconfig", "-o", BOOT + "/grub2/grub.cfg"]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False
    )
    return " ".join(done.stdout.split())


def main(action, wanted):
    earlier = read(RECORD).split()
    if not wanted and not earlier:
        return ""
    unwanted = sorted(set(earlier) - set(pairs(wanted)))
    differing = [name for name, words in entries().items() if wrong(words, wanted, unwanted)]
    late = [name for name, words in inherited().items() if wrong(words, wanted, unwanted)]
    unsaid = sorted(pairs(wanted)) != sorted(earlier)
    if action == "check":
        print("\n".join(differing + late + ([RECORD] if unsaid and not differing + late else [])))
        return ""
    os.makedirs(os.path.dirname(RECORD), exist_ok=True)
    write(RECORD, "\n".join(sorted(set(earlier) | set(pairs(wanted)))) + "\n")
    by_grubby = shutil.which("grubby") is not None
    said = grubby(wanted, unwanted) if differing and by_grubby else ""
    for name, words in inherited().items():
        if name in late:
            inherit(name, settled(words, wanted, unwanted))
    if not by_grubby:
        said = remade()
    left = [name for name, words in entries().items() if wrong(words, wanted, unwanted)]
    if left:
        return "%s left %s as it was%s" % ("grubby" if by_grubby else "grub2-mkconfig", ", ".join(left), ": " + said if said else "")
    if wanted:
        write(RECORD, "\n".join(sorted(pairs(wanted))) + "\n")
    else:
        os.remove(RECORD)
    return ""


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], sys.argv[2:]) or 0)
    except OSError as error:
        sys.exit("the kernel command line cannot be changed: %s" % error)
