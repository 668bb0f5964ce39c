"""Variables that a host sets for logins, services and every program: those that decide what CUDA, NCCL and libfabric
find."""

import msgspec

from gpuprov.facts.probes.base import Output, Probe

# The most common of the files, for a person.
SHOWN = "/etc/environment /etc/profile /etc/profile.d /etc/bash*rc /root/.bashrc /etc/systemd/system.conf*"

# environment.d(5), pam_env.conf(5), systemd-system.conf(5); shells read the others.
FILES = (
    *("/etc/environment", "/etc/environment.d/*.conf", "/usr/lib/environment.d/*.conf", "/run/environment.d/*.conf"),
    *("/etc/profile", "/etc/profile.d/*.sh", "/etc/profile.d/*.csh", "/etc/bashrc", "/etc/bash.bashrc"),
    *("/etc/csh.cshrc", "/etc/zshenv", "/etc/zsh/zshenv", "/root/.bashrc", "/root/.bash_profile", "/root/.profile"),
    *("/etc/security/pam_env.conf", "/etc/systemd/system.conf", "/etc/systemd/user.conf"),
    *("/etc/systemd/system.conf.d/*.conf", "/etc/systemd/user.conf.d/*.conf"),
    *("/usr/lib/systemd/system.conf.d/*.conf", "/run/systemd/system.conf.d/*.conf"),
)

_SCRIPT = r"""
( set --; for f in FILES; do case $f in */gpuprov-* | */90-gpuprov*) continue ;; esac
  [ -f "$f" ] && [ ! -L "$f" ] && set -- "$@" "$f"; done
[ $# = 0 ] || awk '
  /^[[:space:]]*#/ { next }
  { l = $0; sub(/[[:space:]]#.*/, "", l)
    if (FILENAME ~ /pam_env[.]conf$/ && sub(/.*[[:space:]](DEFAULT|OVERRIDE)=/, "", l)) l = $1 "=" l
    if (sub(/^[[:space:]]*setenv[[:space:]]+/, "", l)) sub(/[[:space:]]+/, "=", l)
    CERTAIN
    while (match(l, /(^|[[:space:];"\047])(PREFIX)[A-Z0-9_]*=("[^"]*"|\047[^\047]*\047|[^[:space:];"\047]*)/)) {
      m = substr(l, RSTART, RLENGTH); l = substr(l, RSTART + RLENGTH); sub(/^[[:space:];"\047]/, "", m)
      print "KIND|" FILENAME "|" substr(m, 1, 2000) } }' "$@" )
systemctl show-environment 2>/dev/null | sed -nE 's/^((PREFIX)[A-Z0-9_]*=)/KIND|systemctl set-environment|\1/p'"""
_CERTAIN = (
    r"if (FILENAME !~ /[.]conf$|environment$/ && l !~ /^((export|declare -x|typeset -x)[[:space:]]|[A-Z0-9_]+=)/) next"
)


def build_environment_script(kind: str, prefix: str, *, certain: bool = False) -> str:
    """Return shell that prints `KIND|FILE|NAME=VALUE` for each variable whose name begins so, an extended regular
    expression; gpuprov's own files are left out. `certain`: without those that a shell may not set, as the line is
    indented or behind a test."""
    words = {"FILES": " ".join(FILES), "PREFIX": prefix, "KIND": kind, "CERTAIN": _CERTAIN if certain else ""}
    script = _SCRIPT
    for word, value in words.items():
        script = script.replace(word, value)
    return script


class Variable(msgspec.Struct, frozen=True):
    """A variable, and the file that sets it."""

    file: str
    name: str
    value: str


class Environment(msgspec.Struct, frozen=True):
    """Variables of CUDA's and of the dynamic linker's."""

    variables: tuple[Variable, ...] = ()
    # By folder of an LD_LIBRARY_PATH the driver's libraries in it, as files.
    libraries: dict[str, tuple[str, ...]] = {}
    # Files of an LD_PRELOAD that are not there.
    missing: frozenset[str] = frozenset()


def parse(output: Output) -> Environment:
    rows = output.rows()
    variables = []
    for row in rows.get("env", ()):
        file, _, setting = row.partition("|")
        name, _, value = setting.partition("=")
        variables.append(Variable(file, name, value.strip().strip("\"'")))
    libraries: dict[str, tuple[str, ...]] = {}
    for folder, _, name in (row.partition("|") for row in rows.get("library", ())):
        libraries[folder] = (*libraries.get(folder, ()), name)
    return Environment(tuple(dict.fromkeys(variables)), libraries, frozenset(rows.get("missing", ())))


# ld.so(8).
ENVIRONMENT = Probe(
    "environment",
    r"""for p in awk grep sed sort tr; do command -v $p >/dev/null || exit 127; done
echo 'read|'
t=$(VARIABLES
[ -s /etc/ld.so.preload ] && echo "env|/etc/ld.so.preload|LD_PRELOAD=$(tr '\n' ' ' </etc/ld.so.preload)")
[ -n "$t" ] || exit 0
printf '%s\n' "$t"
w() { printf '%s\n' "$t" | grep "$1" | tr ":=\"' " '\n\n\n\n\n' | grep '^/' | sort -u; }
w LD_LIBRARY_PATH | while IFS= read -r d; do for l in libcuda.so.1 libnvidia-ml.so.1; do
  f=$(readlink -f "$d/$l" 2>/dev/null) && [ -f "$f" ] && echo "library|$d|$f"; done; done
w LD_PRELOAD | while IFS= read -r f; do case $f in *'$'* | */) ;; *) [ -e "$f" ] || echo "missing|$f" ;; esac
done; true""".replace(
        "VARIABLES", build_environment_script("env", "CUDA_|NVIDIA_|LD_PRELOAD|LD_LIBRARY_PATH", certain=True)
    ),
    parse,
    f"grep -rE 'CUDA_|NVIDIA_|LD_' {SHOWN} /etc/security/pam_env.conf; systemctl show-environment; cat "
    "/etc/ld.so.preload",
    speaks=True,
    blank=r"read\|",
)
