# Closed but for the gang: ranks reach each other on every port, everything else is refused, all may call out.

resource "aws_security_group" "gang" {
  region      = var.region
  name        = local.name
  description = "Machines of attempt ${var.attempt}, among themselves"
  vpc_id      = local.network_id
  tags        = merge(local.tags, { Name = local.name })

  # EFA needs this group (below), whatever else places the machines.
  lifecycle {
    precondition {
      condition     = !local.efa || length(local.zones) <= 1
      error_message = "fabric efa: it reaches no further than one zone, and these nodes name several."
    }
    precondition {
      condition     = !local.efa || alltrue([for n in var.nodes : contains(keys(local.efa_cards), n.instance_type)])
      error_message = "fabric efa: not every machine type here is known to have EFA (fabric.tf lists them)."
    }
  }
}

resource "aws_vpc_security_group_ingress_rule" "gang" {
  region                       = var.region
  security_group_id            = aws_security_group.gang.id
  referenced_security_group_id = aws_security_group.gang.id
  ip_protocol                  = "-1"
  description                  = "From the gang"
  tags                         = local.tags
}

# EFA passes traffic only between members of one group with a rule to itself; the rule to everywhere is not enough.
resource "aws_vpc_security_group_egress_rule" "gang" {
  region                       = var.region
  security_group_id            = aws_security_group.gang.id
  referenced_security_group_id = aws_security_group.gang.id
  ip_protocol                  = "-1"
  description                  = "To the gang"
  tags                         = local.tags
}

resource "aws_vpc_security_group_egress_rule" "out" {
  region            = var.region
  security_group_id = aws_security_group.gang.id
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
  description       = "Packages, images, checkpoints, heartbeats"
  tags              = local.tags
}

resource "aws_key_pair" "gang" {
  count      = var.ssh_public_key == null ? 0 : 1
  region     = var.region
  key_name   = local.name
  public_key = var.ssh_public_key
  tags       = local.tags
}
