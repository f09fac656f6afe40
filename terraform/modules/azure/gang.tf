# What the other files derive from the variables, and the group that everything of the attempt lies in.

locals {
  name  = "stepfare-${var.attempt}"
  tags  = merge(var.tags, { stepfare_attempt = var.attempt })
  nodes = { for n in var.nodes : tostring(n.rank) => n }
  zone  = { for rank, n in local.nodes : rank => n.zone == null ? "" : n.zone }

  # InfiniBand joins the machines of one scale set in one placement group (scale_set.tf); others are machines of their
  # own (machines.tf). An availability set would do for InfiniBand too, but takes no spot machines, and a flexible
  # scale set has no InfiniBand.
  infiniband = var.fabric == "infiniband" && length(var.nodes) > 0
  single     = local.infiniband ? {} : local.nodes

  # Spot bids have five decimals; -1 is no ceiling but the price on demand. Rounded down: never above what was agreed.
  bid = {
    for rank, n in local.nodes : rank =>
    n.market != "spot" ? null : n.max_usd_per_hour == null ? -1 : floor(tonumber(n.max_usd_per_hour) * 100000) / 100000
  }
}

resource "azurerm_resource_group" "gang" {
  name     = local.name
  location = var.region
  tags     = local.tags
}
