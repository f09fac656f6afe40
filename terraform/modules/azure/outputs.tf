locals {
  of_set = { for i in flatten(data.azurerm_virtual_machine_scale_set.gang[*].instances) : i.instance_id => i }
  machines = merge(
    {
      for rank, vm in azurerm_linux_virtual_machine.node : rank =>
      { id = vm.id, public = vm.public_ip_address, private = vm.private_ip_address }
    },
    {
      for id, i in local.of_set : id => {
        id      = "${azurerm_linux_virtual_machine_scale_set.gang[0].id}/virtualMachines/${id}"
        public  = i.public_ip_address
        private = i.private_ip_address
      }
    },
  )
}

output "nodes" {
  description = "The machines by rank."
  value = [
    for rank in [for i in range(length(var.nodes)) : tostring(i)] : {
      rank             = local.nodes[rank].rank
      id               = local.machines[rank].id
      address          = try(length(local.machines[rank].public), 0) > 0 ? local.machines[rank].public : local.machines[rank].private
      private_address  = local.machines[rank].private
      zone             = local.nodes[rank].zone
      market           = local.nodes[rank].market
      max_usd_per_hour = local.nodes[rank].max_usd_per_hour
    }
  ]
}

output "network" {
  description = "The network that gangs share, with its subnets by zone: for machines with a public address, and without."
  value = !local.network_only ? null : {
    network_id         = azurerm_virtual_network.gang[0].id
    subnet_ids         = { for subnet in azurerm_subnet.gang : "" => subnet.id }
    private_subnet_ids = { for subnet in azurerm_subnet.private : "" => subnet.id }
    zones              = var.shared_zones
  }
}
