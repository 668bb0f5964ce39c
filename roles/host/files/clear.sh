# shellcheck shell=sh
# Removes what killed runs left in Ansible's folders of gpuprov; runs as the user who logs in.
cd ~/.ansible/tmp 2> /dev/null || exit 0
rm -rf gpuprov/ansible-tmp-*
[ ! -d gpuprov-plan ] || find gpuprov-plan -mindepth 1 -maxdepth 1 -name 'ansible-tmp-*' -mmin +1440 -exec rm -rf {} +
