"""Login user and Python of a host, and whether Ansible can work there: one script, one parser, one set of rules.

`verify`, `plan`, `apply` and the action gpuprov_reach all use this code. Each line of the answer begins with a marker
that the caller chose; all other lines come from the login itself (banners, warnings, traces).
"""

import re
import shlex
from typing import NamedTuple

# Folders always on the PATH of a script or of a role; sudo may omit half of them (secure_path).
FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MUST_WRITE = ("/etc", "/var", "/run", "/usr", "/tmp")
OWN = "/usr/bin/python3"
# Patterns of further Pythons, in sh syntax, and EL's platform Python.
BESIDE, PLATFORM = "/usr/bin/python3.? /usr/bin/python3.?? /usr/local/bin/python3.??", "/usr/libexec/platform-python"
# Seconds that a Python may take to start.
STARTS = 20
# https://docs.ansible.com/ansible/latest/reference_appendices/release_and_maintenance.html: Python on managed nodes.
OLDEST = {(2, 20): (3, 9), (2, 0): (3, 8)}

_SAY = r"""v= PATH="$PATH:@FOLDERS@" LC_ALL=C
export PATH LC_ALL
say() { printf '%s %s\n' '@MARKER@' "$*"; }
"""
_WHO = r"""say system "$(uname -s)"
say user "$(id -u)"
say path "$PATH"
say umask "$(umask)"
for d in @MUST_WRITE@; do [ -w "$d" ] || say readonly "$d"; done
i=; read -r i 2>/dev/null </proc/1/comm; [ -d /run/systemd/system ] && i=systemd; say init "$i"
"""
_RELEASE = """sed 's/^/@MARKER@ release /' /etc/os-release 2>/dev/null; echo
"""
# The distribution's own Python comes first: its apt or dnf bindings are there. Others are started only if it is not
# enough.
_START = r"""limit=$(command -v timeout >/dev/null && timeout 5 true && echo 'timeout @STARTS@')
c='import json, sys, zipfile; print("@MARKER@ %d.%d" % sys.version_info[:2])'
start() {
  v=$($limit "$1" -c "$c" 2>&1 </dev/null); s=$?
  case $v in *'@MARKER@ '*) say python "${v##*@MARKER@ }" "$1"; return;; esac
  say failed "$1: $(printf '%s\n' "$v" | tail -n 20 | tr '\n' '\t') (exit status $s)"
}
"""
_NAMED = "say named @NAMED@\nstart @NAMED@\n"
_FOUND = r"""case $v in *'@MARKER@ '3.9|*'@MARKER@ '3.[1-9][0-9]) exit 0;; esac
start /usr/bin/python3
case $v in *'@MARKER@ '3.9|*'@MARKER@ '3.[1-9][0-9]) exit 0;; esac
tried=' /usr/bin/python3 '
for p in $(ls @BESIDE@ 2>/dev/null) @PLATFORM@ \
  $(IFS=:; for d in $PATH; do echo "$d/python3"; done); do
  case $tried in *" $p "*) continue;; esac
  tried="$tried$p "
  [ ! -x "$p" ] || start "$p"
done
exit 0
"""
_SAFE = re.compile(r"/[\w./+-]+")


NEWER = "dnf install python3.12 there (EL 8 has it in AppStream), or another newer Python"


class Python(NamedTuple):
    """An interpreter that starts: its version, and its path as a single word for Ansible."""

    version: tuple[int, int]
    path: str


class Heard(NamedTuple):
    """A host's answer."""

    system: str = ""
    user: str = ""
    path: str = ""
    umask: str = ""
    readonly: tuple[str, ...] = ()
    # The interpreter that the inventory names.
    named: str = ""
    pythons: tuple[Python, ...] = ()
    # Those that do not start, each with its output.
    failed: tuple[str, ...] = ()
    # /etc/os-release, if queried.
    release: str = ""
    # `systemd` if it runs the host, as sd_booted(3) determines, else the name of the first process; empty if not
    # queried.
    init: str = ""


class Refusal(NamedTuple):
    """The obstacle for Ansible on a host, the requirement, and the fix."""

    problem: str
    expected: str
    fix: str


def script(marker: str, named: str = "") -> str:
    """Return POSIX sh that answers both, and of which distribution the host is, in lines with `marker`."""
    return _fill_template(_SAY + _WHO + _RELEASE + _list_pythons(named), marker, named)


def who(marker: str) -> str:
    """Return POSIX sh that prints the login user."""
    return _fill_template(_SAY + _WHO, marker)


def pythons(marker: str, named: str = "") -> str:
    """Return POSIX sh that starts Pythons: first the one that the inventory names, if any, then others until a suitable
    one."""
    return _fill_template(_SAY + _list_pythons(named), marker, named)


def _list_pythons(named: str) -> str:
    return _START + (_NAMED if named else "") + _FOUND


def _fill_template(text: str, marker: str, named: str = "") -> str:
    words = {"FOLDERS": FOLDERS, "STARTS": str(STARTS), "MUST_WRITE": " ".join(MUST_WRITE), "MARKER": marker}
    words |= {"BESIDE": BESIDE, "PLATFORM": PLATFORM}
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return text.replace("@NAMED@", shlex.quote(named))


def heard(text: str, marker: str) -> Heard:
    """Parse the script's output, ignoring other output around it, with a terminal's line ends too."""
    sections: dict[str, list[str]] = {}
    for key, value in re.findall(rf"{re.escape(marker)} ([a-z]+) ([^\r\n]*)", text):
        sections.setdefault(key, []).append(value.strip())
    pythons = [
        match for line in sections.get("python", []) if (match := re.fullmatch(r"(\d{1,3})\.(\d{1,3}) (\S.*)", line))
    ]
    first = {key: values[0] for key, values in sections.items()}
    return Heard(
        system=first.get("system", ""),
        user=first.get("user", ""),
        path=":".join(dict.fromkeys(part for part in first.get("path", "").split(":") if part.startswith("/"))),
        umask=first.get("umask", ""),
        readonly=tuple(sections.get("readonly", [])),
        named=first.get("named", ""),
        pythons=tuple(Python((int(match[1]), int(match[2])), match[3]) for match in pythons),
        failed=tuple(map(_format_complaint, sections.get("failed", []))),
        release="".join(f"{line}\n" for line in sections.get("release", [])),
        init=first.get("init", ""),
    )


def _format_complaint(line: str) -> str:
    """Return `PATH: output`: the last line of a traceback, else the first line."""
    where, _, rest = line.partition(": ")
    rest, _, status = rest.rpartition(" (")
    lines = [part.strip() for part in rest.split("\t") if part.strip() and "warning: setlocale" not in part]
    shown = "" if not lines else lines[-1] if any("Traceback" in part for part in lines) else lines[0]
    return f"{where}: {shown[:200]} ({status}" if shown else f"{where} ({status}"


def of_bundle(place: str) -> dict[str, str]:
    """Return the environment in which apt, dnf and zypper see only the packages in this folder of the host; empty for
    no folder.

    dnf has no variable for the path of its configuration: gpuprov's own modules read GPUPROV_BUNDLE, programs use
    `bin/dnf`, which comes first in `PATH` (see `facts.collect.script.with_environment`).
    """
    if not place:
        return {}
    return {"GPUPROV_BUNDLE": place, "APT_CONFIG": f"{place}/apt.conf", "ZYPP_CONF": f"{place}/zypp.conf"}


def path_of_bundle(place: str, path: str) -> str:
    """Return PATH with this folder's own programs first."""
    return f"{place}/bin:{path}" if place else path


def oldest(ansible: str) -> tuple[int, int]:
    """Return the oldest Python that this version of ansible-core supports on a host."""
    version = tuple(int(part) for part in re.findall(r"\d+", ansible)[:2])
    return next(python for since, python in OLDEST.items() if version >= since)


def chosen(answer: Heard, ansible: str) -> str:
    """Return the interpreter for Ansible, which starts and is new enough: only the one that the inventory names, if
    any; else the distribution's own, else the newest. Empty if there is none."""
    good = [python for python in answer.pythons if python.version >= oldest(ansible)]
    if answer.named:
        return answer.named if answer.named in (python.path for python in good) else ""
    good = [python for python in good if _SAFE.fullmatch(python.path)]
    own = [python.path for python in good if python.path == OWN]
    return own[0] if own else max(good).path if good else ""


def not_root(answer: Heard) -> Refusal | None:
    """Return a refusal unless the host is accessed as root."""
    if answer.user == "0":
        return None
    return Refusal(f"user id {answer.user or 'unknown'}", "root", "set ansible_become: true, or ansible_user: root")


def not_writable(answer: Heard) -> Refusal | None:
    """Return a refusal unless root can write where gpuprov and packages write. Ignores other users, who never can."""
    if not answer.readonly or answer.user != "0":
        return None
    fix = (
        "see why (dmesg, findmnt): a file system that had an error is mounted read-only; fix it, then mount -o "
        "remount,rw"
    )
    return Refusal(f"read-only: {', '.join(answer.readonly)}", f"{', '.join(MUST_WRITE)} can be written", fix)


def no_python(answer: Heard, ansible: str) -> Refusal | None:
    """Return a refusal unless the host has a Python for Ansible that starts and is new enough."""
    if chosen(answer, ansible):
        return None
    named = answer.named
    major, minor = oldest(ansible)
    required = f"Python {major}.{minor} or newer, which Ansible {ansible} needs on a host"
    other = chosen(answer._replace(named=""), ansible)
    if named:
        way = f"ansible_python_interpreter: {other}" if other else "correct or remove ansible_python_interpreter"
        old = next((python for python in answer.pythons if python.path == named), None)
        if old:
            return Refusal(f"{named} is Python {_format_dotted(old.version)}", required, way if other else NEWER)
        why = next((line for line in answer.failed if line.startswith(named)), named)
        return Refusal(f"does not start: {why}", required, way)
    if answer.pythons:
        versions = ", ".join(f"{python.path} is Python {_format_dotted(python.version)}" for python in answer.pythons)
        return Refusal(versions, required, NEWER)
    existing = [line for line in answer.failed if "not found" not in line and "No such file" not in line]
    if existing:
        return Refusal(f"no Python starts: {existing[0]}", required, "fix it: reinstall python3 on the host")
    return Refusal("no Python", required, "install python3 on the host")


def _format_dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def refusal(answer: Heard, ansible: str, printed: str = "", cut: str = "") -> str:
    """Return why Ansible cannot work there, with the fix, in one line; empty if it can. printed: the whole answer,
    noise included; cut: how the connection was cut, if it was (`core.ended`)."""
    if not answer.system:
        if cut:
            return (
                f"was asked who it is, and {cut}. Fix: apply again; if it comes again, see why there (journalctl "
                "-u ssh)"
            )
        last = " ".join("".join(c if c.isprintable() else " " for c in printed.strip().rpartition("\n")[2]).split())
        quoted = f"; it printed: {last[-200:]}" if last else ""
        return f"did not run the first command{quoted}. Fix: see how it answers by hand: ssh to it, then sudo sh"
    if answer.system != "Linux":
        return f"does not run Linux but {answer.system}; gpuprov manages Linux hosts only: take it out of the inventory"
    complaint = not_root(answer) or not_writable(answer) or no_python(answer, ansible)
    return (
        f"cannot be worked on: {complaint.problem}; wanted: {complaint.expected}. Fix: {complaint.fix}"
        if complaint
        else ""
    )
