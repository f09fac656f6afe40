# A network, unless one is given: machines call out, nothing outside calls in (security.tf). It is the attempt's own, or
# one for all gangs of the region (shared_zones; nothing else is made then but an empty security group).

locals {
  made         = var.network.network_id == null
  network_only = var.shared_zones != null
  # The subnet of the zone, else the one for the whole region.
  given = {
    for zone in local.zones : zone => lookup(coalesce(var.network.subnet_ids, {}), zone, lookup(coalesce(var.network.subnet_ids, {}), "", null))
  }
  network_id = local.made ? aws_vpc.gang[0].id : var.network.network_id

  # A machine with several network cards gets no public address of its own, so an EFA gang calls out through a NAT
  # gateway (nat.tf). Others take a public address each: cheaper than a gateway up to nine machines, and no charge by
  # the GB. A shared network has subnets of both kinds once an EFA gang came.
  behind_nat    = local.made && local.efa
  network_zones = local.network_only ? var.shared_zones : sort(local.zones)
  public_zones  = toset(local.made && (local.network_only || !local.behind_nat) ? local.network_zones : [])
  # Each zone has a place of its own among the addresses, so that one that comes later moves no other: 0 for any zone,
  # the number of use1-az4, and 10 to 14 for local zones.
  place = {
    for zone in local.network_zones : zone =>
    zone == "" ? 0 : can(regex("^[a-z]+[0-9]+-az[0-9]$", zone)) ? tonumber(substr(zone, -1, 1)) : 10 + parseint(substr(sha256(zone), 0, 4), 16) % 5
  }
}

resource "aws_vpc" "gang" {
  count                = local.made ? 1 : 0
  region               = var.region
  cidr_block           = "10.64.0.0/16"
  enable_dns_support   = true
  enable_dns_hostnames = true
  tags                 = merge(local.tags, { Name = local.name })
}

resource "aws_internet_gateway" "gang" {
  count  = local.made ? 1 : 0
  region = var.region
  vpc_id = aws_vpc.gang[0].id
  tags   = merge(local.tags, { Name = local.name })
}

resource "aws_subnet" "gang" {
  for_each                = local.public_zones
  region                  = var.region
  vpc_id                  = aws_vpc.gang[0].id
  cidr_block              = cidrsubnet(aws_vpc.gang[0].cidr_block, 5, local.place[each.key])
  availability_zone_id    = each.key == "" ? null : each.key
  map_public_ip_on_launch = true
  tags                    = merge(local.tags, { Name = "${local.name}-${each.key == "" ? "any" : each.key}" })
}

resource "aws_route_table" "gang" {
  count  = local.made ? 1 : 0
  region = var.region
  vpc_id = aws_vpc.gang[0].id
  route {
    cidr_block = "0.0.0.0/0"
    gateway_id = aws_internet_gateway.gang[0].id
  }
  tags = merge(local.tags, { Name = local.name })
}

resource "aws_route_table_association" "gang" {
  for_each       = local.public_zones
  region         = var.region
  subnet_id      = aws_subnet.gang[each.key].id
  route_table_id = aws_route_table.gang[0].id
}

# Checkpoints and data sets in the region's S3 take this way: free, and past the NAT gateway.
resource "aws_vpc_endpoint" "s3" {
  count             = local.made ? 1 : 0
  region            = var.region
  vpc_id            = aws_vpc.gang[0].id
  service_name      = "com.amazonaws.${var.region}.s3"
  vpc_endpoint_type = "Gateway"
  route_table_ids   = concat(aws_route_table.gang[*].id, aws_route_table.private[*].id)
  tags              = merge(local.tags, { Name = local.name })
}
