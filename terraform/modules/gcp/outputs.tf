output "nodes" {
  description = "The machines by rank."
  value = [
    for rank in [for i in range(length(var.nodes)) : tostring(i)] : {
      rank             = local.nodes[rank].rank
      id               = google_compute_instance.node[rank].id
      address          = try(google_compute_instance.node[rank].network_interface[0].access_config[0].nat_ip, google_compute_instance.node[rank].network_interface[0].network_ip)
      private_address  = google_compute_instance.node[rank].network_interface[0].network_ip
      zone             = google_compute_instance.node[rank].zone
      market           = local.nodes[rank].market
      max_usd_per_hour = local.nodes[rank].max_usd_per_hour
    }
  ]
}

output "network" {
  description = "The network that gangs share, with its subnets by zone: for machines with a public address, and without."
  value = !local.network_only ? null : {
    network_id         = local.network_id
    subnet_ids         = { for subnet in google_compute_subnetwork.gang : "" => subnet.id }
    private_subnet_ids = {}
    zones              = var.shared_zones
  }
}
