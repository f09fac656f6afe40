# One machine for each rank, where no InfiniBand joins them.

resource "azurerm_network_interface" "node" {
  for_each                       = local.single
  name                           = "${local.name}-${each.key}"
  location                       = var.region
  resource_group_name            = azurerm_resource_group.gang.name
  accelerated_networking_enabled = true
  ip_configuration {
    name                          = "gang"
    subnet_id                     = local.subnet[each.key]
    private_ip_address_allocation = "Dynamic"
    public_ip_address_id          = local.made || var.network.public ? azurerm_public_ip.node[each.key].id : null
  }
  tags = local.tags

  lifecycle {
    precondition {
      condition     = local.subnet[each.key] != null
      error_message = "The given network has no subnet for this zone, and none for the region (\"\")."
    }
  }
}

resource "azurerm_network_interface_security_group_association" "node" {
  for_each                  = local.single
  network_interface_id      = azurerm_network_interface.node[each.key].id
  network_security_group_id = azurerm_network_security_group.gang.id
}

resource "azurerm_network_interface_application_security_group_association" "node" {
  for_each                      = local.single
  network_interface_id          = azurerm_network_interface.node[each.key].id
  application_security_group_id = azurerm_application_security_group.gang.id
}

resource "azurerm_linux_virtual_machine" "node" {
  for_each              = local.single
  name                  = "${local.name}-${each.key}"
  location              = var.region
  zone                  = each.value.zone
  resource_group_name   = azurerm_resource_group.gang.name
  size                  = each.value.instance_type
  network_interface_ids = [azurerm_network_interface.node[each.key].id]
  custom_data           = lookup(var.user_data, each.key, "") == "" ? null : base64gzip(var.user_data[each.key])

  priority        = each.value.market == "spot" ? "Spot" : "Regular"
  eviction_policy = each.value.market == "spot" ? "Delete" : null
  max_bid_price   = local.bid[each.key]
  # A capacity reservation group's id.
  capacity_reservation_group_id = each.value.reservation

  admin_username                  = "stepfare"
  disable_password_authentication = true
  dynamic "admin_ssh_key" {
    for_each = var.ssh_public_key == null ? [] : [var.ssh_public_key]
    content {
      username   = "stepfare"
      public_key = admin_ssh_key.value
    }
  }

  # Temporary and local NVMe drives too. User data puts a file system on them.
  encryption_at_host_enabled = true
  os_disk {
    caching              = "ReadWrite"
    storage_account_type = "Premium_LRS"
    disk_size_gb         = var.disk_gib
  }
  source_image_id = local.image_id
  dynamic "source_image_reference" {
    for_each = local.hpc_images[each.key]
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
  tags = merge(local.tags, { Name = each.value.name, stepfare_rank = each.key })

  lifecycle {
    precondition {
      condition     = var.ssh_public_key != null
      error_message = "Azure makes no Linux machine without a key to log in with: set ssh_public_key."
    }
    precondition {
      condition     = each.value.market != "reserved" || each.value.reservation != null
      error_message = "A reserved machine on Azure names its capacity reservation group."
    }
  }
  # The first thing user data does is call out, and read the container.
  depends_on = [
    azurerm_network_interface_security_group_association.node,
    azurerm_network_interface_application_security_group_association.node,
    azurerm_network_security_rule.gang,
    azurerm_network_security_rule.nobody_else,
    azurerm_role_assignment.checkpoints,
  ]
}
