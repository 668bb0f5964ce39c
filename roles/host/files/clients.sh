# usage: clients.sh UNIT...
# Processes that have an NVIDIA device file open, one a line, without those of the units, which may be patterns.
find /proc/[0-9]*/fd -lname '/dev/nvidia*' -printf '%h\n' 2>/dev/null | sort -u | while read -r fd; do
  process=${fd%/fd}
  unit=$(sed -n 's/.*\/\([^/]*\.\(service\|scope\)\).*/\1/p' "$process/cgroup" | tail -n 1)
  for known in "$@"; do case ${unit:-none} in $known) continue 2 ;; esac; done
  echo "$(cat "$process/comm") (pid ${process#/proc/}, $(stat -c %U "$process")${unit:+, $unit})"
done
