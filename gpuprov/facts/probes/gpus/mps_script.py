"""The script that reads the MPS daemons of a host. Each question to a daemon has a time limit: the control program has
none."""

from __future__ import annotations

from gpuprov.facts.probes.host.systemd import UNIT_OF

# Anybody may call a program so, give it any words, and say where its daemon's folders are: a line break in its words
# begins no line here, and gpuprov's own units alone are asked, since the control program, which is root then, opens
# what lies in these folders. Answers of protocol 2 carry no name, and some are empty: a percentage is asked for between
# the others, which look otherwise. https://docs.nvidia.com/deploy/mps/mpsv2-interface.html, mpsv3-interface.html
SCRIPT = (
    UNIT_OF
    + r"""c=nvidia-cuda-mps-control; n=0
command -v $c >/dev/null && echo 'program|'
nvidia-smi --query-gpu=index,uuid,pci.bus_id,compute_mode,mig.mode.current --format=csv,noheader 2>&1 </dev/null |
  sed 's/^/gpu|/'
nvidia-smi -L 2>/dev/null </dev/null | sed 's/^/device|/'
s=$(df -Pm /dev/shm 2>/dev/null | awk 'NR==2 {print $2}') && [ -n "$s" ] && echo "shm|$s"
for u in $({ systemctl list-units --all --plain --no-legend 'gpuprov-mps@*.service' | awk '{print $1}'
  ls /etc/systemd/system/multi-user.target.wants 2>/dev/null | grep '^gpuprov-mps@'; } 2>/dev/null | sort -u); do
  e=off; [ -L "/etc/systemd/system/multi-user.target.wants/$u" ] && e=enabled
  i=${u#gpuprov-mps@}; echo "unit|${i%.service}|$(systemctl show -p ActiveState "$u" 2>/dev/null | sed -n 's/^ActiveState=//p')|$e"
done
w=$(sed -n 's/.*"user": *"\([a-z_][^"]*\)".*/\1/p' /etc/gpuprov/mps.json 2>/dev/null)
[ -n "$w" ] && i=$(id -u "$w" 2>/dev/null) && echo "user|$w|$i"
for f in /etc/gpuprov/mps.json /etc/profile.d/gpuprov-mps.sh /run/gpuprov/mps/*.env \
  /etc/systemd/system/*.service.d/50-gpuprov-mps.conf \
  $(sed -n 's/.*"container_directory": *"\([^"]*\)".*/\1/p' /etc/gpuprov/mps.json 2>/dev/null)/*.yaml; do
  case $f in /\*.yaml) continue ;; esac
  [ -f "$f" ] && [ ! -L "$f" ] && sed "s#^#file|$f|#" "$f"
done
for f in /proc/[0-9]*/comm; do
  read -r w < "$f" || continue
  [ "$w" = nvidia-cuda-mps ] || continue
  p=${f#/proc/}; p=${p%/comm}
  a=$(tr '\0\n' '  ' < "/proc/$p/cmdline") || continue
  case " $a" in *"mps-control "*-[fd]*|*"mps-control "*--foreground*|*"mps-control "*--daemon*) ;; *) continue ;; esac
  u=$(unit_of "/proc/$p/cgroup"); case $u in *.scope|*/*) u= ;; esac
  echo "daemon|$p|$u|$a"
  e=$(tr '\0' '\n' < "/proc/$p/environ" | grep -E '^CUDA_'); echo "$e" | sed "s#^#env|$p|#"
  d=$(echo "$e" | sed -n 's/^CUDA_MPS_PIPE_DIRECTORY=//p'); l=$(echo "$e" | sed -n 's/^CUDA_MPS_LOG_DIRECTORY=//p')
  k=$(echo "$e" | sed -n 's/^CUDA_VISIBLE_DEVICES=//p' | tr ',' '\n' | grep -c .); [ "$k" = 0 ] && k=1
  case $u in gpuprov-mps@*) ;; *) continue ;; esac
  ask() { CUDA_MPS_PIPE_DIRECTORY=${d:-/tmp/nvidia-mps} CUDA_MPS_LOG_DIRECTORY=$l timeout 5 $c "$@" 2>&1; r=$?
    [ $r = 124 ] && echo 'no answer within 5 s'; return $r; }
  case " $a" in
  *" -p 3"*|*" --protocol 3"*|*" --protocol=3"*)
    for w in active-thread-percentage client-priority pinned-memory-limit; do
      case $w in a*) ask namespace get default gpuprov $w </dev/null | sed 's/^\([0-9]*\)$/\1.0/' ;; *)
        [ $w = client-priority ] || echo 0.0; ask namespace get default gpuprov $w </dev/null ;; esac
    done | sed "s#^#answer|$p|#"; echo "answer|$p|0.0"
    ask sm-partition list --all --format=csv,noheader </dev/null |
      awk -F' *, *' '$7=="created" {print $2, $8, "-", $4}' | sed "s#^#partition|$p|#"
    ask server list --format=csv,noheader </dev/null | while IFS=, read -r x v q y z; do
      case $q in ''|*[!0-9]*) continue ;; esac
      echo "server|$p|$q|uid|$v"; echo "server|$p|$q|status|$y"
      ask client list --server="$x" --format=csv,noheader </dev/null | cut -d, -f1 | sed "s#^#server|$p|$q|answer|#"
    done ;;
  *)
    t=$({ echo get_default_active_thread_percentage; echo get_default_client_priority
      while [ $n -lt "$k" ]; do
        echo get_default_active_thread_percentage; echo "get_default_device_pinned_mem_limit $n"; n=$((n+1))
      done
      echo get_default_active_thread_percentage; echo get_server_list; } | ask); echo "$t" | sed "s#^#answer|$p|#"
    for q in $(echo "$t" | awk '/^[0-9]+\.[0-9]+$/ {k=""; next} /^[0-9]+$/ {k=k" "$0} END {print k}'); do
      [ -d "/proc/$q" ] || continue
      echo "server|$p|$q|uid|$(stat -c %u "/proc/$q")"
      { echo "get_active_thread_percentage $q"; echo "get_server_status $q"; echo "get_client_list $q"; } | ask |
        sed "s#^#server|$p|$q|answer|#"
    done
    case " $a" in *" -S"*|*" --static-partitioning"*) echo lspart | ask | grep '^GPU-' |
      sed "s#^#partition|$p|#" ;; esac ;;
  esac
done; true"""
)
