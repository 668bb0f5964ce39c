"""docker, containerd, cri-o and podman: releases, units, configuration files, and what the daemons report."""

from gpuprov.facts.probes.base import Probe
from gpuprov.rules.engine_output import Engine, parse

# What containerd's dump lists as imports are the files that it read (1.x, the main file among them) or the patterns
# that it looks for (2.x). Without a main file, 1.x dumps nothing, and its defaults are in force. Two opening braces
# would be Ansible's own: the role runs this script too. docker's unit comes after the question, which starts a daemon
# that waits behind its socket. Its command line is the unit's; where that has variables, the process's.
ENGINES: Probe[dict[str, Engine]] = Probe(
    "container_engines",
    r"""file() { [ -f "$1" ] && echo "@file $1 $(stat -c %.3Z "$1")" && sed 's/^/ /' "$1" && echo; }
unit() { systemctl show -p ActiveState -p UnitFileState -p ExecMainStartTimestampMonotonic "$1" 2>/dev/null | sort |
  sed 's/^[^=]*=//' | { read -r a; read -r s; read -r f; echo "@unit $a|$f|$s"; }; }
echo "@clock $(date +%s.%N) $(cut -d' ' -f1 /proc/uptime)"
if command -v dockerd >/dev/null; then
  echo "@engine docker"; echo "@version $(dockerd --version 2>/dev/null)"; file /etc/docker/daemon.json
  b='{'; i=$(timeout 20 docker info --format "$b{json .}}" 2>/dev/null) && echo '@live' && printf ' %s\n' "$i"
  unit docker.service; x=$(systemctl show -p ExecStart docker.service 2>/dev/null)
  case $x in *'$'*) x=$({ tr '\0' ' ' <"/proc/$(systemctl show -p MainPID --value docker.service)/cmdline"; } 2>/dev/null) ;; esac
  printf '%s\n' "$x" | grep -oE -e '--(default-runtime|config-file)[= ]+[^ ;]+' | sed -E 's/^--(default|config)[^= ]*[= ]*/@\1 /'
fi
if command -v containerd >/dev/null; then
  echo "@engine containerd"; echo "@version $(containerd --version 2>/dev/null)"; unit containerd.service
  m=/etc/containerd/config.toml; d=$(timeout 20 containerd config dump 2>/dev/null) ||
    { [ ! -e $m ] && d=$(timeout 20 containerd config default 2>/dev/null); } || d=
  [ -z "$d" ] || { echo '@dump'; printf '%s\n' "$d" | sed 's/^/ /'; }
  file $m
  printf '%s\n' "$d" | sed -n '/^imports *= *\[/,/\]/p' | grep -oE "[\"'][^\"']+[\"']" | tr -d "\"'" |
    (cd /etc/containerd 2>/dev/null; IFS=; while read -r p; do for f in $p; do echo "$f"; done; done) |
    sed 's,^[^/],/etc/containerd/&,' | grep -vxF $m | sort -u | while read -r f; do file "$f"; done
fi
if command -v crio >/dev/null; then
  echo "@engine crio"; echo "@version $(crio --version 2>/dev/null | grep -iE '^(crio )?version')"; unit crio.service
  for f in /etc/crio/crio.conf /etc/crio/crio.conf.d/*; do file "$f"; done
  d=$(timeout 20 crio status config 2>/dev/null || timeout 20 crio-status config 2>/dev/null) && echo '@live' &&
    printf '%s\n' "$d" | sed 's/^/ /'
fi
if command -v podman >/dev/null; then echo "@engine podman"; echo "@version $(podman --version 2>/dev/null)"; fi
true""",
    lambda output: parse(output.text),
    "docker info; cat /etc/docker/daemon.json; containerd config dump; crio status config; podman --version",
    speaks=True,
    blank="@clock ",
)
