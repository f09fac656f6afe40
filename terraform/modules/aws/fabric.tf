# EFA: a cluster placement group, and one EFA interface on every network card that carries one.
#
# Reserved machines are in the group that their reservation was made in, or in none: capacity blocks lie close together
# anyway, and EC2 answers a group of ours beside reserved capacity with InsufficientInstanceCapacity, for some machines
# of the gang or all (https://github.com/eksctl-io/eksctl/issues/7949).

locals {
  efa = var.fabric == "efa"

  # Network cards of the types with EFA, as ec2:DescribeInstanceTypes tells them. The first card carries the machine's
  # address too; where it cannot do EFA (plain_first_card) it does only that.
  efa_cards = {
    "g4dn.8xlarge"     = 1, "g4dn.12xlarge" = 1, "g4dn.16xlarge" = 1, "g4dn.metal" = 1
    "g5.8xlarge"       = 1, "g5.12xlarge" = 1, "g5.16xlarge" = 1, "g5.24xlarge" = 1, "g5.48xlarge" = 1
    "g6.8xlarge"       = 1, "g6.12xlarge" = 1, "g6.16xlarge" = 1, "g6.24xlarge" = 1, "g6.48xlarge" = 1
    "g6e.8xlarge"      = 1, "g6e.12xlarge" = 1, "g6e.16xlarge" = 1, "g6e.24xlarge" = 2, "g6e.48xlarge" = 4
    "g7.8xlarge"       = 1, "g7.12xlarge" = 1, "g7.24xlarge" = 1, "g7.48xlarge" = 2
    "g7e.8xlarge"      = 1, "g7e.12xlarge" = 1, "g7e.24xlarge" = 2, "g7e.48xlarge" = 4
    "gr6.8xlarge"      = 1
    "p3dn.24xlarge"    = 1
    "p4d.24xlarge"     = 4, "p4de.24xlarge" = 4
    "p5.4xlarge"       = 1, "p5.48xlarge" = 32, "p5e.48xlarge" = 32, "p5en.48xlarge" = 16
    "p6-b200.48xlarge" = 8, "p6-b300.48xlarge" = 17
    "trn1.32xlarge"    = 8, "trn1n.32xlarge" = 16
    "trn2.3xlarge"     = 1, "trn2.48xlarge" = 16, "trn2u.48xlarge" = 16
  }
  plain_first_card = toset(["p6-b300.48xlarge"])

  cards = { for n in var.nodes : n.instance_type => local.efa ? lookup(local.efa_cards, n.instance_type, 0) : 1... }
  # Type of each interface of a machine type, by card.
  interfaces = {
    for type, counts in local.cards : type => [
      for card in range(max(1, counts[0])) :
      card > 0 ? "efa-only" : local.efa && !contains(local.plain_first_card, type) ? "efa" : "interface"
    ]
  }
}

locals {
  grouped = local.efa && (length(var.nodes) == 0 && !local.network_only || anytrue([for n in var.nodes : n.market != "reserved"]))
  placement_group = {
    for rank, n in local.nodes : rank => n.market == "reserved" ? n.placement_group : one(aws_placement_group.gang[*].name)
  }
}

resource "aws_placement_group" "gang" {
  count    = local.grouped ? 1 : 0
  region   = var.region
  name     = local.name
  strategy = "cluster"
  tags     = local.tags
}
