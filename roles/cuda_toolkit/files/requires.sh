# usage: requires.sh FAMILY X-Y...
# A block "@NAME|VERSION" for each version of each package whose name ends with -X-Y, then its dependencies, one a line.
family=$1
shift
for minor; do
  case $family in
  debian)
    apt-cache pkgnames | grep -E -- "-$minor(-config-common)?\$" | xargs -r apt-cache show | awk '
      /^Package: / { name = $2 }
      /^Version: / { version = $2 }
      /^Depends: / { depends = substr($0, 10) }
      /^$/ { tell() }
      END { tell() }
      function tell() {
        if (name) { gsub(/, */, "\n", depends); print "@" name "|" version; print depends }
        name = version = depends = ""
      }'
    ;;
  redhat)
    dnf -q -C --disableplugin=versionlock repoquery --available --showduplicates --disable-modular-filtering \
      --arch "$(uname -m),noarch" --qf '@%{name}|%{version}-%{release}\n%{requires}' "*-$minor" "*-$minor-config-common"
    ;;
  esac
done
