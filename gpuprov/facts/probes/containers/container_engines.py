"""docker, containerd, cri-o and podman, and the containerd of k3s, RKE2 and MicroK8s: releases, units, configuration
files, and what the daemons report."""

from gpuprov.facts.probes.base import Probe
from gpuprov.rules.cluster_engines import KEY, MICROK8S, TEMPLATE
from gpuprov.rules.engine_output import Engine, parse

# What containerd's dump lists as imports are the files that it read (1.x, the main file among them) or the patterns
# that it looks for (2.x). Without a main file, 1.x dumps nothing, and its defaults are in force. Two opening braces
# would be Ansible's own: the role runs this script too. docker's unit comes after the question, which starts a daemon
# that waits behind its socket. Its command line is the unit's; where that has variables, the process's.
# Of k3s and RKE2: both units of RKE2 are installed on every node, and one is enabled. Their settings have the cluster's
# token, and what they write has passwords of registries, so that of the one a single key is read, and the others are
# left out; of a template, only what says where its runtimes come from.
CLUSTERS = f"""part() {{ [ -f "$1" ] && echo "@file $1 $(stat -c %.3Z "$1")" && sed -nE "$2" "$1" | sed 's/^/ /' &&
  echo; }}
on() {{ for v in is-active is-enabled; do for n; do systemctl -q $v "$n" 2>/dev/null && echo "$n" && return; done; done
  false; }}
for k in k3s rke2; do
  [ -d /var/lib/rancher/$k ] || continue
  u=$(on $k.service $k-server.service $k-agent.service) || continue
  echo "@engine $k"; for p in "$(command -v $k)" /usr/local/bin/$k /opt/$k/bin/$k; do [ -x "$p" ] && break; done
  echo "@version $("$p" --version 2>/dev/null | head -n 1)"; echo "@service $u"; unit "$u"
  systemctl show -p ExecStart "$u" 2>/dev/null | grep -oE -e '--{KEY}[= ]+[^ ;]+' | sed -E 's/^--{KEY}[= ]*/@default /'
  for f in /etc/rancher/$k/config.yaml /etc/rancher/$k/config.yaml.d/*.yaml; do part "$f" '/^{KEY} *:/p'; done
  d=/var/lib/rancher/$k/agent/etc/containerd; for f in $d/config.toml.tmpl $d/config-v3.toml.tmpl; do
    part "$f" 's/.*(template "base"|ExtraRuntimes).*/\\1/p'; done
  part $d/config.toml '/^ *(username|password|auth|identitytoken) *=/!p'
  for f in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin; do
    [ -x $f/nvidia-container-runtime ] && echo "@program $f/nvidia-container-runtime" && break; done
done
if [ -f {TEMPLATE} ]; then
  u=snap.microk8s.daemon-containerd.service; echo "@engine microk8s"
  echo "@version $(/snap/microk8s/current/bin/containerd --version 2>/dev/null)"; echo "@service $u"; unit $u
  file {TEMPLATE}; part {MICROK8S}/containerd.toml '/^ *(username|password|auth|identitytoken) *=/!p'
fi
"""
ENGINES: Probe[dict[str, Engine]] = Probe(
    "container_engines",
    r"""file() { [ -f "$1" ] && echo "@file $1 $(stat -c %.3Z "$1")" && sed 's/^/ /' "$1" && echo; }
unit() {
  s=$(systemctl show -p ActiveState -p UnitFileState -p ExecMainStartTimestampMonotonic -p WantedBy -p RequiredBy \
    -p TriggeredBy "$1" 2>/dev/null); v() { printf '%s\n' "$s" | sed -n "s/^$1=//p"; }
  echo "@unit $(v ActiveState)|$(v UnitFileState)|$(v ExecMainStartTimestampMonotonic)"
  case $(v UnitFileState) in enabled | masked*) return ;; esac
  for o in $(v RequiredBy) $(v WantedBy) $(v TriggeredBy); do
    systemctl -q is-enabled "$o" 2>/dev/null && echo "@starter $o" && break; done
}
echo "@clock $(date +%s.%N) $(cut -d' ' -f1 /proc/uptime)"
if command -v dockerd >/dev/null; then
  echo "@engine docker"; echo "@version $(dockerd --version 2>/dev/null)"; file /etc/docker/daemon.json
  b='{'; i=$(unset DOCKER_HOST DOCKER_CONTEXT
    timeout 20 docker info --format "$b{json .}}" 2>/dev/null) && echo '@live' && printf ' %s\n' "$i"
  unit docker.service; x=$(systemctl show -p ExecStart docker.service 2>/dev/null)
  p=$(systemctl show -p MainPID docker.service 2>/dev/null)
  case $x in *'$'*) x=$({ tr '\0' ' ' <"/proc/${p#MainPID=}/cmdline"; } 2>/dev/null) ;; esac
  printf '%s\n' "$x" | grep -oE -e '--(default-runtime|config-file)[= ]+[^ ;]+' |
    sed -E 's/^--(default|config)[^= ]*[= ]*/@\1 /'
  printf '%s\n' "$x" | tr ' ' '\n' | grep -oE '^--?[A-Za-z][a-z-]*' | sort -u | sed 's/^/@flag /'
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
if command -v podman >/dev/null; then
  echo "@engine podman"; echo "@version $(podman --version 2>/dev/null)"; unit podman.socket
  for f in /usr/share/containers/containers.conf /etc/containers/containers.conf /etc/containers/containers.conf.d/*.conf; do
    file "$f"; done
fi
"""
    + CLUSTERS
    + "true",
    lambda output: parse(output.text),
    "docker info; cat /etc/docker/daemon.json; containerd config dump; crio status config; podman --version",
    speaks=True,
    blank="@clock ",
)
