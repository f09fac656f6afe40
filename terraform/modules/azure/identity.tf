# What the machines may do in the subscription: read and write blobs of the checkpoint container, nothing else.
# checkpoint_bucket is the container's resource id (.../blobServices/default/containers/NAME). Without one the machines
# have no identity at all.

locals {
  identities = var.checkpoint_bucket == null ? 0 : 1
}

resource "azurerm_user_assigned_identity" "node" {
  count               = local.identities
  name                = local.name
  location            = var.region
  resource_group_name = azurerm_resource_group.gang.name
  tags                = local.tags

  lifecycle {
    precondition {
      condition     = can(regex("/storageAccounts/[^/]+/blobServices/default/containers/[^/]+$", var.checkpoint_bucket))
      error_message = "checkpoint_bucket is a container's resource id on Azure: /subscriptions/.../blobServices/default/containers/NAME."
    }
  }
}

resource "azurerm_role_assignment" "checkpoints" {
  count                = local.identities
  scope                = var.checkpoint_bucket
  role_definition_name = "Storage Blob Data Contributor"
  principal_id         = azurerm_user_assigned_identity.node[0].principal_id
  principal_type       = "ServicePrincipal"
  # A new identity is not everywhere yet; the check would fail for a minute.
  skip_service_principal_aad_check = true
}
