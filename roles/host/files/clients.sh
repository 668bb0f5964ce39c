# usage: clients.sh UNIT...
# Processes that have an NVIDIA device file open, one a line, without those of the units, which may be patterns.
# Nobody is an answer only where the tools that look for them are seen to work: they find this script's own process first.
if [ "$(find /proc/$$/cwd -prune -lname '/*' -printf 'x\n' | sort -u | sed -n 's/x/found/p' | tail -n 1)" != found ] || ! stat -c %U / > /dev/null; then
  echo 'the processes that hold a GPU cannot be listed: find, sort, sed or stat does not work on this host' >&2
  exit 1
fi
find /proc/[0-9]*/fd -lname '/dev/nvidia*' -printf '%h\n' 2>/dev/null | sort -u | while read -r fd; do
  process=${fd%/fd}
  unit=$(sed -n 's/.*\/\([^/]*\.\(service\|scope\)\).*/\1/p' "$process/cgroup" | tail -n 1)
  for known in "$@"; do case ${unit:-none} in $known) continue 2 ;; esac; done
  echo "$(cat "$process/comm") (pid ${process#/proc/}, $(stat -c %U "$process")${unit:+, $unit})"
done
