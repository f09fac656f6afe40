# The way out for machines without a public address: one gateway, in a subnet of its own beside the gang.

resource "aws_subnet" "out" {
  count                = local.behind_nat ? 1 : 0
  region               = var.region
  vpc_id               = aws_vpc.gang[0].id
  cidr_block           = cidrsubnet(aws_vpc.gang[0].cidr_block, 8, 255)
  availability_zone_id = local.first_zone == "" ? null : local.first_zone
  tags                 = merge(local.tags, { Name = "${local.name}-out" })
}

resource "aws_route_table" "out" {
  count  = local.behind_nat ? 1 : 0
  region = var.region
  vpc_id = aws_vpc.gang[0].id
  route {
    cidr_block = "0.0.0.0/0"
    gateway_id = aws_internet_gateway.gang[0].id
  }
  tags = merge(local.tags, { Name = "${local.name}-out" })
}

resource "aws_route_table_association" "out" {
  count          = local.behind_nat ? 1 : 0
  region         = var.region
  subnet_id      = aws_subnet.out[0].id
  route_table_id = aws_route_table.out[0].id
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
