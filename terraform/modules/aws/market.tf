# A reservation is written as cr-0123..., as the ARN of a resource group of reservations, or as capacity-block:cr-0123...
# for a capacity block, which is a market of its own to EC2.

locals {
  reservation = { for rank, n in local.nodes : rank => n.reservation == null ? "" : trimprefix(n.reservation, "capacity-block:") }
  market_type = {
    for rank, n in local.nodes : rank =>
    n.market == "spot" ? "spot" : n.reservation != null && startswith(coalesce(n.reservation, "-"), "capacity-block:") ? "capacity-block" : null
  }
}
