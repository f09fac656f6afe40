# What the machines may do in the subscription: read and write blobs of the checkpoint container, read what is
# readable, nothing else. Containers are resource ids (.../blobServices/default/containers/NAME), registries too. Without
# any of these the machines have no identity at all.

locals {
  reads = merge(
    { for container in var.readable.buckets : container => "Storage Blob Data Reader" },
    { for registry in var.readable.registries : registry => "AcrPull" },
  )
  identities = var.checkpoint_bucket == null && length(local.reads) == 0 ? 0 : 1
}

resource "azurerm_user_assigned_identity" "node" {
  count               = local.identities
  name                = local.name
  location            = var.region
  resource_group_name = azurerm_resource_group.gang.name
  tags                = local.tags

  lifecycle {
    precondition {
      condition     = var.checkpoint_bucket == null || can(regex("/storageAccounts/[^/]+/blobServices/default/containers/[^/]+$", var.checkpoint_bucket))
      error_message = "checkpoint_bucket is a container's resource id on Azure: /subscriptions/.../blobServices/default/containers/NAME."
    }
  }
}

resource "azurerm_role_assignment" "checkpoints" {
  count                = var.checkpoint_bucket == null ? 0 : 1
  scope                = var.checkpoint_bucket
  role_definition_name = "Storage Blob Data Contributor"
  principal_id         = azurerm_user_assigned_identity.node[0].principal_id
  principal_type       = "ServicePrincipal"
  # A new identity is not everywhere yet; the check would fail for a minute.
  skip_service_principal_aad_check = true
}

resource "azurerm_role_assignment" "readable" {
  for_each                         = local.reads
  scope                            = each.key
  role_definition_name             = each.value
  principal_id                     = azurerm_user_assigned_identity.node[0].principal_id
  principal_type                   = "ServicePrincipal"
  skip_service_principal_aad_check = true
}
