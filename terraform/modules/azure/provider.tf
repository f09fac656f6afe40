# Credentials and the subscription come from the environment (ARM_SUBSCRIPTION_ID).
provider "azurerm" {
  features {
    resource_group {
      # The group is the attempt's own: whatever is left in it goes with it.
      prevent_deletion_if_contains_resources = false
    }
  }
}
