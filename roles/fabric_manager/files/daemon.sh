# usage: daemon.sh UNIT PROCESS FILE...
# "dead", "alive", or "old": alive, and a FILE (its program, its configuration) has changed since the process was started.
unit=$1 name=$2
shift 2
group=$(systemctl show -p ControlGroup --value "$unit")
state=dead
[ -n "$group" ] && for file in $(grep -ls ":$group\$" /proc/[0-9]*/cgroup); do
  process=${file%/cgroup}
  tr '\0' ' ' < "$process/cmdline" 2>/dev/null | grep -qE "(^|[ /])$name( |\$)" || continue
  # The process's state and start time, in ticks since boot, are fields 3 and 22 of its stat: proc(5).
  fields=$(sed 's/.*) //' "$process/stat" 2>/dev/null) || continue
  case $fields in Z* | X* | '') continue ;; esac
  read -r uptime _ < /proc/uptime
  started=$(echo "$fields" | awk -v now="$(date +%s.%N)" -v up="$uptime" -v hz="$(getconf CLK_TCK)" \
    '{ printf "%.2f", now - up + $20 / hz + 0.2 }')
  state=alive
  [ -n "$(find "$@" -newerct "@$started" 2>/dev/null)" ] && state=old
done
systemctl is-active --quiet "$unit" || state=dead
echo "$state"
