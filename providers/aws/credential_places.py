"""Places of AWS credentials, in the order of the SDK's chain."""

from __future__ import annotations

from providers.credential_places import CredentialFile, CredentialPlaces

PLACES = CredentialPlaces(
    variables=(
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"),
        ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI",),
    ),
    files=(
        CredentialFile(
            ".aws/credentials",
            "AWS_SHARED_CREDENTIALS_FILE",
            pattern=r"(?m)^\s*(?:aws_access_key_id|credential_process)",
        ),
        CredentialFile(
            ".aws/config",
            "AWS_CONFIG_FILE",
            pattern=r"(?m)^\s*(?:aws_access_key_id|sso_session|sso_start_url|credential_process|role_arn)\b",
        ),
    ),
    remedy="none found: run `aws configure` or `aws sso login`, or name a profile under options",
)
