"""Places of Azure credentials: a service principal in the environment, or the login of ``az``."""

from __future__ import annotations

from providers.credential_places import CredentialFile, CredentialPlaces

_PRINCIPAL = ("AZURE_CLIENT_ID", "AZURE_TENANT_ID")

PLACES = CredentialPlaces(
    variables=(
        (*_PRINCIPAL, "AZURE_CLIENT_SECRET"),
        (*_PRINCIPAL, "AZURE_CLIENT_CERTIFICATE_PATH"),
        (*_PRINCIPAL, "AZURE_FEDERATED_TOKEN_FILE"),
    ),
    # After `az logout` the list of subscriptions is empty.
    files=(
        CredentialFile(
            ".azure/azureProfile.json", "AZURE_CONFIG_DIR", names_folder=True, pattern=r'"subscriptions"\s*:\s*\[\s*\{'
        ),
    ),
    remedy="none found: run `az login`, or set AZURE_TENANT_ID, AZURE_CLIENT_ID and a secret or certificate",
)
