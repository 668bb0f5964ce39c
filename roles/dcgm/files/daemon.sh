# usage: daemon.sh UNIT FILE...
# "dead", "alive", or "old": alive, and a FILE (its program, the folder of its settings) has changed since the process was started.
unit=$1
shift
process=$(systemctl show -p MainPID --value "$unit")
state=dead
# The process's state and start time, in ticks since boot, are fields 3 and 22 of its stat: proc(5).
fields=$(sed 's/.*) //' "/proc/${process:-0}/stat" 2>/dev/null)
case $fields in
  Z* | X* | '') ;;
  *)
    read -r uptime _ < /proc/uptime
    started=$(echo "$fields" | awk -v now="$(date +%s.%N)" -v up="$uptime" -v hz="$(getconf CLK_TCK)" \
      '{ printf "%.2f", now - up + $20 / hz + 0.2 }')
    state=alive
    [ -n "$(find "$@" -newerct "@$started" 2>/dev/null)" ] && state=old
    ;;
esac
systemctl is-active --quiet "$unit" || state=dead
echo "$state"
