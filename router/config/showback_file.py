"""The showback file: whose accounts the clouds bill, and what their bills call things. No secret belongs into it."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from router.config.document_file import read_one
from router.jobs.fields import Spec, Text

# What a FOCUS file has to name and nobody said.
UNKNOWN = "__unknown__"


class Services(Spec):
    """What the bill calls each service; a name stands for one service alone."""

    machine: Text = "Machines"
    disk: Text = "Disks"
    egress: Text = "Data transfer"
    storage: Text = "Stored objects"
    other: Text = "Other services"


class Account(Spec):
    """Who bills what a cloud sells, to which account."""

    billing_account_id: Text = Field(description="The payer account, in quotes.", examples=["111122223333"])
    billing_account_name: Text | None = Field(default=None, description="Left out: its id.")
    billing_account_type: Text = Field(
        default="Account", description="In the cloud's own words.", examples=["Payer Account"]
    )
    sub_account_id: Text | None = Field(default=None, description="The linked account, project or subscription.")
    sub_account_name: Text | None = Field(default=None, description="Left out: its id.")
    sub_account_type: Text | None = Field(default=None, examples=["Linked Account"])
    provider: Text | None = Field(
        default=None, description="Who sells; left out: the name that stepfare has for the cloud.", examples=["AWS"]
    )
    host: Text | None = Field(default=None, description="Whose hardware it runs on; left out: the provider's.")
    issuer: Text | None = Field(default=None, description="Who sends the bill; left out: the provider.")
    services: Services = Services()
    regions: dict[Text, Text] = Field(
        default_factory=dict,
        description="Names of regions by id; left out: the id.",
        examples=[{"us-east-1": "US East (N. Virginia)"}],
    )


class Showback(Spec):
    """The showback file; everything is optional."""

    accounts: dict[Text, Account] = Field(default_factory=dict, description="By cloud: aws, gcp, ...")
    otherwise: Account = Field(
        default=Account(billing_account_id=UNKNOWN),
        description="Of clouds that are not named above, and of what people added without a cloud.",
    )

    def account(self, cloud: str) -> Account:
        """Of a cloud ("": of none), with names, provider, host and issuer filled in: FOCUS wants them."""
        found = self.accounts.get(cloud, self.otherwise)
        provider = found.provider or cloud or UNKNOWN
        known = {
            "billing_account_name": found.billing_account_name or found.billing_account_id,
            "sub_account_name": found.sub_account_name or found.sub_account_id,
            "provider": provider,
            "host": found.host or provider,
            "issuer": found.issuer or provider,
        }
        return found.model_copy(update=known)


def read_showback(path: Path) -> Showback:
    """The file. InvalidInputError carries everything that is wrong, each with file and line."""
    return read_one(path, Showback)
