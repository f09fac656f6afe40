output "nodes" {
  description = "The machines by rank."
  value = [
    for rank in [for i in range(length(var.nodes)) : tostring(i)] : {
      rank             = local.nodes[rank].rank
      id               = terraform_data.node[rank].id
      address          = terraform_data.node[rank].output.address
      private_address  = coalesce(var.hosts[rank].private_address, var.hosts[rank].address)
      zone             = local.nodes[rank].zone
      market           = local.nodes[rank].market
      max_usd_per_hour = local.nodes[rank].max_usd_per_hour
    }
  ]
}
