"""Where the pieces of a capture are on a host: which file one is, or which program prints it.

What people paste is often the output of a near relative of what a script asks (`systemctl status`, `ls -l`, `lsof`);
what it tells is then laid out as the script would find it. Nothing is added but blanks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tests.real.tree import Tree

Place = Callable[[Tree, str, str], None]
"""Takes the tree, the text of the piece, and its command line as about.yaml has it (empty: it is not told)."""


def at(path: str) -> Place:
    return lambda tree, text, _: void(tree.file(path, text))


def by(program: str, when: str = "*", status: int = 0) -> Place:
    return lambda tree, text, _: tree.prints(program, text, status, when)


def void(_: object) -> None:
    """A place has nothing to tell."""


def file_named(tree: Tree, text: str, command: str) -> None:
    """`cat PATH`: the file of that path."""
    tree.file(command.rsplit(maxsplit=1)[-1], text)


def modinfo(tree: Tree, text: str, _: str) -> None:
    """What modinfo says of one or more modules; the module's file is there, empty."""
    folder = tree.texts / "modinfo"
    folder.mkdir(exist_ok=True)
    for block in re.split(r"^(?=filename:)", text, flags=re.MULTILINE):
        found = re.match(r"filename:\s+(\S+)", block)
        if not found:
            continue
        path = found[1]
        kernel = re.search(r"^vermagic:\s+(\S+)", block, re.MULTILINE)
        release = re.search(r"/lib/modules/([^/]+)/", path)
        named = (release or kernel or [None, ""])[1] or ""
        name = path.rpartition("/")[2].partition(".ko")[0].replace("-", "_")
        shown = block.replace(path, f"{tree.root}{path}", 1) if path.startswith("/") else block
        (folder / f"{name}@{named}").write_text(shown)
        if path.startswith("/"):
            tree.file(path)
    tree.program("modinfo", _MODINFO.format(folder=folder, running=tree.kernel))


_MODINFO = r"""k={running}; f=; n=; given=
while [ $# -gt 0 ]; do
  case $1 in -k) k=$2; given=1; shift ;; -F) f=$2; shift ;; -n) f=filename ;; *) n=$1 ;; esac
  shift
done
case $n in */lib/modules/*) k=${{n#*/lib/modules/}}; k=${{k%%/*}} ;; esac
n=${{n##*/}}; n=$(echo "${{n%%.ko*}}" | tr - _)
b={folder}/$n@$k
[ -e "$b" ] || b={folder}/$n@
[ -n "$k" ] || b=$(ls {folder}/$n@* 2>/dev/null | head -n 1)
[ -e "$b" ] || {{ echo "modinfo: ERROR: Module $n not found." >&2; exit 1; }}
[ -n "$f" ] || exec cat "$b"
sed -n "s/^$f: *//p" "$b" """


def dkms_status(tree: Tree, text: str, _: str) -> None:
    """Each module that is installed for a kernel: its file, and its version for modinfo. DKMS built it with the
    kernel's headers."""
    told = ""
    pattern = r"^(nvidia[\w-]*)[/,] ?([\d.]+), ([^,\s]+), (x86_64|aarch64): installed"
    for name, version, kernel in (found[:3] for found in re.findall(pattern, text, re.MULTILINE)):
        module = "nvidia-current" if name == "nvidia-current" else "nvidia"
        folder = f"/lib/modules/{kernel}/updates/dkms"
        told += f"filename:       {folder}/{module}.ko\nversion:        {version}\nvermagic:       {kernel} SMP\n\n"
        tree.file(f"/lib/modules/{kernel}/build/Makefile")
    modinfo(tree, told, "")
    tree.prints("dkms", text, when="status*")


def kernels_of_packages(tree: Tree, text: str, _: str) -> None:
    """`dpkg -l` and `rpm -qa`: the images and the headers of kernels lie where their packages put them."""
    for kind, kernel in re.findall(
        r"^ii\s+linux-(image|headers)-(?:unsigned-)?(\d\S*-\S*[a-z]\S*)", text, re.MULTILINE
    ):
        tree.file(f"/boot/vmlinuz-{kernel}" if kind == "image" else f"/lib/modules/{kernel}/build/Makefile")
        tree.folder(f"/lib/modules/{kernel}")
    for kind, kernel in re.findall(r"^kernel(-core|-devel)?-(\d\S+\.(?:x86_64|aarch64))\s*$", text, re.MULTILINE):
        tree.folder(f"/lib/modules/{kernel}")
        if kind != "":
            tree.file(f"/boot/vmlinuz-{kernel}" if kind == "-core" else f"/lib/modules/{kernel}/build/Makefile")
        elif ".el7." in kernel:
            tree.file(f"/boot/vmlinuz-{kernel}")


def systemctl_show(tree: Tree, text: str, _: str) -> None:
    blocks = {}
    for block in re.split(r"\n\s*\n", text):
        if match := re.search(r"^Id=(.+)$", block, re.MULTILINE):
            blocks[match[1].strip()] = block.strip() + "\n"
    if not blocks:  # the manager's own properties
        (tree.texts / "manager").write_text(text)
    _systemctl(tree, blocks)


def systemctl_status(tree: Tree, text: str, _: str) -> None:
    """`Loaded:` and `Active:` are the unit's LoadState, UnitFileState and ActiveState; `Main PID:` its MainPID. Of
    WantedBy it says nothing."""
    blocks = {}
    for block in re.split(r"^(?=[●○×*] )", text, flags=re.MULTILINE):
        name = re.match(r"[●○×*] (\S+\.\w+)", block)
        loaded = re.search(r"Loaded: ([\w-]+)(?: \((?:Reason: )?[^;)]*(?:; ([\w-]+))?)?", block)
        active = re.search(r"Active: ([\w-]+)", block)
        if not (name and loaded and active):
            continue
        rows = {"Id": name[1], "LoadState": loaded[1], "ActiveState": active[1], "UnitFileState": loaded[2] or ""}
        if pid := re.search(r"Main PID: (\d+)(?! .*code=)", block):
            rows["MainPID"] = pid[1]
        if result := re.search(r"Active: \w+ \(?Result: ([\w-]+)|Active: failed \(Result: ([\w-]+)", block):
            rows["Result"] = result[1] or result[2]
        blocks[name[1]] = "".join(f"{key}={value}\n" for key, value in rows.items())
        if program := re.search(r"ExecStart=(/usr/bin/\S+)", block):
            tree.file(program[1]).chmod(0o755)
    _systemctl(tree, blocks)
    if log := re.findall(r"^\w{3} +\d+ [\d:.]+ \S+ [\w.-]+\[\d+\]: (.*)$", text, re.MULTILINE):
        tree.prints("journalctl", "".join(f"{line}\n" for line in log))


def _systemctl(tree: Tree, blocks: dict[str, str]) -> None:
    folder = tree.texts / "units"
    folder.mkdir(exist_ok=True)
    for name, block in blocks.items():
        (folder / name).write_text(block)
    tree.program("systemctl", _SYSTEMCTL.format(folder=folder, manager=tree.texts / "manager"))


_SYSTEMCTL = r"""v=$1; p=; u=; bare=; shift
while [ $# -gt 0 ]; do
  case $1 in -p) p="$p $2"; shift ;; -p*) p="$p ${{1#-p}}" ;; --value) bare=1 ;; -*) ;; *) u="$u $1" ;; esac
  shift
done
case $v in -q) exit 3 ;; esac
if [ "$v" = show ] && [ -z "$u" ]; then exec cat {manager}; fi
first=1
for x in $u; do
  case $x in *.*) ;; *) x=$x.service ;; esac
  b={folder}/$x; there=1; [ -e "$b" ] || {{ there=; b=/dev/null; }}
  case $v in
  is-active) sed -n 's/^ActiveState=//p' "$b" | grep . || echo inactive ;;
  is-enabled) sed -n 's/^UnitFileState=//p' "$b" ;;
  cat) exit 1 ;;
  show) [ -n "$first" ] || echo; first=
    for k in $p; do
      [ "$k" != WantedBy ] || grep -q '^WantedBy=' "$b" || continue
      r=$(sed -n "s/^$k=//p" "$b")
      [ -n "$there" ] || case $k in Id) r=$x ;; LoadState) r=not-found ;; ActiveState) r=inactive ;; MainPID) r=0 ;; esac
      [ -n "$bare" ] && echo "$r" || echo "$k=$r"
    done ;;
  esac
done"""

_LONG = re.compile(
    r"^([bcdlps-])([rwxsStT-]{9})[.+@]?\s+\d+\s+(\S+)\s+(\S+)\s+(?:(\d+),\s*)?(\d+)\s+(?:\w{3}\s+\d+\s+[\d:]+|"
    r"\d\S+(?:\s+[\d:.]+)?(?:\s+[+-]\d{4})?)\s+(.+)$",
    re.MULTILINE,
)


def ls_long(tree: Tree, text: str, command: str) -> None:
    """`ls -l`: files, links and device files, below the folder that is listed, where the names are not whole paths."""
    words = [word.rstrip("/") for word in command.split() if word.startswith("/")]
    folder = words[0] if len(words) == 1 and "*" not in words[0] else ""
    for line in re.sub(r"^ *\d+ (?=[bcdlps-][rwxsStT-]{9})", "", text, flags=re.MULTILINE).splitlines():
        if heading := re.fullmatch(r"(/\S+):", line.strip()):
            folder = heading[1]
        if not (found := _LONG.match(line.strip())):
            continue
        kind, bits, user, group, major, minor, name = found.groups()
        name, _, target = name.partition(" -> ")
        path = name if name.startswith("/") else f"{folder}/{name}"
        if name in (".", "..") or not path.startswith("/"):
            continue
        if kind == "c":
            mode = "".join(str(sum((bits[n + i] != "-") << (2 - i) for i in range(3))) for n in (0, 3, 6))
            tree.node(path, int(major or 0), int(minor), mode.lstrip("0") or "0", user, group)
        elif kind == "l":
            tree.link(path, target)
        elif kind == "d":
            tree.folder(path)
        else:
            tree.file(path)


def lsof(tree: Tree, text: str, _: str) -> None:
    """Processes with their open files: COMMAND PID ... FD TYPE ... NAME."""
    for line in text.splitlines():
        found = re.match(r"(\S+)\s+(\d+)(?:\s+\d+ \S+)?\s+\S+\s+(mem|\d+)\w*\s+(?:CHR|REG)\s+.*?(/dev/\S+)", line)
        if found and found[3] != "mem":
            _holds(tree, found[2], found[1], found[4])


def fuser(tree: Tree, text: str, _: str) -> None:
    """`fuser -v`: a file, and below it USER PID ACCESS COMMAND; a process that only has it mapped (m) holds no
    descriptor."""
    name = ""
    for line in text.splitlines():
        found = re.match(r"(?:(/dev/\S+):)?\s+(\S+)\s+(\d+)\s+([F.mcer]+)\s+(\S+)", line)
        if found:
            name = found[1] or name
            if "F" in found[4]:
                _holds(tree, found[3], found[5], name)


def _holds(tree: Tree, pid: str, command: str, path: str) -> None:
    tree.file(f"/proc/{pid}/comm", command[:15] + "\n")
    tree.file(f"/proc/{pid}/cgroup", "")
    folder = tree.folder(f"/proc/{pid}/fd")
    if path not in {str(one.readlink())[len(str(tree.root)) :] for one in folder.iterdir()}:
        tree.link(f"/proc/{pid}/fd/{len(list(folder.iterdir())) + 3}", path)


def df(tree: Tree, text: str, _: str) -> None:
    """`df` in blocks of 1 KiB: the row of the file system that a folder is on."""
    head, *rows = text.splitlines()
    told = {line.split()[-1]: line for line in rows if len(line.split()) == 6}
    for folder in ("/boot", "/var"):
        on = max((place for place in told if (folder + "/").startswith(place.rstrip("/") + "/")), key=len)
        tree.prints("df", f"{head}\n{told[on]}\n", when=f"'-Pk {folder}'")


def mokutil(option: str) -> Place:
    return lambda tree, text, _: tree.prints("mokutil", text, when=f"{option}*")


def secure_boot(tree: Tree, text: str, _: str) -> None:
    """The variable as `od` or `hexdump -C` shows it."""
    row = re.sub(r"^[0-9a-f]{7,8}", "", text.strip().splitlines()[0]).split("|")[0].split()
    base = 16 if "|" in text or "hexdump" in text else 10
    data = bytes(int(cell, base) for cell in row)
    tree.file("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", data)


def libraries(tree: Tree, text: str, _: str) -> None:
    """Paths of libraries with their versions: the linker's cache lists each by the name that programs ask for."""
    cache = ""
    for path in re.findall(r"(/\S+\.so\.\d[\d.]*\d)", text):
        tree.file(path)
        name = re.sub(r"(\.so)\..*", r"\1.1", path)
        tree.link(name, Path(path).name)
        cache += f"\t{Path(name).name} (libc6,x86-64) => {tree.root}{name}\n"
    tree.prints("ldconfig", cache)


def cpupower(tree: Tree, text: str, _: str) -> None:
    """`cpupower frequency-info` of one CPU."""
    driver = re.search(r"^\s*driver: (\S+)", text, re.MULTILINE)
    available = re.search(r"available cpufreq governors: ?(.*)", text)
    governor = re.search(r'[Tt]he governor "(\w+)"', text)
    if not (driver and governor):
        return  # no driver: sysfs has no policy
    folder = "/sys/devices/system/cpu/cpufreq/policy0"
    for name, value in (
        ("scaling_driver", driver[1]),
        ("scaling_governor", governor[1]),
        ("scaling_available_governors", available[1].replace(",", "") if available else ""),
    ):
        tree.file(f"{folder}/{name}", value + "\n")


def meminfo(tree: Tree, text: str, _: str) -> None:
    """HugePages_Total counts pages of the default size, Hugepagesize."""
    values = dict(re.findall(r"^(\w+):\s+(\d+)", text, re.MULTILINE))
    tree.file("/proc/meminfo", text)
    if total := values.get("HugePages_Total"):
        tree.file(f"/sys/kernel/mm/hugepages/hugepages-{values['Hugepagesize']}kB/nr_hugepages", total + "\n")


def addresses(tree: Tree, text: str, _: str) -> None:
    """`ip addr`: what its form of one line per IPv4 address has of it."""
    rows, number, name = [], "", ""
    for line in text.splitlines():
        if match := re.match(r"(\d+): ([^:@\s]+)(?:@\S+)?: <", line):
            number, name = match[1], match[2]
        elif (match := re.match(r"\s+inet (\S+)(.*scope global.*)", line)) and name:
            rows.append(
                f"{number}: {name}    inet {match[1]}{match[2]}\\       valid_lft forever preferred_lft forever\n"
            )
    tree.prints("ip", "".join(rows), when="'-4 -o addr show scope global'")


def grubby(tree: Tree, text: str, _: str) -> None:
    """`grubby --info=ALL` shows the files of the Boot Loader Specification with their variables filled in."""
    tree.file("/usr/sbin/grubby").chmod(0o755)
    for number, block in enumerate(re.split(r"^(?=index=)", text, flags=re.MULTILINE)):
        values = dict(re.findall(r'^(\w+)="?(.*?)"?$', block, re.MULTILINE))
        if "kernel" in values:
            options = " ".join(
                part for part in (f"root={values['root']}" if "root" in values else "", values.get("args", "")) if part
            )
            entry = f"title {values.get('title', '')}\nlinux {values['kernel']}\noptions {options}\n"
            tree.file(f"/boot/loader/entries/{number}.conf", entry)


def ls_libraries(tree: Tree, text: str, command: str) -> None:
    """`ls -l` of a folder of libraries that the linker's cache lists."""
    ls_long(tree, text, command)
    folder = next(word for word in command.split() if word.startswith("/")).rstrip("/")
    names = re.findall(r"(lib[\w-]+\.so\.1) -> ", text)
    tree.prints("ldconfig", "".join(f"\t{name} (libc6,x86-64) => {tree.root}{folder}/{name}\n" for name in names))


def hostnamectl(tree: Tree, text: str, _: str) -> None:
    """systemd's own words for the machine; a line that is not there: no hypervisor."""
    values = dict(re.findall(r"^\s*([\w ]+): (.*?)\s*$", text, re.MULTILINE))
    tree.prints("systemd-detect-virt", values.get("Virtualization", "none") + "\n", when="--vm*")
    tree.file("/sys/class/dmi/id/sys_vendor", values.get("Hardware Vendor", "") + "\n")
    tree.file("/sys/class/dmi/id/product_name", values.get("Hardware Model", "") + "\n")


def detect_virt(tree: Tree, text: str, _: str) -> None:
    tree.prints("systemd-detect-virt", text, status=int(text.strip() == "none"), when="--container*")
