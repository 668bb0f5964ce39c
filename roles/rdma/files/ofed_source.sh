#!/bin/sh
# usage: ofed_source.sh FILE: installs the doca-host package, which brings a package source, and fetches the lists of that source.
# Managed by gpuprov.
refuse() {
  echo "$*" >&2
  exit 1
}
case $1 in
  *.deb)
    name=$(dpkg-deb -f "$1" Package) || refuse "it is no Debian package"
    case $name in doca-host*) ;; *) refuse "it is $name, not doca-host" ;; esac
    said=$(DEBIAN_FRONTEND=noninteractive dpkg -i "$1" 2>&1 </dev/null) || refuse "dpkg -i: $(echo "$said" | tail -n 3 | paste -sd ' ')"
    sources=$(grep -ls doca-host /etc/apt/sources.list.d/*) || refuse "it brought no package source for apt"
    for source in $sources; do
      said=$(apt-get -qq -o Dir::Etc::sourceparts=- -o "Dir::Etc::sourcelist=$source" -o APT::Get::List-Cleanup=0 \
        -o APT::Update::Error-Mode=any update 2>&1 </dev/null) || refuse "apt-get update of $source: $(echo "$said" | paste -sd ' ')"
    done
    ;;
  *.rpm)
    name=$(rpm -qp --qf '%{NAME}' "$1" 2>/dev/null) || refuse "it is no rpm package"
    case $name in doca-host*) ;; *) refuse "it is $name, not doca-host" ;; esac
    said=$(rpm -U --replacepkgs --oldpackage "$1" 2>&1 </dev/null) || refuse "rpm -U: $(echo "$said" | tail -n 3 | paste -sd ' ')"
    ls /etc/yum.repos.d/*doca* >/dev/null 2>&1 || refuse "it brought no package source for dnf"
    said=$(dnf -q -y --disablerepo='*' --enablerepo='doca*' makecache --refresh 2>&1 </dev/null) || refuse "dnf makecache: $said"
    ;;
esac
