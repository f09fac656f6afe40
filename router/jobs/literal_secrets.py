"""Tell values that look like secrets written out, by the name of their variable or their own shape. Pure.

The list is short on purpose, and the help of `stepfare validate` names it: it warns, and proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from router.jobs.spec import SECRET_FROM_ENVIRONMENT, SECRET_FROM_FILE

# Words of names that hold secrets, and nothing else after them: TOKENIZERS_PARALLELISM and MAX_TOKENS are none.
_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIALS?)$", re.IGNORECASE
)
_SHAPE = re.compile(
    r"(?:AKIA|ASIA)[0-9A-Z]{16}\b"  # AWS
    r"|AIza[\w-]{35}|ya29\.[\w-]{20}"  # Google
    r"|gh[pousr]_\w{30}|github_pat_\w{30}|glpat-[\w-]{20}"  # GitHub, GitLab
    r"|hf_[A-Za-z0-9]{30}|sk-[\w-]{20}|xox[abprs]-[\w-]{10}"  # Hugging Face, OpenAI and others, Slack
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----|\w+://[^/\s:@]+:[^/\s@]+@"  # a key in PEM, a password in a URL
)


_REFERENCES = (SECRET_FROM_ENVIRONMENT, SECRET_FROM_FILE)


def find_literal_secrets(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the names of the variables whose value looks like a secret, and is no reference to one."""
    for name, value in pairs:
        # A path is where a secret lies, not the secret.
        is_named = _NAME.search(name) and not value.startswith(("/", "~"))
        if value and not value.startswith(_REFERENCES) and (is_named or _SHAPE.search(value)):
            yield name
