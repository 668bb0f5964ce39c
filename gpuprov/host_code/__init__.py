"""Code that runs on hosts, imported by gpuprov's Ansible modules as `ansible.module_utils.gpuprov_host_code`.

Standard library only, relative imports only, and no Python newer than 3.8 (docs/adr/0025-modules-of-our-own.md).
"""
