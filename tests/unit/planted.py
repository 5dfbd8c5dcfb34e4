"""Secrets to plant, each as it turns up in flags, logs, answers and variables. Put together here, so that no scanner of
repositories takes one for real."""

from __future__ import annotations

from collections.abc import Mapping

_BODY = "Pl4ntedQ7w9" * 4
"""What must be found nowhere."""


def _of(*parts: str, length: int = 24) -> str:
    return "".join(parts) + _BODY[:length]


_PLAIN = _BODY[:22]
_JWT = ".".join(("ey" + "J" + _BODY[:16], "ey" + "J" + _BODY[4:24], _BODY[1:30]))
_WEBHOOK = f"https://hooks.{'slack'}.com/services/T0{_BODY[:8]}/B0{_BODY[2:10]}/{_BODY[:24]}"
_DISCORD = f"https://{'discord'}.com/api/webhooks/12345/{_BODY[:30]}"
_PEM = f"-----BEGIN RSA {'PRIVATE'} KEY-----\n{_BODY}\n{_BODY}\n-----END RSA {'PRIVATE'} KEY-----"
_PRESIGNED = f"https://b.s3.amazonaws.com/o?X-Amz-Algorithm=AWS4&X-Amz-{'Signature'}={_BODY[:32]}"

PLANTED: Mapping[str, str] = {
    # By a prefix, with nothing around them.
    "hugging face": f"login with {_of('h', 'f_')} failed",
    "openai": f"using {_of('s', 'k-proj-')}",
    "anthropic": f"using {_of('s', 'k-ant-api03-')}",
    "github": f"cloned with {_of('g', 'hp_', length=36)}",
    "github, fine": f"cloned with {_of('github', '_pat_', length=40)}",
    "gitlab": f"cloned with {_of('gl', 'pat-')}",
    "slack": f"posted with {_of('xo', 'xb-')}",
    "nvidia": f"pulled with {_of('nv', 'api-')}",
    "groq": f"asked {_of('gs', 'k_')}",
    "aws key id": f"signed by {'AK' + 'IA'}{_BODY[:16].upper()}",
    "google": f"maps {_of('AI', 'za', length=35)}",
    "npm": f"published with {_of('np', 'm_', length=36)}",
    "pypi": f"uploaded with {_of('py', 'pi-', length=40)}",
    "docker": f"pulled with {_of('dckr', '_pat_')}",
    "vault": f"unwrapped {_of('hv', 's.')}",
    "jwt": f"bearer of {_JWT}",
    "private key": _PEM,
    "slack webhook": f"posting to {_WEBHOOK}",
    "discord webhook": f"posting to {_DISCORD}",
    # By what they are called.
    "flag": f"serve --hf-token {_PLAIN} --port 1",
    "flag with =": f"serve --admin-api-key={_PLAIN}",
    "password flag": f"serve --ssl-keyfile-password {_PLAIN}",
    "quoted flag": f"['serve', '--hf-token', '{_PLAIN}']",
    "variable": f"PGPASSWORD={_PLAIN} psql",
    "variable, any characters": f"DB_PASS=Pl4n,ted)Q7;w9{_PLAIN}",
    "signing key": f"export SIGNING_KEY={_PLAIN}",
    "personal token": f"env: GH_PAT={_PLAIN}",
    "jwt variable": f"SERVICE_JWT: {_PLAIN}",
    "sas": f"STORAGE_SAS={_PLAIN}",
    "plugin key": f"SGLANG_PLUGIN_KEY={_PLAIN}",
    "license": f"VLLM_LICENSE={_PLAIN}",
    "webhook variable": f"ALERT_WEBHOOK=https://x.example/{_PLAIN}",
    "keyword": f"ServerArgs(host='h', api_key='{_PLAIN}', port=1)",
    "json": f'{{"client_secret": "{_PLAIN}", "port": 1}}',
    # By where they stand.
    "bearer": f"Authorization: Bearer {_PLAIN}",
    "basic": f"authorization: Basic {_PLAIN}==",
    "digest": f'Authorization: Digest username="u", response="{_PLAIN}"',
    "cookie": f"Cookie: a=1; session={_PLAIN}; b=2",
    "url": f"pip -i https://user:{_PLAIN}@host/simple",
    "url, odd password": f"redis://:{_PLAIN}/x@host:6379",
    "url, user alone": f"https://{_PLAIN}@host/x.git",
    "presigned": f"GET {_PRESIGNED}",
    "azure sas": f"https://a.blob.core.windows.net/c?sv=2024&sig={_PLAIN}",
    "connection string": f"connection_string=AccountKey-{_PLAIN}",
    "curl": f"curl -u me:{_PLAIN} http://h",
    "hidden by an escape": f"api_\x1b[0mkey={_PLAIN}",
    "hidden by nothing": f"api_key=\u200b{_PLAIN}",
}


def leaks(text: str) -> bool:
    """Whether a piece of a planted secret is in it."""
    return "Pl4n" in text or "PL4N" in text or "Q7w9" in text or "\\u200b" in text
