# The way out for machines without a public address: one gateway, in a subnet of its own beside theirs.

locals {
  private_zones = toset(local.behind_nat ? local.network_zones : [])
  # The first that was asked for: it stays where it is when others come.
  gateway_zone = try(local.network_zones[0], "")
}

resource "aws_subnet" "private" {
  for_each             = local.private_zones
  region               = var.region
  vpc_id               = aws_vpc.gang[0].id
  cidr_block           = cidrsubnet(aws_vpc.gang[0].cidr_block, 5, 16 + local.place[each.key])
  availability_zone_id = each.key == "" ? null : each.key
  tags                 = merge(local.tags, { Name = "${local.name}-private-${each.key == "" ? "any" : each.key}" })
}

resource "aws_route_table" "private" {
  count  = local.behind_nat ? 1 : 0
  region = var.region
  vpc_id = aws_vpc.gang[0].id
  route {
    cidr_block     = "0.0.0.0/0"
    nat_gateway_id = aws_nat_gateway.out[0].id
  }
  tags = merge(local.tags, { Name = "${local.name}-private" })
}

resource "aws_route_table_association" "private" {
  for_each       = local.private_zones
  region         = var.region
  subnet_id      = aws_subnet.private[each.key].id
  route_table_id = aws_route_table.private[0].id
}

resource "aws_subnet" "out" {
  count                = local.behind_nat ? 1 : 0
  region               = var.region
  vpc_id               = aws_vpc.gang[0].id
  cidr_block           = cidrsubnet(aws_vpc.gang[0].cidr_block, 8, 255)
  availability_zone_id = local.gateway_zone == "" ? null : local.gateway_zone
  tags                 = merge(local.tags, { Name = "${local.name}-out" })
}

resource "aws_route_table_association" "out" {
  count          = local.behind_nat ? 1 : 0
  region         = var.region
  subnet_id      = aws_subnet.out[0].id
  route_table_id = aws_route_table.gang[0].id
}

resource "aws_eip" "out" {
  count  = local.behind_nat ? 1 : 0
  region = var.region
  domain = "vpc"
  tags   = merge(local.tags, { Name = "${local.name}-out" })
}

resource "aws_nat_gateway" "out" {
  count         = local.behind_nat ? 1 : 0
  region        = var.region
  allocation_id = aws_eip.out[0].id
  subnet_id     = aws_subnet.out[0].id
  tags          = merge(local.tags, { Name = "${local.name}-out" })
  # A gateway made before its subnet reaches the internet fails.
  depends_on = [aws_route_table_association.out]
}
