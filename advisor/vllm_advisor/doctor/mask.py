"""What a stranger should not read in a quoted line of a log: tokens, keys, passwords and names of users."""

from __future__ import annotations

import re

from vllm_advisor.errors import one_line


_SECRETS = (
    (re.compile(r"\b(hf_|ghp_|github_pat_|sk-|xox[abp]-|nvapi-|AKIA|glpat-)[A-Za-z0-9_\-]{6,}"), r"\1***"),
    (re.compile(r"(?i)(\bbearer\s+|\bbasic\s+)[A-Za-z0-9._~+/=\-]{6,}"), r"\1***"),
    (
        re.compile(
            r"(?i)([\w\-]*(?:api[-_]?key|token|secret|password|passwd|credential)s?['\"]?\s*[=:]\s*|--api-key[=\s]+|--hf-token[=\s]+)"
            r"(\[[^\]]*\]|'[^']*'|\"[^\"]*\"|[^\s,'\"})\]]+)"
        ),
        r"\1***",
    ),
    (re.compile(r"(\w+://)[^\s/@:]+:[^\s/@]+@"), r"\1***@"),
    (re.compile(r"(?:/home|/Users|/mnt/home)/[^\s/'\",:)\]]+|(?<![\w/])/root(?=[/\s'\",:)\]]|$)"), "~"),
    (re.compile(r"(?i)\b[A-Z]:\\+Users\\+[^\s\\'\",:]+"), "~"),
)
# Names that hold one of the words above and are no secret: counts of tokens, and what is printed as a flag.
_HARMLESS = re.compile(
    r"(?i)^(?:[\w\-]*(?:tokens|token_ids?|tokenizer\w*|token_budget|skip_\w+|num_\w*token\w*|max_\w*token\w*)['\"]?\s*[=:])"
)
_LONGEST = 600


def mask(text: str, longest: int = _LONGEST) -> str:
    """`text` without secrets and home folders, control characters gone, cut at `longest`."""
    clean = one_line(text[: longest * 8])
    for expression, instead in _SECRETS:
        clean = _replaced(expression, instead, clean)
    return clean if len(clean) <= longest else clean[:longest] + "…"


def _replaced(expression: re.Pattern[str], instead: str, text: str) -> str:
    return expression.sub(lambda found: found[0] if _HARMLESS.match(found[0]) else found.expand(instead), text)
