"""The environment in which Ansible runs: only the user's settings for reaching hosts are kept. A setting that changes
the actions or the output of a run would change gpuprov's result: a callback that hides events, tags, another strategy,
`no_log`. So variables are taken from a list, and others in ansible.cfg are overridden: a variable takes precedence over
it. https://docs.ansible.com/ansible/latest/reference_appendices/config.html"""

import os
from collections.abc import Mapping

# Variables to keep, or prefixes if the name ends with `_`, with the reason.
KEPT: dict[str, str] = {
    "ANSIBLE_CONFIG": "the site's ansible.cfg, for what is in this list",
    "ANSIBLE_HOME": "where Ansible keeps its own files",
    "ANSIBLE_COLLECTIONS_PATH": "connection and become plugins of collections",
    "ANSIBLE_CONNECTION_PLUGINS": "the site's own way to reach hosts",
    "ANSIBLE_BECOME_PLUGINS": "the site's own way to become root",
    "ANSIBLE_REMOTE_": "user, port and temporary folder on hosts",
    "ANSIBLE_TRANSPORT": "the connection of hosts that name none",
    "ANSIBLE_TIMEOUT": "seconds to connect",
    "ANSIBLE_PRIVATE_KEY_FILE": "the key to log in with",
    "ANSIBLE_HOST_KEY_CHECKING": "whether unknown host keys are taken",
    "ANSIBLE_SSH_": "options, programs and sockets of ssh",
    "ANSIBLE_SCP_": "the same of scp",
    "ANSIBLE_SFTP_": "the same of sftp",
    "ANSIBLE_PARAMIKO_": "the same of paramiko",
    "ANSIBLE_CONNECTION_PASSWORD_FILE": "the password to log in with",
    "ANSIBLE_PIPELINING": "fewer connections for each task; requiretty forbids it",
    "ANSIBLE_BECOME": "how to become root: method, user, program, flags, password file",
    "ANSIBLE_SUDO_": "the same of sudo",
    "ANSIBLE_SU_": "the same of su",
    "ANSIBLE_DOAS_": "the same of doas",
    "ANSIBLE_PYTHON_INTERPRETER": "the Python of hosts",
    "ANSIBLE_EXECUTABLE": "the shell of hosts",
    "ANSIBLE_SHELL_": "temporary files that an unprivileged user has to read",
    "ANSIBLE_COMMON_REMOTE_GROUP": "the same, by a group",
    "ANSIBLE_SYSTEM_TMPDIRS": "temporary folders of hosts",
    "ANSIBLE_UNSAFE_WRITES": "file systems of hosts on which no file can be replaced",
    "ANSIBLE_NO_TARGET_SYSLOG": "whether hosts log what modules are given",
    "ANSIBLE_TARGET_LOG_INFO": "what they log beside it",
    "ANSIBLE_LOG_PATH": "the site's own log of all runs of Ansible",
    "ANSIBLE_VAULT_": "vaults, for plugins of the site that read them",
    "ANSIBLE_LIBSSH_": "options of the connection plugin of ansible.netcommon",
    "ANSIBLE_DOCKER_": "options of docker's connection plugin",
    "ANSIBLE_PODMAN_": "options of podman's connection plugin",
}

# Ansible's own defaults, independent of ansible.cfg, except for tags and colours.
FORCED: dict[str, str] = {
    # What would change what is run.
    "ANSIBLE_STRATEGY": "linear",
    "ANSIBLE_RUN_TAGS": "all",
    "ANSIBLE_SKIP_TAGS": "none-of-gpuprov",
    "ANSIBLE_GATHERING": "implicit",
    "ANSIBLE_FACTS_MODULES": "smart",
    "ANSIBLE_CACHE_PLUGIN": "memory",
    "ANSIBLE_ANY_ERRORS_FATAL": "false",
    "ANSIBLE_FORCE_HANDLERS": "false",
    "ANSIBLE_HASH_BEHAVIOUR": "replace",
    "ANSIBLE_PRECEDENCE": "all_inventory,groups_inventory,all_plugins_inventory,all_plugins_play,"
    "groups_plugins_inventory,groups_plugins_play",
    "ANSIBLE_TASK_TIMEOUT": "0",
    "ANSIBLE_HOST_PATTERN_MISMATCH": "warning",
    "ANSIBLE_KEEP_REMOTE_FILES": "false",
    # What would wait for an answer.
    "ANSIBLE_ENABLE_TASK_DEBUGGER": "false",
    "ANSIBLE_ASK_PASS": "false",
    "ANSIBLE_BECOME_ASK_PASS": "false",
    "ANSIBLE_ASK_VAULT_PASS": "false",
    # Facts are what a host says: as variables they would win over the inventory's, and name files of this machine that
    # roles copy.
    "ANSIBLE_INJECT_FACT_VARS": "false",
    # What would change what is printed, of which events are made.
    "ANSIBLE_NOCOLOR": "1",
    "ANSIBLE_FORCE_COLOR": "false",
    "ANSIBLE_CALLBACKS_ENABLED": "awx_display",
    "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
    "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "true",
    "ANSIBLE_DISPLAY_OK_HOSTS": "true",
    "ANSIBLE_DISPLAY_FAILED_STDERR": "false",
    "ANSIBLE_DISPLAY_ARGS_TO_STDOUT": "false",
    "ANSIBLE_DISPLAY_TRACEBACK": "never",
    "ANSIBLE_NO_LOG": "false",
    "ANSIBLE_DEBUG": "false",
    "ANSIBLE_VERBOSITY": "0",
    "ANSIBLE_VERBOSE_TO_STDERR": "false",
    "ANSIBLE_DIFF_ALWAYS": "false",
    "ANSIBLE_MAX_DIFF_SIZE": "104448",
}

# Variables that make Python wait for input, print more, or treat a warning of Ansible's as an error.
PYTHONS = (
    "PYTHONINSPECT",
    "PYTHONSTARTUP",
    "PYTHONWARNINGS",
    "PYTHONVERBOSE",
    "PYTHONPROFILEIMPORTTIME",
    "PYTHONDEVMODE",
)
# Variables that change the output of ansible-runner's callback and of Ansible.
RUNNERS = ("ORIGINAL_STDOUT_CALLBACK", "AD_HOC_COMMAND_ID", "AWX_LIB_DIRECTORY", "NO_COLOR", "FORCE_COLOR")


def is_kept(name: str) -> bool:
    """Return whether a variable of the user's is passed to Ansible."""
    if name.startswith(("ANSIBLE_", "_ANSIBLE_")):
        return name in KEPT or name.startswith(tuple(known for known in KEPT if known.endswith(("_", "BECOME"))))
    return name not in PYTHONS + RUNNERS


def in_utf8(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are valid text, as ansible-runner stores them as JSON; of a path, the valid parts."""
    texts = {}
    for name, value in environ.items():
        parts = value.split(os.pathsep) if name.endswith("PATH") else [value]
        if good := [part for part in parts if _is_text(name + part)]:
            texts[name] = os.pathsep.join(good)
    return texts


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def changes(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the changes from this environment to Ansible's; None removes a variable."""
    return {name: None for name in environ if not is_kept(name)} | FORCED
