# What the machine has, one fact a line:
#   gpu|10de:2330   kernel|RELEASE|boots here|has headers|runs or is started next   loaded|VERSION   flavour|open   parameter|NVreg_X=1
#   secure (Secure Boot is on)   runfile|PROGRAM   in-tree|nouveau (a GPU is bound to it)
for device in /sys/bus/pci/devices/*; do
  [ "$(cat "$device/vendor" 2>/dev/null)" = 0x10de ] || continue
  case $(cat "$device/class") in 0x03*) echo "gpu|10de:$(cut -c3- "$device/device")" ;; *) continue ;; esac
  case $(readlink "$device/driver") in */nouveau | */NovaCore) echo 'in-tree|nouveau' ;; esac
done
next=$(grubby --default-kernel 2>/dev/null)
for folder in /lib/modules/*; do
  kernel=${folder##*/} boots=0 headers=0 chosen=0
  [ -e "/boot/vmlinuz-$kernel" ] && boots=1
  [ -e "$folder/build/Makefile" ] && headers=1
  if [ "$kernel" = "$(uname -r)" ] || [ "$kernel" = "${next##*/vmlinuz-}" ]; then chosen=1; fi
  [ $boots$headers = 00 ] || echo "kernel|$kernel|$boots|$headers|$chosen"
done
version=/proc/driver/nvidia/version
if [ -f $version ]; then
  sed -n 's/^NVRM version:.* \([0-9]\{3\}\.[0-9.]*\) .*/loaded|\1/p' $version
  if grep -q 'Open Kernel Module' $version; then echo 'flavour|open'; else echo 'flavour|proprietary'; fi
  sed -n 's/^\([A-Za-z0-9_]*\): *"\{0,1\}\([^"]*\)"\{0,1\}$/parameter|NVreg_\1=\2/p' /proc/driver/nvidia/params 2>/dev/null
fi
secure=$(cat /sys/firmware/efi/efivars/SecureBoot-* 2>/dev/null | od -An -tu1 | tr -s ' ' '\n' | tail -n 1)
[ "$secure" = 1 ] && echo secure
for program in /usr/bin/nvidia-uninstall /usr/bin/nvidia-installer; do
  [ -e $program ] && echo "runfile|$program"
done
true
