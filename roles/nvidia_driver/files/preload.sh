# usage: preload.sh load|unload PACK
# Puts the modules of the pack into the host's DKMS tree as built, so that the package's scriptlet, which runs dkms build, finds
# nothing to do; unless DKMS has this version already: then its modules are the other flavour's, and modules.sh takes the pack.
# unload: takes them away again where no package came to own their source.
pack=$2
name=$(basename "$pack" .dkms.tar.gz)
source=/usr/src/$name
case $1 in
  load)
    [ -e "/var/lib/dkms/${name%-*}/${name##*-}" ] || [ -e "$source" ] || dkms ldtarball --archive "$pack" > /dev/null 2>&1 || true
    ;;
  unload)
    if [ -e "$source" ] && ! rpm -qf "$source/dkms.conf" > /dev/null 2>&1; then
      dkms remove -m "${name%-*}" -v "${name##*-}" --all > /dev/null 2>&1
      rm -rf "$source"
    fi
    rm -f "$pack"
    ;;
esac
