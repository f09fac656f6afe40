# What the machines may do in the subscription: read and write blobs of the checkpoint container, read what is
# readable, deallocate themselves where a role for that is given, nothing else. Containers are resource ids (.../blobServices/default/containers/NAME), registries too. Without
# any of these the machines have no identity at all.

locals {
  reads = merge(
    { for container in var.readable.buckets : container => "Storage Blob Data Reader" },
    { for registry in var.readable.registries : registry => "AcrPull" },
  )
  identities = var.checkpoint_bucket == null && length(local.reads) == 0 && var.end_role == null ? 0 : 1
}

variable "end_role" {
  description = "Id of a role that may deallocate machines, which those of the gang have over their own group; null: none."
  type        = string
  default     = null
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

resource "azurerm_role_assignment" "end" {
  count                            = var.end_role == null ? 0 : 1
  scope                            = azurerm_resource_group.gang.id
  role_definition_id               = var.end_role
  principal_id                     = azurerm_user_assigned_identity.node[0].principal_id
  principal_type                   = "ServicePrincipal"
  skip_service_principal_aad_check = true
}
