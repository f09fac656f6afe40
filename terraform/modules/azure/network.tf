# A network, unless one is given: machines call out, nothing outside calls in (security.tf). It is the attempt's own, or
# one for all gangs of the region (shared_zones; nothing else is made then but empty security groups). A subnet spans the
# region here. Machines of their own have a public address each to call out from; those of a scale set share a NAT
# gateway, in a subnet apart; a given network has its own way out.

locals {
  made         = var.network.network_id == null
  network_only = var.shared_zones != null
  given        = coalesce(var.network.subnet_ids, {})
  subnet = {
    for rank, zone in local.zone : rank =>
    !local.made ? lookup(local.given, zone, lookup(local.given, "", null)) : one(local.infiniband ? azurerm_subnet.private[*].id : azurerm_subnet.gang[*].id)
  }
  public = local.made || var.network.public ? local.single : {}
  nat    = local.made && var.fabric == "infiniband" && (local.network_only || local.infiniband) ? 1 : 0
}

resource "azurerm_virtual_network" "gang" {
  count               = local.made ? 1 : 0
  name                = local.name
  location            = var.region
  resource_group_name = azurerm_resource_group.gang.name
  address_space       = ["10.64.0.0/16"]
  tags                = local.tags
}

resource "azurerm_subnet" "gang" {
  count                = local.made && (local.network_only || local.nat == 0) ? 1 : 0
  name                 = "gang"
  resource_group_name  = azurerm_resource_group.gang.name
  virtual_network_name = azurerm_virtual_network.gang[0].name
  address_prefixes     = ["10.64.0.0/17"]
  # The way to storage in the region without leaving Azure's network.
  service_endpoint {
    service = "Microsoft.Storage"
  }
  # Azure's way out that nobody asked for is being retired.
  default_outbound_access_enabled = false
}

resource "azurerm_subnet" "private" {
  count                = local.nat
  name                 = "private"
  resource_group_name  = azurerm_resource_group.gang.name
  virtual_network_name = azurerm_virtual_network.gang[0].name
  address_prefixes     = ["10.64.128.0/17"]
  service_endpoint {
    service = "Microsoft.Storage"
  }
  default_outbound_access_enabled = false
}

resource "azurerm_public_ip" "node" {
  for_each            = local.public
  name                = "${local.name}-${each.key}"
  location            = var.region
  resource_group_name = azurerm_resource_group.gang.name
  sku                 = "Standard"
  allocation_method   = "Static"
  tags                = local.tags
}

resource "azurerm_public_ip" "out" {
  count               = local.nat
  name                = "${local.name}-out"
  location            = var.region
  resource_group_name = azurerm_resource_group.gang.name
  sku                 = "Standard"
  allocation_method   = "Static"
  tags                = local.tags
}

resource "azurerm_nat_gateway" "out" {
  count               = local.nat
  name                = "${local.name}-out"
  location            = var.region
  resource_group_name = azurerm_resource_group.gang.name
  sku_name            = "Standard"
  tags                = local.tags
}

resource "azurerm_nat_gateway_public_ip_association" "out" {
  count                = local.nat
  nat_gateway_id       = azurerm_nat_gateway.out[0].id
  public_ip_address_id = azurerm_public_ip.out[0].id
}

resource "azurerm_subnet_nat_gateway_association" "out" {
  count          = local.nat
  subnet_id      = azurerm_subnet.private[0].id
  nat_gateway_id = azurerm_nat_gateway.out[0].id
}
