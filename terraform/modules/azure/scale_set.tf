# InfiniBand: one uniform scale set in a single placement group. Its machines are alike, so they get one text of user
# data, in which each keeps the part of its rank: a set numbers its machines from 0, and the number is the rank.

locals {
  set   = local.infiniband ? 1 : 0
  first = local.infiniband ? local.nodes["0"] : null
  kinds = distinct([for rank, n in local.nodes : jsonencode([n.instance_type, n.market, local.zone[rank], n.max_usd_per_hour])])

  texts = [for rank in range(length(var.nodes)) : lookup(var.user_data, tostring(rank), "")]
  lines = [for text in local.texts : split("\n", text)]
  heads = distinct([for lines in local.lines : lines[0]])
  # cloud-init renders this as a template; a machine's name in it is SET_NUMBER. The first line (#cloud-config, #!...) is
  # common to all: cloud-init goes by it.
  by_rank = join("", concat(
    ["## template: jinja\n", try(local.heads[0], ""), "\n"],
    [
      for rank, lines in local.lines : join("", [
        "{% if ds.meta_data.imds.compute.name.endswith('_${rank}') %}{% raw %}\n",
        join("\n", slice(lines, 1, length(lines))), "{% endraw %}{% endif %}",
      ])
    ],
  ))
  idle     = alltrue([for text in local.texts : text == ""])
  shared   = local.idle ? null : base64gzip(local.by_rank)
  possible = local.idle || alltrue([for t in local.texts : can(regex("^(#cloud-config|#!)", t)) && !strcontains(t, "endraw")]) && length(local.heads) == 1
}

resource "azurerm_linux_virtual_machine_scale_set" "gang" {
  count                = local.set
  name                 = local.name
  computer_name_prefix = local.name
  location             = var.region
  zones                = local.first.zone == null ? null : [local.first.zone]
  resource_group_name  = azurerm_resource_group.gang.name
  sku                  = local.first.instance_type
  instances            = length(var.nodes)
  custom_data          = local.shared

  single_placement_group      = true
  overprovision               = false
  platform_fault_domain_count = 1
  upgrade_mode                = "Manual"

  priority        = local.first.market == "spot" ? "Spot" : "Regular"
  eviction_policy = local.first.market == "spot" ? "Delete" : null
  max_bid_price   = local.bid["0"]

  admin_username                  = "stepfare"
  disable_password_authentication = true
  dynamic "admin_ssh_key" {
    for_each = var.ssh_public_key == null ? [] : [var.ssh_public_key]
    content {
      username   = "stepfare"
      public_key = admin_ssh_key.value
    }
  }

  network_interface {
    name                           = "gang"
    primary                        = true
    accelerated_networking_enabled = true
    network_security_group_id      = azurerm_network_security_group.gang.id
    ip_configuration {
      name                           = "gang"
      primary                        = true
      subnet_id                      = local.subnet["0"]
      application_security_group_ids = [azurerm_application_security_group.gang.id]
    }
  }

  encryption_at_host_enabled = true
  os_disk {
    caching              = "ReadWrite"
    storage_account_type = "Premium_LRS"
    disk_size_gb         = var.disk_gib
  }
  source_image_id = local.image_id
  dynamic "source_image_reference" {
    for_each = local.hpc_images["0"]
    content {
      publisher = source_image_reference.value[0]
      offer     = source_image_reference.value[1]
      sku       = source_image_reference.value[2]
      version   = source_image_reference.value[3]
    }
  }

  dynamic "identity" {
    for_each = azurerm_user_assigned_identity.node[*].id
    content {
      type         = "UserAssigned"
      identity_ids = [identity.value]
    }
  }
  tags = local.tags

  lifecycle {
    precondition {
      condition     = var.ssh_public_key != null
      error_message = "Azure makes no Linux machine without a key to log in with: set ssh_public_key."
    }
    precondition {
      condition     = length(local.kinds) == 1 && length(var.nodes) <= 100
      error_message = "fabric infiniband: a single placement group holds at most 100 machines, of one type, zone, market and ceiling."
    }
    precondition {
      condition     = local.first.market != "reserved"
      error_message = "fabric infiniband: Azure takes a capacity reservation into no single placement group."
    }
    precondition {
      condition     = local.subnet["0"] != null
      error_message = "The given network has no subnet for this zone, and none for the region (\"\")."
    }
    precondition {
      condition     = local.possible && (local.shared == null || length(coalesce(local.shared, "-")) <= 87380)
      error_message = "fabric infiniband: every rank's user data begins with the same line, #cloud-config or #!, and together they fit 64 KiB compressed."
    }
  }
  depends_on = [
    azurerm_network_security_rule.gang,
    azurerm_network_security_rule.nobody_else,
    azurerm_subnet_nat_gateway_association.out,
    azurerm_nat_gateway_public_ip_association.out,
    azurerm_role_assignment.checkpoints,
  ]
}

# What the set itself does not tell: its machines.
data "azurerm_virtual_machine_scale_set" "gang" {
  count               = local.set
  name                = azurerm_linux_virtual_machine_scale_set.gang[0].name
  resource_group_name = azurerm_resource_group.gang.name

  lifecycle {
    postcondition {
      condition     = toset(self.instances[*].instance_id) == toset(keys(local.nodes))
      error_message = "The scale set has other machines than 0 to ${length(var.nodes) - 1}: a lost one comes back under a new number. Destroy the attempt and make another."
    }
  }
}
