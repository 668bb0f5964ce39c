"""Masking of secrets in the output of hosts and programs with `***`, so that it can be shown, or attached to a ticket.

Everything that looks like a secret is masked, even if it is none: user and password before a host, values after names
such as password, token or secret, environment variables that end with _KEY, authorization headers, cookies, private
keys, JSON web tokens, tokens of services in their makers' formats, signatures of URLs, entries of netrc, keys and
credentials of munge and Slurm, and passwords given to a command. Public keys and fingerprints stay.
"""

import re
from collections.abc import Collection

from gpuprov.core.sanitize import mask_bare_logins

MASK = "***"
_NAME = (
    r"(?=[A-Za-z0-9_.-]*?(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|"
    r"client-key-data|credential))[A-Za-z0-9_.-]++|(?:[A-Za-z0-9-]{0,40}[_-])?auth"
)
_VALUE = r"""(?P<quote>["'])(?P<quoted>(?:[^"'\\\n]|\\.)+)(?P=quote)|(?P<bare>[^\s,;}\]"']+)"""
_NAMED = re.compile(rf"""(?i)(?P<head>(?<![A-Za-z0-9_.-])(?P<name>{_NAME})["']?[ \t]*[:=][ \t]*)(?:{_VALUE})""")
# A variable of the environment, or a key file of munge or Slurm with its content. A path is not a secret.
_VARIABLE = re.compile(
    rf"""(?P<head>(?<![A-Za-z0-9_])(?P<name>(?!PUB)[A-Z](?:[A-Z0-9]|_(?!PUB)){{0,60}}_(?:KEY|PASS|PWD|JWT)|(?i:[a-z0-9_.-]{{0,40}}"""
    rf"""(?:munge|jwt|slurm)[a-z0-9_.-]{{0,40}}key))["']?[ \t]*[:=][ \t]*)(?![/~$])(?:{_VALUE})"""
)
# `--proxy-password VALUE`, in a command.
_OPTION = re.compile(rf"""(?i)(?P<head>(?<!\S)--(?P<name>{_NAME})[ \t]+)(?!-)(?:{_VALUE})""")
_HARMLESS = re.compile(r"(?i)(?:[0-9.]{1,9}|true|false|yes|no|on|off|none|null|amd64|arm64|\*+)\Z")
_PLACE = re.compile(r"(?i).*(?:file|path|dir|stdin)\Z")
# Tokens with a prefix that identifies their service: the alphabet, and a minimum length below that of any token.
_FORMATS = (
    r"(?:AKIA|ASIA|LTAI)[A-Za-z0-9]{12,}(?![A-Za-z0-9])",  # AWS, Alibaba Cloud
    r"gh[pousr]_[A-Za-z0-9]{30,}",  # GitHub
    r"github_pat_[A-Za-z0-9_]{30,}",
    r"glpat-[A-Za-z0-9_.-]{20,}",  # GitLab
    r"xox[abeoprs]-[0-9][A-Za-z0-9-]{15,}",  # Slack
    r"sk-(?:proj|svcacct|admin|ant)-[A-Za-z0-9_-]{20,}",  # OpenAI, Anthropic
    r"sk-[A-Za-z0-9]{32,}",
    r"hf_(?=[a-z]{0,40}[A-Z0-9])[A-Za-z0-9]{28,}",  # Hugging Face
    r"nvapi-[A-Za-z0-9_-]{30,}",  # NVIDIA
    r"dckr_pat_[A-Za-z0-9_-]{20,}",  # Docker
    r"AIza[A-Za-z0-9_-]{35}",  # Google
    r"grub\.pbkdf2\.sha512\.[0-9]{1,9}\.[0-9A-Fa-f.]{20,}",  # GRUB, which prints a hash
)
# Commands that take a password as an option of one letter.
_LOGIN = r"""(\b(?:(?:docker|podman|nerdctl|buildah|skopeo|oras)[ \t]+login\b[^\n;|&]{0,200}?|sshpass)[ \t]-p[ \t=]?)(?!["']?\*)"""
_USER_OPTION = (
    r"""(\b(?:curl\b[^\n;|&]{0,200}?[ \t](?:-[uU]|--user|--proxy-user)[ \t=]?["']?[^\s:"']{1,100}:"""
    r"""|ipmitool\b[^\n;|&]{0,200}?[ \t]-P[ \t]?["']?))(?!\*)"""
)
# An entry of ~/.netrc, or of /etc/apt/auth.conf, also over several lines.
_NETRC = (
    r"(?i)(\b(?:machine\s{1,9}\S{1,200}|default)(?:\s{1,9}(?:login|account)\s{1,9}\S{1,200}){0,2}\s{1,9}password\s{1,9}"
    r"|^[ \t]*password[ \t]{1,9}(?=\S+[ \t]*$))(?!\*)"
)
# A credential of munge: https://github.com/dun/munge/wiki/Installation-Guide
_MUNGE = r"(\bMUNGE:)[A-Za-z0-9+/=]{16,}:?"
# A symmetric key in a JSON Web Key Set: https://www.rfc-editor.org/rfc/rfc7518#section-6.4
_JWKS = r"""(["']k["'][ \t]*:[ \t]*["'])[A-Za-z0-9+/=_-]{16,}"""
_PAIR = r"""[^\s=;,"'*]{1,100}=[^\s;,"']+"""
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL), MASK),
    (re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://)(?!\*\*\*@)[^/\s\"']+@"), rf"\1{MASK}@"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,2000}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+"), MASK),
    (re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_FORMATS)})"), MASK),
    (re.compile(r"(?i)([?&;](?:x-amz-signature|x-goog-signature|sig)=)[A-Za-z0-9%+/=_-]{8,}"), rf"\1{MASK}"),
    (re.compile(_LOGIN + r"""(["'])[^"'\n]+\2"""), rf"\1\2{MASK}\2"),
    (re.compile(_LOGIN + r"""[^\s"';|&]+"""), rf"\1{MASK}"),
    (re.compile(rf"""(?i)(\bcookie["']?[ \t]*:[ \t]*["']?){_PAIR}(?:;[ \t]*{_PAIR}){{0,100}}"""), rf"\1{MASK}"),
    (
        re.compile(
            r"""((?<![A-Za-z0-9_.-])(?:[A-Z][A-Za-z]{0,40}P|p)ass=)(?!\*)(?!(?:on|off|yes|no|[0-9]{1,9})\b)[^\s"',;]+"""
        ),
        rf"\1{MASK}",
    ),
    (re.compile(_USER_OPTION + r"""[^\s"']+"""), rf"\1{MASK}"),
    (re.compile(_NETRC + r"[^\s]+", re.MULTILINE), rf"\1{MASK}"),
    (re.compile(_MUNGE), rf"\1{MASK}"),
    (re.compile(_JWKS), rf"\1{MASK}"),
    (re.compile(r"(?i)(\b(?:bearer|basic) +)[A-Za-z0-9+/=._~-]{8,}"), rf"\1{MASK}"),
    (
        re.compile(r"(?i)(\bauthorization[\"']?[ \t]*[:=][ \t]*[\"']?(?:bearer|basic|token)[ \t]+)(?!\*)[^\s\"',;]+"),
        rf"\1{MASK}",
    ),
)


def masked(text: str, secrets: Collection[str] = ()) -> tuple[str, int]:
    """Return the text without secrets, and the number of replacements. `secrets`: values to hide anywhere.

    Quotes stay, so that a configuration can still be read. Switches, small numbers and paths are not secrets.
    """
    count = 0
    for secret in sorted((value for value in secrets if len(value) >= 4), key=len, reverse=True):
        count += text.count(secret)
        text = text.replace(secret, MASK)
    for pattern, replacement in _PATTERNS:
        text, hidden = pattern.subn(replacement, text)
        count += hidden
    text, hidden_logins = mask_bare_logins(text, MASK)
    hidden_values = 0

    def hide(match: re.Match[str]) -> str:
        nonlocal hidden_values
        value = match["quoted"] or match["bare"]
        if _HARMLESS.match(value) or _PLACE.match(match["name"]):
            return match[0]
        hidden_values += 1
        quote = match["quote"] or ""
        return f"{match['head']}{quote}{MASK}{quote}"

    text = _OPTION.sub(hide, _VARIABLE.sub(hide, _NAMED.sub(hide, text)))
    return text, count + hidden_logins + hidden_values
