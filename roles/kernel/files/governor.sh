#!/bin/sh
# usage: governor.sh set GOVERNOR: writes it to every frequency policy and reads it back.
# Managed by gpuprov.
[ "${1-}" = set ] && [ -n "${2-}" ] || { echo "governor: usage: governor.sh set GOVERNOR" >&2; exit 1; }
bad='' any=''
for policy in "${GPUPROV_ROOT-}"/sys/devices/system/cpu/cpufreq/policy*; do
  [ -r "$policy/scaling_governor" ] || continue
  # A policy whose CPUs are all offline cannot be read (EBUSY), and has no frequency.
  found=$(cat "$policy/scaling_governor" 2>/dev/null) || continue
  any=1
  [ "$found" = "$2" ] || echo "$2" 2>/dev/null >"$policy/scaling_governor"
  [ "$(cat "$policy/scaling_governor")" = "$2" ] ||
    bad="$bad ${policy##*/} stays $found (it has: $(cat "$policy/scaling_available_governors" 2>/dev/null));"
done
[ -z "$bad" ] || { echo "governor: expected $2, and$bad" >&2; exit 1; }
[ -n "$any" ] || { echo "governor: no CPU has a governor" >&2; exit 1; }
