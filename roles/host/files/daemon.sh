# usage: daemon.sh UNIT PROCESS FILE...
# "dead", "alive", or "old": alive, and a FILE (its program, its settings) has changed since a process of it was started.
# PROCESS is the program's name, looked for among all processes of UNIT; without one it is the unit's main process.
unit=$1 name=$2
shift 2
if [ -n "$name" ]; then
  group=$(systemctl show -p ControlGroup --value "$unit")
  processes=$([ -z "$group" ] || grep -ls ":$group\$" /proc/[0-9]*/cgroup)
else
  processes=/proc/$(systemctl show -p MainPID --value "$unit")/cgroup
fi
state=dead
for file in $processes; do
  process=${file%/cgroup}
  [ -z "$name" ] || { tr '\0' ' ' < "$process/cmdline"; } 2>/dev/null | grep -qE "(^|[ /])$name( |\$)" || continue
  # The process's state and start time, in ticks since boot, are fields 3 and 22 of its stat: proc(5).
  fields=$(sed 's/.*) //' "$process/stat" 2>/dev/null) || continue
  case $fields in Z* | X* | '') continue ;; esac
  read -r uptime _ < /proc/uptime
  started=$(echo "$fields" | awk -v now="$(date +%s.%N)" -v up="$uptime" -v hz="$(getconf CLK_TCK)" \
    '{ printf "%.2f", now - up + $20 / hz + 0.2 }')
  [ "$state" = old ] || state=alive
  [ -n "$(find "$@" -newerct "@$started" 2>/dev/null)" ] && state=old
done
systemctl is-active --quiet "$unit" || state=dead
echo "$state"
