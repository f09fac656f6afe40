"""Accounts that the clouds bill, and the names on their bills."""

from __future__ import annotations

from pydantic import Field

from router.jobs.fields import Spec, Text

# The value of a field that a FOCUS file must have and nobody gave.
UNKNOWN = "__unknown__"


class Services(Spec):
    """Names of services on the bill; a name stands for one service alone."""

    machine: Text = "Machines"
    disk: Text = "Disks"
    egress: Text = "Data transfer"
    storage: Text = "Stored objects"
    other: Text = "Other services"


class Account(Spec):
    """The issuer of a cloud's bills, and the account that it bills."""

    billing_account_id: Text = Field(description="The payer account, in quotes.", examples=["111122223333"])
    billing_account_name: Text | None = Field(default=None, description="Name of the account; left out: its id.")
    billing_account_type: Text = Field(
        default="Account", description="Type of the account, in the cloud's own words.", examples=["Payer Account"]
    )
    sub_account_id: Text | None = Field(default=None, description="The linked account, project or subscription.")
    sub_account_name: Text | None = Field(default=None, description="Name of the account; left out: its id.")
    sub_account_type: Text | None = Field(default=None, examples=["Linked Account"])
    provider: Text | None = Field(
        default=None,
        description="Name of the seller; left out: the name that stepfare has for the cloud.",
        examples=["AWS"],
    )
    host: Text | None = Field(default=None, description="Owner of the hardware; left out: the provider.")
    issuer: Text | None = Field(default=None, description="Sender of the bill; left out: the provider.")
    services: Services = Services()
    regions: dict[Text, Text] = Field(
        default_factory=dict,
        description="Names of regions by id; left out: the id.",
        examples=[{"us-east-1": "US East (N. Virginia)"}],
    )


class Showback(Spec):
    """The showback file; everything is optional."""

    accounts: dict[Text, Account] = Field(default_factory=dict, description="Accounts by cloud: aws, gcp, ...")
    otherwise: Account = Field(
        default=Account(billing_account_id=UNKNOWN),
        description="Account of clouds that are not named above, and of what people added without a cloud.",
    )

    def account(self, cloud: str) -> Account:
        """Return the account of a cloud ("": of none), with the names, provider, host and issuer that FOCUS wants."""
        account = self.accounts.get(cloud, self.otherwise)
        provider = account.provider or cloud or UNKNOWN
        defaults = {
            "billing_account_name": account.billing_account_name or account.billing_account_id,
            "sub_account_name": account.sub_account_name or account.sub_account_id,
            "provider": provider,
            "host": account.host or provider,
            "issuer": account.issuer or provider,
        }
        return account.model_copy(update=defaults)
