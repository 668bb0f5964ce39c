# usage: runfile_modules.sh VERSION FLAVOUR KERNEL...
# Has DKMS build and install the modules that NVIDIA's installer registered, for each kernel that lacks them; "installed for KERNEL".
# An installer whose registration fails only warns, and puts the modules there itself: DKMS would build none for the next kernel.
version=$1 flavour=$2
shift 2
[ -f "/usr/src/nvidia-$version/dkms.conf" ] || { echo "/usr/src/nvidia-$version/dkms.conf is not there: DKMS has no source to build"; exit 1; }
for kernel in "$@"; do
  if [ "$(modinfo -k "$kernel" -F version nvidia 2> /dev/null)" = "$version" ] &&
    dkms status -m nvidia -v "$version" -k "$kernel" 2> /dev/null | grep -q installed; then
    case $(modinfo -k "$kernel" -F license nvidia 2> /dev/null) in
      *GPL*) [ "$flavour" = open ] && continue ;;
      *) [ "$flavour" = proprietary ] && continue ;;
    esac
  fi
  if ! answer=$(dkms install --force -m nvidia -v "$version" -k "$kernel" 2>&1); then
    echo "kernel $kernel: $answer"
    tail -n 12 "/var/lib/dkms/nvidia/$version/build/make.log" 2> /dev/null
    exit 1
  fi
  echo "installed for $kernel"
done
