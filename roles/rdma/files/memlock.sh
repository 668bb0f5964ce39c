#!/bin/sh
# usage: memlock.sh state|raise KIB|unlimited UNIT...
# state: `now UNIT FOUND` for each of these services whose process may lock less memory, `unit UNIT FOUND` for each that will start so.
# raise: gives their processes the limit, without a restart; what they start from then on inherits it.
# Managed by gpuprov.
mode=$1 wanted=$2
shift 2
[ "$wanted" = unlimited ] || wanted=$((wanted * 1024))

less() {
  case $1 in unlimited | infinity) return 1 ;; esac
  [ "$wanted" = unlimited ] || [ "$1" -lt "$wanted" ]
}

for unit; do
  pid=$(systemctl show -p MainPID --value "$unit" 2>/dev/null)
  [ "${pid:-0}" -gt 0 ] || continue
  found=$(sed -n 's/^Max locked memory  *\([^ ]*\).*/\1/p' "/proc/$pid/limits")
  if less "$found"; then
    echo "now $unit $found"
    [ "$mode" = raise ] && { prlimit --pid "$pid" --memlock="$wanted:$wanted" || exit 1; }
  fi
  found=$(systemctl show -p LimitMEMLOCK --value "$unit")
  less "$found" && echo "unit $unit $found"
done
true
