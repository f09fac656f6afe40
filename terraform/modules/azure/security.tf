# Closed but for the gang. The gang is an application security group, so the rules hold in a given network too.

resource "azurerm_application_security_group" "gang" {
  name                = local.name
  location            = var.region
  resource_group_name = azurerm_resource_group.gang.name
  tags                = local.tags
}

resource "azurerm_network_security_group" "gang" {
  name                = local.name
  location            = var.region
  resource_group_name = azurerm_resource_group.gang.name
  tags                = local.tags
}

resource "azurerm_network_security_rule" "gang" {
  name                                       = "gang"
  resource_group_name                        = azurerm_resource_group.gang.name
  network_security_group_name                = azurerm_network_security_group.gang.name
  priority                                   = 100
  direction                                  = "Inbound"
  access                                     = "Allow"
  protocol                                   = "*"
  source_port_range                          = "*"
  destination_port_range                     = "*"
  source_application_security_group_ids      = [azurerm_application_security_group.gang.id]
  destination_application_security_group_ids = [azurerm_application_security_group.gang.id]
}

# Azure's default rules let the whole virtual network in; this one comes before them.
resource "azurerm_network_security_rule" "nobody_else" {
  name                        = "nobody-else"
  resource_group_name         = azurerm_resource_group.gang.name
  network_security_group_name = azurerm_network_security_group.gang.name
  priority                    = 4096
  direction                   = "Inbound"
  access                      = "Deny"
  protocol                    = "*"
  source_port_range           = "*"
  destination_port_range      = "*"
  source_address_prefix       = "*"
  destination_address_prefix  = "*"
}
