# What the other files derive from the variables.

locals {
  name = "stepfare-${var.attempt}"
  tags = merge(var.tags, { stepfare_attempt = var.attempt })

  nodes = { for n in var.nodes : tostring(n.rank) => n }
  # Zone ids (use1-az4), which mean the same place in every account; "" leaves the choice to the subnet.
  zone  = { for rank, n in local.nodes : rank => n.zone == null ? "" : n.zone }
  zones = toset(values(local.zone))
  subnet = {
    for zone in local.zones : zone =>
    local.behind_nat ? aws_subnet.private[zone].id : local.made ? aws_subnet.gang[zone].id : local.given[zone]
  }

  # Machines that a launch template cannot tell apart share one.
  shape  = { for rank, n in local.nodes : rank => join("/", [n.instance_type, n.market, local.zone[rank]]) }
  shapes = { for rank, key in local.shape : key => rank... }
}
