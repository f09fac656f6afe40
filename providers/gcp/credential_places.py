"""Places of Google's application default credentials, in the order in which google.auth looks."""

from __future__ import annotations

from providers.credential_places import CredentialFile, CredentialPlaces

_FILE = "application_default_credentials.json"

PLACES = CredentialPlaces(
    variables=(),
    files=(
        CredentialFile(f".config/gcloud/{_FILE}", "GOOGLE_APPLICATION_CREDENTIALS"),
        CredentialFile(f".config/gcloud/{_FILE}", "CLOUDSDK_CONFIG", names_folder=True),
    ),
    remedy="none found: run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS",
)
