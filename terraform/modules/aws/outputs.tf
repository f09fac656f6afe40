output "nodes" {
  description = "The machines by rank."
  value = [
    for rank in [for i in range(length(var.nodes)) : tostring(i)] : {
      rank             = local.nodes[rank].rank
      id               = aws_instance.node[rank].id
      address          = try(length(aws_instance.node[rank].public_ip), 0) > 0 ? aws_instance.node[rank].public_ip : aws_instance.node[rank].private_ip
      private_address  = aws_instance.node[rank].private_ip
      zone             = local.nodes[rank].zone
      market           = local.nodes[rank].market
      max_usd_per_hour = local.nodes[rank].max_usd_per_hour
    }
  ]
}

output "network" {
  description = "The network that gangs share, with its subnets by zone: for machines with a public address, and without."
  value = !local.network_only ? null : {
    network_id         = local.network_id
    subnet_ids         = { for zone, subnet in aws_subnet.gang : zone => subnet.id }
    private_subnet_ids = { for zone, subnet in aws_subnet.private : zone => subnet.id }
    zones              = var.shared_zones
  }
}
