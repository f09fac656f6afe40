# Credentials and the subscription come from the environment (ARM_SUBSCRIPTION_ID).
provider "azurerm" {
  # Since 5.0 the provider registers nothing by itself, and a new subscription has none of these.
  resource_providers_to_register = ["Microsoft.Compute", "Microsoft.ManagedIdentity", "Microsoft.Network", "Microsoft.Storage"]
  features {
    resource_group {
      # The group is the attempt's own: whatever is left in it goes with it.
      prevent_deletion_if_contains_resources = false
    }
  }
}
