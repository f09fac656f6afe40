# A network of the attempt's own, unless one is given: machines call out, nothing outside calls in (security.tf).

locals {
  made = var.network.network_id == null
  # The subnet of the zone, else the one for the whole region.
  given = {
    for zone in local.zones : zone => lookup(coalesce(var.network.subnet_ids, {}), zone, lookup(coalesce(var.network.subnet_ids, {}), "", null))
  }
  network_id = local.made ? aws_vpc.gang[0].id : var.network.network_id

  # A machine with several network cards gets no public address of its own, so an EFA gang calls out through a NAT
  # gateway. Others take a public address each: cheaper than a gateway up to nine machines, and no charge by the GB.
  behind_nat = local.made && local.efa
  subnets    = local.made ? local.zones : toset([])
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
  for_each                = local.subnets
  region                  = var.region
  vpc_id                  = aws_vpc.gang[0].id
  cidr_block              = cidrsubnet(aws_vpc.gang[0].cidr_block, 4, index(sort(local.zones), each.key))
  availability_zone_id    = each.key == "" ? null : each.key
  map_public_ip_on_launch = !local.behind_nat
  tags                    = merge(local.tags, { Name = "${local.name}-${each.key == "" ? "any" : each.key}" })
}

resource "aws_route_table" "gang" {
  count  = local.made ? 1 : 0
  region = var.region
  vpc_id = aws_vpc.gang[0].id
  route {
    cidr_block     = "0.0.0.0/0"
    gateway_id     = local.behind_nat ? null : aws_internet_gateway.gang[0].id
    nat_gateway_id = local.behind_nat ? aws_nat_gateway.out[0].id : null
  }
  tags = merge(local.tags, { Name = local.name })
}

resource "aws_route_table_association" "gang" {
  for_each       = local.subnets
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
  route_table_ids   = [aws_route_table.gang[0].id]
  tags              = merge(local.tags, { Name = local.name })
}
