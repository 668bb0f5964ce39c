# usage: clients.sh UNIT...
# Processes that have an NVIDIA device file open, one a line, without those of the units.
find /proc/[0-9]*/fd -lname '/dev/nvidia*' -printf '%h\n' 2>/dev/null | sort -u | while read -r fd; do
  process=${fd%/fd}
  unit=$(sed -n 's/.*\/\([^/]*\.\(service\|scope\)\).*/\1/p' "$process/cgroup" | tail -n 1)
  case " $* " in *" ${unit:-none} "*) continue ;; esac
  echo "$(cat "$process/comm") (pid ${process#/proc/}, $(stat -c %U "$process")${unit:+, $unit})"
done
