#!/bin/sh
# usage: cgpu.sh apply [SECONDS]
# Loads cGPU where it is not yet, waits for it, writes the settings, and reads them back.
# They are lines `GPU NODE VALUE`; GPU is a folder in /proc/cgpu_km, or * for every one; a later line wins.
# Managed by gpuprov.
root=/proc/cgpu_km

refuse() {
  echo "cgpu: $*" >&2
  exit 1
}

# Each GPU's folder, its node, what it has, what it should have.
compare() {
  for folder in "$root"/[0-9]*; do
    [ -d "$folder" ] || continue
    index=${folder##*/}
    echo "$lines" | awk -v gpu="$index" '$1 == "*" || $1 == gpu { if (!($2 in value)) order[++n] = $2; value[$2] = $3 }
      END { for (i = 1; i <= n; i++) print order[i], value[order[i]] }' |
      while read -r node value; do
        found=$(cat "$folder/$node" 2>/dev/null)
        found=${found:-none}
        [ "$found" = "$value" ] || echo "$index $node $found $value"
      done
  done
}

load() {
  # In a container the module would be the machine's own.
  systemd-detect-virt --container --quiet && return
  # The driver's device files must be there when the module is loaded; nvidia-smi makes them.
  [ -c /dev/nvidiactl ] || nvidia-smi >/dev/null 2>&1
  for module in cgpu_procfs cgpu_km; do
    modinfo -n "$module" >/dev/null 2>&1 && modprobe "$module" && return
  done
}

[ "${1-}" = apply ] || refuse "usage: cgpu.sh apply [SECONDS]"
config=/etc/gpuprov/cgpu.conf
lines=$(sed -n '/^[0-9*]/p' "$config") || refuse "$config cannot be read"
[ -n "$lines" ] || refuse "$config has no settings"

[ -r "$root/version" ] || load
left=${2:-0}
while [ ! -r "$root/version" ] && [ "$left" -gt 0 ]; do
  sleep 1
  left=$((left - 1))
done
[ -r "$root/version" ] || refuse "$root/version is not there: cGPU is not installed, or is loaded later than this unit runs"
ls -d "$root"/[0-9]* >/dev/null 2>&1 || refuse "cGPU $(cat "$root/version") has no GPU"
for gpu in $(echo "$lines" | awk '$1 != "*" { print $1 }' | sort -u); do
  [ -d "$root/$gpu" ] || refuse "there is no $root/$gpu, which $config names"
done

compare | {
  bad=
  while read -r index node found value; do
    file=$root/$index/$node
    said=$({ printf '%s\n' "$value" >"$file"; } 2>&1)
    now=$(cat "$file" 2>/dev/null)
    now=${now:-none}
    if [ "$now" = "$value" ]; then
      echo "GPU $index $node $found -> $value"
      continue
    fi
    users=
    for instance in "$root/$index"/*/; do
      [ -d "$instance" ] && instance=${instance%/} && users="$users ${instance##*/}"
    done
    said=${said##*: }
    bad="$bad${bad:+; }$file stays $now, expected $value${said:+ ($said)}${users:+, used by the containers$users}"
  done
  [ -z "$bad" ] || refuse "$bad"
}
