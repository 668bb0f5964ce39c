"""What is masked in outputs: tokens by the form that their makers give them; and what only looks like one."""

from __future__ import annotations

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.core.masking import masked
from gpuprov.explain import explain, in_text
from tests.rows import run_each

LETTERS = "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
SECRETS = {
    "GitHub": "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "GitHub, an app's": "ghs_16C7e42F292c6912E7710c838347Ae178B4a",
    "GitHub, fine-grained": f"github_pat_11ABCDEFG0aBcDeFgHiJkL_{LETTERS}{LETTERS}",
    "GitLab": "glpat-AbCdEfGhIjKlMnOpQrSt",
    "Slack": "xoxb-123456789012-abcdefGHIJKL",
    "OpenAI": f"sk-proj-{LETTERS}",
    "Anthropic": f"sk-ant-api03-{LETTERS}",
    "Hugging Face": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567",
    "NVIDIA": f"nvapi-{LETTERS}",
    "Docker": "dckr_pat_AbCdEfGhIjKlMnOpQrStUvWxYz0",
    "Google": "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "AWS": "AKIAIOSFODNN7EXAMPLE",
}
PLACES = ["{}", "t={}", "error: {}: denied", "'{}'", "https://example.org/?k={}&x=1", "-H X:{}"]
COMMANDS = {
    "docker login -u foo -p {} nvcr.io": "MySecretPw1",
    "podman login -p {} -u foo nvcr.io": "MySecretPw1",
    'docker login -u foo -p "{}" nvcr.io': "My Secret; Pw1",
    "sshpass -p '{}' ssh gpu01": "MySecretPw1",
    "sshpass -p{} ssh gpu01": "MySecretPw1",
    "Cookie: session={}": "eyAbCdEf0123456789",
    "Cookie: a=1; session={}; lang=de": "eyAbCdEf0123456789",
    "set-cookie: sid={}; Path=/": "eyAbCdEf0123456789",
    "proxy = admin:{}@proxy.example.com:3128": "hunter2pw",
    "deb [arch=amd64] admin:{}@mirror/debian stable main": "hunter2pw",
    "export WANDB_KEY={}": "0123456789abcdef",
    'Environment="DATADOG_APP_KEY={}" "FOO=bar"': "0123456789abcdef",
    "DB_PASS={}": "hunter2pw",
    '{{"auths": {{"nvcr.io": {{"auth": "{}"}}}}}}': "JG9hdXRodG9rZW46YWJjZGVm",
    "//registry.example.com/:_auth = {}": "JG9hdXRodG9rZW46YWJjZGVm",
    "REDISCLI_AUTH={}": "hunter2pw",
    "machine nvcr.io\n  login foo\n  password {}\n": "hunter2pw",
    "machine nvcr.io password {} login foo": "hunter2pw",
    "default login foo password {}": "hunter2pw",
    "MUNGE: MUNGE:{}": "AwQFAACfDv8vGQeTrEXd1F8sGQIFb1tGrZlI:",
    "munge.key: {}": "3f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c",
    "jwt_hs256.key = {}": "dGhpc2lzYXNlY3JldGtleWZvcnNsdXJt",
    '{{"kty": "oct", "kid": "1", "k": "{}"}}': "dGhpc2lzYXNlY3JldGtleWZvcnNsdXJt",
    "SLURM_JWT={}": "abcdefghij",
    "curl -fsS -u admin:{} https://mirror.example.com": "hunter2pw",
    "ipmitool -I lanplus -U admin -P {} chassis status": "hunter2pw",
    "https://b.s3.amazonaws.com/m.tar?X-Amz-Signature={}&X-Amz-Date=1": "fe5f80f77d5fa3beca038a248ff027d0445342fe",
    "https://a.blob.core.windows.net/c/f?sv=2022-11-02&sig={}": "Hf8dIbX3yWq0kR7ZP2m9xVbN1cJtLs6uYgE4oAaQwDc%3D",
}
HARMLESS = """\
ghp_short, glpat-short, hf_model, nvapi-key, sk-learn and xoxb- are words
hf_transformers_checkpoint_converter_for_large_models
the task-proj-runner-for-the-nightly-benchmarks-of-all-hosts
ask-ant-colony-optimisation-for-the-layout-of-a-rack
mask-0123456789abcdef0123456789abcdef
disk-by-path-pci-0000-41-00-0-nvme-1-part1
github_pat_ is a prefix
GPU-fe14a161-d1f3-7706-c257-3b22fe15c684
MIG-GPU-fe14a161-d1f3-7706-c257-3b22fe15c684/1/0
sha256:630596340f8e83aa10b0bc13a46db76772e31b7dccfc34d3a4e41ab7e0aa6117
docker run -p 8080:80 nvidia/cuda:12.8.0-base-ubuntu24.04 nvidia-smi
docker login --username foo --password-stdin nvcr.io
mkdir -p /var/lib/gpuprov
cookie: none
AuthAltParameters=jwt_key=/var/spool/slurm/jwt_hs256.key
AuthInfo=/var/run/munge/munge.socket.2
mok_signing_key=/var/lib/dkms/mok.key
SSH_PUBLIC_KEY=AAAAC3NzaC1lZDI1NTE5
auth    required   pam_unix.so
password requisite pam_pwquality.so retry=3
image: nvcr.io/nvidia/cuda:12.4@sha256:0123456789abcdef
user@1000.service 10.1.0.5@tcp:10.1.0.6@tcp:/lustre
https://example.org/?sig=1&design=sigmoid
nvidia-smi -q -d ECC | grep -p x
ssh -p 2222 gpu01
""".splitlines()


@run_each("place", PLACES)
@run_each("maker", SECRETS)
def test_a_token_of_a_known_form_is_masked(maker: str, place: str) -> None:
    text, count = masked(place.format(SECRETS[maker]))
    assert (text, count) == (place.format("***"), 1)
    assert masked(text) == (text, 0)


@run_each("command", COMMANDS)
def test_a_password_of_a_command_and_a_signature_are_masked(command: str) -> None:
    text, count = masked(command.format(COMMANDS[command]))
    assert COMMANDS[command] not in text
    assert count == 1
    assert masked(text) == (text, 0)


@run_each("line", HARMLESS)
def test_what_only_looks_like_a_token_stays(line: str) -> None:
    assert masked(line) == (line, 0)


@run_each("secret", [*SECRETS.values(), "docker login -p MySecretPw1", "Cookie: s=eyAbCdEf0123"])
def test_explain_repeats_no_token(secret: str) -> None:
    """Neither in the line that it shows, nor in that it knows nothing."""
    hidden, line = secret.rsplit(" ", 1)[-1], f"x: {secret}: CUDA out of memory"
    seen = dict(in_text(line, "a log")[0].lines)["seen"]
    assert "CUDA out of memory" in seen
    assert hidden not in seen
    with pytest.raises(GpuprovError) as caught:
        explain(f"nobody knows {secret}")
    assert hidden not in caught.value.message
