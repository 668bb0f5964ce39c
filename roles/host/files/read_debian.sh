# usage: read_debian.sh NAME...
# The packages that dpkg knows, what the index has of the named ones, and what is held; a line of "==" between them.
dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Version}|${source:Package}|${Architecture}|${Maintainer}\n'
echo ==
[ $# = 0 ] || apt-cache madison "$@"
echo ==
apt-mark showhold
