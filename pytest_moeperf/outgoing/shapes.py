"""What credentials look like, by their own prefixes, wherever they stand."""

from __future__ import annotations

import re

_BEHIND_A_PREFIX = "|".join(
    (
        r"(?:hf|gsk|npm|r8)_[A-Za-z0-9]{16,}",  # Hugging Face, Groq, npm, Replicate
        r"(?:sk[-_]|rk_(?:live|test)_)[A-Za-z0-9_\-]{16,}",  # OpenAI, Anthropic, Stripe
        r"gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_\-]{16,}|gl(?:dt|rt|cbt|ptt|ft|imt|agent|soat|ffct)-[A-Za-z0-9_\-]{20,}",
        r"xox[abeprs]-[A-Za-z0-9\-]{10,}|xapp-[A-Za-z0-9\-]{10,}",  # Slack
        r"(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[A-Za-z0-9_\-]{30,}|ya29\.[A-Za-z0-9_\-]{20,}|GOCSPX-[A-Za-z0-9_\-]{20,}",
        r"nvapi-[A-Za-z0-9_\-]{16,}|hv[sb]\.[A-Za-z0-9_\-]{20,}|dckr_pat_[A-Za-z0-9_\-]{16,}|pypi-[A-Za-z0-9_\-]{30,}",
        r"dop_v1_[a-f0-9]{32,}|tskey-[A-Za-z0-9\-]{16,}|SG\.[A-Za-z0-9_\-]{16,}\.[A-Za-z0-9_\-]{16,}|ATATT3[A-Za-z0-9_\-=]{20,}",
        r"AGE-SECRET-KEY-1[A-Z0-9]{40,}|lin_api_[A-Za-z0-9]{20,}|shpat_[a-f0-9]{20,}|sntrys_[A-Za-z0-9+/=_]{20,}",
        r"eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]*)*",  # JWT
    )
)
_WEBHOOK = (
    r"(?<=hooks\.slack\.com/)[A-Za-z0-9/_\-]{10,}|(?<=discord\.com/api/webhooks/)[A-Za-z0-9/_\-]{10,}"
    r"|(?<=discordapp\.com/api/webhooks/)[A-Za-z0-9/_\-]{10,}|(?<=webhook\.office\.com/)[A-Za-z0-9/_@\-]{10,}"
)
_PEM = r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?!-----END)[\s\S]){0,8192}(?:-----END [A-Z ]*PRIVATE KEY-----)?"

SHAPES = re.compile(rf"(?<![A-Za-z0-9])(?:{_BEHIND_A_PREFIX})(?![A-Za-z0-9])|{_WEBHOOK}|{_PEM}")
