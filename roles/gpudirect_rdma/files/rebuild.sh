# usage: rebuild.sh MODULE KERNEL...
# Builds the DKMS package that has MODULE (nvidia_peermem, nv_peer_mem) again, in a tree of its own, and puts the result in place of
# what is there; "built again for KERNEL", one a line. What does not build, or has no peer memory again, leaves the host as it was.
set -u
module=$1
shift
symbol=ib_register_peer_memory_client
work=/var/lib/gpuprov/rebuild

restore() { # what this run, or one that was cut off, had begun to replace
  [ -d "$work/old" ] && [ -s "$work/home" ] || return 0
  home=$(cat "$work/home") && rm -rf "$home" && mkdir -p "${home%/*}" && mv "$work/old" "$home" || return 1
  IFS=/ read -r name version kernel rest << END
${home#/var/lib/dkms/}
END
  dkms install --force -m "$name" -v "$version" -k "$kernel" > /dev/null 2>&1
}

command -v dkms > /dev/null || { echo "DKMS is not installed, so the modules came ready-made: they cannot be built again here"; exit 1; }
restore || { echo "modules that an earlier run was to replace cannot be put back: $work/old"; exit 1; }
rm -rf "$work"
mkdir -p "$work/tree" || exit 1
trap 'restore && rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
case $module in nv_peer_mem) files='nv_peer_mem.ko*' ;; *) files='nvidia*peermem.ko*' ;; esac

uses() { # FILE
  case $1 in *.xz) cat=xzcat ;; *.zst) cat=zstdcat ;; *.gz) cat=zcat ;; *) cat=cat ;; esac
  $cat "$1" 2> /dev/null | grep -aqF "$symbol"
}

for kernel in "$@"; do
  there=$(find /var/lib/dkms/*/*/"$kernel" -name "$files" -path '*/module/*' 2> /dev/null | head -n 1)
  if [ -z "$there" ]; then
    echo "kernel $kernel: $module does not come from DKMS: it came ready-made, or another host built it"
    exit 1
  fi
  relative=${there#/var/lib/dkms/}
  name=${relative%%/*} relative=${relative#*/}
  version=${relative%%/*}
  aside() {
    action=$1
    shift
    dkms "$action" --dkmstree "$work/tree" --sourcetree /usr/src -m "$name" -v "$version" "$@"
  }
  [ -e "$work/tree/$name/$version" ] || aside add > "$work/log" 2>&1 || { echo "$name/$version:"; tail -n 8 "$work/log"; exit 1; }
  if ! aside build -k "$kernel" > "$work/log" 2>&1; then
    echo "kernel $kernel, $name/$version:"
    log=$(find "$work/tree" -name make.log -print -quit)
    { grep -E ': (fatal )?error:|^ERROR: ' "${log:-$work/log}" || tail -n 8 "${log:-$work/log}"; } | cut -c1-200 | head -n 8
    exit 1
  fi
  made=$(find "$work/tree/$name/$version/$kernel" -name "$files" -path '*/module/*' | head -n 1)
  if [ -z "$made" ] || ! uses "$made"; then
    echo "kernel $kernel, $name/$version: built again without peer memory, for its build finds no $symbol in OFED's Module.symvers"
    exit 1
  fi
  old=${there%/module/*} new=${made%/module/*}
  # A copy that is whole, before anything is taken away: what ends this program from here on puts it back.
  echo "$old" > "$work/home" && cp -a "$old" "$work/copy" && mv "$work/copy" "$work/old" ||
    { echo "kernel $kernel: $old cannot be kept aside in $work: is the file system full?"; exit 1; }
  dkms uninstall -m "$name" -v "$version" -k "$kernel" > "$work/log" 2>&1
  if ! { rm -rf "$old" && cp -a "$new" "$old"; } 2> "$work/log"; then
    echo "kernel $kernel: $old cannot be replaced:"
    tail -n 2 "$work/log"
    exit 1
  fi
  if ! dkms install --force -m "$name" -v "$version" -k "$kernel" > "$work/log" 2>&1; then
    echo "kernel $kernel, $name/$version: DKMS does not install what it built:"
    tail -n 8 "$work/log"
    exit 1
  fi
  rm -f "$work/home"
  rm -rf "$work/old" "/var/lib/dkms/$name/original_module"
  echo "built again for $kernel"
done
