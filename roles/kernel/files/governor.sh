#!/bin/sh
# usage: governor.sh list | set GOVERNOR
# list: each frequency policy with its governor and those that its driver has. set: writes it everywhere and reads it back.
# Managed by gpuprov.
bad='' more=
# A driver that has policies of its own knows no others; any other takes what is a module still to be loaded, and loads it.
for governor in conservative ondemand performance powersave schedutil; do
  for module in "${GPUPROV_ROOT-}/lib/modules/$(uname -r)/kernel/drivers/cpufreq/cpufreq_$governor".ko*; do
    [ ! -f "$module" ] || more="$more $governor"
  done
done
for policy in "${GPUPROV_ROOT-}"/sys/devices/system/cpu/cpufreq/policy*; do
  [ -r "$policy/scaling_governor" ] || continue
  # A policy whose CPUs are all offline cannot be read (EBUSY), and has no frequency.
  found=$(cat "$policy/scaling_governor" 2>/dev/null) || continue
  have=$(cat "$policy/scaling_available_governors" 2>/dev/null)
  case $(cat "$policy/scaling_driver" 2>/dev/null) in intel_pstate | amd-pstate-epp | amd_pstate_epp) ;; *) have="$have$more" ;; esac
  case ${1-} in
    list) echo "${policy##*/} $found $have" ;;
    set)
      any=1
      [ "$found" = "$2" ] || echo "$2" 2>/dev/null >"$policy/scaling_governor"
      [ "$(cat "$policy/scaling_governor")" = "$2" ] || bad="$bad ${policy##*/} stays $found (it has: $have);"
      ;;
    *) echo "governor: usage: governor.sh list | set GOVERNOR" >&2; exit 1 ;;
  esac
done
[ -z "$bad" ] || { echo "governor: asked for is $2, and$bad" >&2; exit 1; }
[ "${1-}" != set ] || [ -n "${any-}" ] || { echo "governor: no CPU has a governor" >&2; exit 1; }
