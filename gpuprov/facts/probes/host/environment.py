"""Variables that are set for every login, service or program of a host and decide what CUDA and NCCL programs find."""

import re
import shlex

import msgspec

from gpuprov.facts.probes.base import Output, Probe


class Variable(msgspec.Struct, frozen=True):
    """A variable, and the file that sets it."""

    file: str
    name: str
    value: str


class Environment(msgspec.Struct, frozen=True):
    """All of them. `libraries`: by folder of an LD_LIBRARY_PATH the driver's libraries in it, as files; `missing`: files
    of an LD_PRELOAD that are not there."""

    variables: tuple[Variable, ...] = ()
    libraries: dict[str, tuple[str, ...]] = {}
    missing: frozenset[str] = frozenset()


def parse(output: Output) -> Environment:
    rows = output.rows()
    variables = [
        Variable(file, name, value)
        for kind, read in (("shell", _read_shell), ("plain", _read_plain), ("pam", _read_pam), ("unit", _read_unit))
        for file, _, line in (row.partition("|") for row in rows.get(kind, ()))
        for name, value in read(line)
    ]
    libraries: dict[str, tuple[str, ...]] = {}
    for folder, _, name in (row.partition("|") for row in rows.get("library", ())):
        libraries[folder] = (*libraries.get(folder, ()), name)
    return Environment(tuple(dict.fromkeys(variables)), libraries, frozenset(rows.get("missing", ())))


NAMED = re.compile(r"(?:CUDA_[A-Z_]+|NVIDIA_[A-Z_]+|NCCL_[A-Z0-9_]+|LD_PRELOAD|LD_LIBRARY_PATH)")


def _pairs(text: str) -> list[tuple[str, str]]:
    try:
        words = shlex.split(text, comments=True)
    except ValueError:  # a quote that another line ends
        words = text.replace('"', " ").replace("'", " ").split()
    pairs = (word.rstrip(";").partition("=") for word in words)
    return [(name, value) for name, equals, value in pairs if equals and NAMED.fullmatch(name)]


def _read_shell(line: str) -> list[tuple[str, str]]:
    """Read an assignment at the beginning of a line: one that is indented, or behind a test, may not be made."""
    found = re.match(r"(?:export|declare -x|typeset -x)[ \t]+(.*)|(?=[A-Z_]+=)(.*)", line)
    return _pairs((found[1] or found[2] or "").replace("; export", "")) if found else []


def _read_plain(line: str) -> list[tuple[str, str]]:
    name, equals, value = line.strip().removeprefix("export ").partition("=")
    return [(name.strip(), value.strip().strip("\"'"))] if equals and NAMED.fullmatch(name.strip()) else []


def _read_pam(line: str) -> list[tuple[str, str]]:
    name, _, rest = line.strip().partition(" ")
    values = re.findall(r'(?:DEFAULT|OVERRIDE)=("[^"]*"|\S*)', rest.replace("\t", " "))
    return [(name, values[-1].strip('"'))] if values and NAMED.fullmatch(name) else []


def _read_unit(line: str) -> list[tuple[str, str]]:
    key, equals, text = line.strip().partition("=")
    return _pairs(text) if equals and key.strip() in ("DefaultEnvironment", "ManagerEnvironment") else []


ENVIRONMENT = Probe(
    "environment",
    r"""for p in grep sed sort tr; do command -v $p >/dev/null || exit 127; done
echo 'read|'
n='(CUDA_[A-Z_]+|NVIDIA_[A-Z_]+|NCCL_[A-Z0-9_]+|LD_PRELOAD|LD_LIBRARY_PATH)'
lines() { k=$1; shift; for f; do case $f in */gpuprov-* | */90-gpuprov*) continue ;; esac
  [ -f "$f" ] && [ ! -L "$f" ] && grep -E "^[^#]*$n([=[:space:]]|$)" "$f" 2>/dev/null | cut -c 1-2000 | sed "s#^#$k|$f|#"; done; }
t=$(lines plain /etc/environment /usr/lib/environment.d/*.conf /etc/environment.d/*.conf /run/environment.d/*.conf
lines shell /etc/profile /etc/profile.d/*.sh /etc/bash.bashrc /etc/bashrc /etc/zshenv /etc/zsh/zshenv
lines pam /etc/security/pam_env.conf
d=/etc/systemd; lines unit $d/system.conf $d/user.conf $d/system.conf.d/*.conf $d/user.conf.d/*.conf \
  /usr/lib/systemd/system.conf.d/*.conf /run/systemd/system.conf.d/*.conf
systemctl show-environment 2>/dev/null | grep -E "^$n=" | sed 's/^/plain|systemctl set-environment|/'
[ -s /etc/ld.so.preload ] && echo "plain|/etc/ld.so.preload|LD_PRELOAD=$(tr '\n' ' ' </etc/ld.so.preload)")
[ -z "$t" ] || printf '%s\n' "$t"
w() { printf '%s\n' "$t" | grep "$1" | tr ":=\"' " '\n\n\n\n\n' | grep '^/' | sort -u; }
w LD_LIBRARY_PATH | while IFS= read -r d; do for l in libcuda.so.1 libnvidia-ml.so.1; do
  f=$(readlink -f "$d/$l" 2>/dev/null) && [ -f "$f" ] && echo "library|$d|$f"; done; done
w LD_PRELOAD | while IFS= read -r f; do case $f in *'$'* | */) ;; *) [ -e "$f" ] || echo "missing|$f" ;; esac; done; true""",
    parse,
    "grep -rE 'CUDA_|NVIDIA_|NCCL_|LD_' /etc/environment /etc/profile.d /etc/security/pam_env.conf /etc/systemd/system.conf*; "
    "systemctl show-environment; cat /etc/ld.so.preload",
    speaks=True,
    blank=r"read\|",
)
"""gpuprov's own files are left out. environment.d(5), pam_env.conf(5), systemd-system.conf(5), ld.so(8)."""
