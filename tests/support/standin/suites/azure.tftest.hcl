# Under the schema of hashicorp/azurerm, with every answer of the cloud made up.
mock_provider "azurerm" {
  mock_data "azurerm_virtual_machine_scale_set" {
    defaults = {
      instances = [
        { instance_id = "1", name = "stepfare-a1_1", private_ip_address = "10.64.0.5", public_ip_address = "", computer_name = "", latest_model_applied = true, power_state = "running", private_ip_addresses = [], public_ip_addresses = [], virtual_machine_id = "", zone = "1" },
        { instance_id = "0", name = "stepfare-a1_0", private_ip_address = "10.64.0.4", public_ip_address = "", computer_name = "", latest_model_applied = true, power_state = "running", private_ip_addresses = [], public_ip_addresses = [], virtual_machine_id = "", zone = "1" },
      ]
    }
  }
}

variables {
  attempt        = "a1"
  region         = "eastus"
  tags           = { stepfare_job = "llama", stepfare_plan = "p1" }
  ssh_public_key = "ssh-rsa AAAA test"
  user_data      = { "0" = "#cloud-config\nrank: 0\n", "1" = "#cloud-config\nrank: 1\n" }
  nodes = [
    { rank = 1, name = "llama-1", zone = "1", instance_type = "Standard_ND96isr_H100_v5", market = "spot", max_usd_per_hour = "31.5000019", image = "microsoft-dsvm:ubuntu-hpc:2204" },
    { rank = 0, name = "llama-0", zone = "1", instance_type = "Standard_ND96isr_H100_v5", market = "spot", max_usd_per_hour = "31.5000019", image = "microsoft-dsvm:ubuntu-hpc:2204" },
  ]
}

run "spot_gang_on_infiniband" {
  variables {
    fabric            = "infiniband"
    checkpoint_bucket = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a/blobServices/default/containers/ckpt"
  }
  assert {
    condition     = length(azurerm_linux_virtual_machine.node) == 0 && length(azurerm_network_interface.node) == 0 && azurerm_linux_virtual_machine_scale_set.gang[0].instances == 2
    error_message = "one set of two machines"
  }
  assert {
    condition     = azurerm_linux_virtual_machine_scale_set.gang[0].single_placement_group && !azurerm_linux_virtual_machine_scale_set.gang[0].overprovision && azurerm_linux_virtual_machine_scale_set.gang[0].zones == toset(["1"])
    error_message = "single placement group, as many machines as asked for, in the zone"
  }
  assert {
    condition     = azurerm_linux_virtual_machine_scale_set.gang[0].priority == "Spot" && azurerm_linux_virtual_machine_scale_set.gang[0].eviction_policy == "Delete" && azurerm_linux_virtual_machine_scale_set.gang[0].max_bid_price == 31.5
    error_message = "spot, deleted when evicted, bid rounded down to five decimals"
  }
  assert {
    condition     = azurerm_linux_virtual_machine_scale_set.gang[0].encryption_at_host_enabled && azurerm_linux_virtual_machine_scale_set.gang[0].os_disk[0].disk_size_gb == 200 && azurerm_linux_virtual_machine_scale_set.gang[0].disable_password_authentication
    error_message = "encrypted at the host, no password"
  }
  assert {
    condition = (
      azurerm_linux_virtual_machine_scale_set.gang[0].network_interface[0].network_security_group_id == azurerm_network_security_group.gang.id
      && azurerm_linux_virtual_machine_scale_set.gang[0].network_interface[0].ip_configuration[0].application_security_group_ids == toset([azurerm_application_security_group.gang.id])
      && length(azurerm_linux_virtual_machine_scale_set.gang[0].network_interface[0].ip_configuration[0].public_ip_address) == 0
      && length(azurerm_nat_gateway.out) == 1 && length(azurerm_public_ip.node) == 0
    )
    error_message = "in the gang's groups, out through the gateway"
  }
  assert {
    condition     = azurerm_role_assignment.checkpoints[0].role_definition_name == "Storage Blob Data Contributor" && endswith(azurerm_role_assignment.checkpoints[0].scope, "/containers/ckpt") && azurerm_linux_virtual_machine_scale_set.gang[0].identity[0].type == "UserAssigned"
    error_message = "the container and nothing else"
  }
  assert {
    condition     = azurerm_linux_virtual_machine_scale_set.gang[0].source_image_reference[0].sku == "2204" && azurerm_linux_virtual_machine_scale_set.gang[0].source_image_id == null
    error_message = "the image that the table has for the size"
  }
  assert {
    condition     = output.nodes[*].rank == [0, 1] && output.nodes[*].private_address == ["10.64.0.4", "10.64.0.5"] && output.nodes[*].address == output.nodes[*].private_address
    error_message = "outputs by rank"
  }
  assert {
    condition     = alltrue([for n in output.nodes : endswith(n.id, "/virtualMachines/${n.rank}") && n.zone == "1" && n.market == "spot" && n.max_usd_per_hour == "31.5000019"])
    error_message = "outputs complete"
  }
}

run "a_version_of_a_published_image" {
  variables {
    image = "microsoft-dsvm:ubuntu-hpc:2204:22.04.2026051801"
    nodes = [{ rank = 0, name = "a", zone = "1", instance_type = "Standard_NC40ads_H100_v5", market = "spot" }]
  }
  assert {
    condition     = azurerm_linux_virtual_machine.node["0"].source_image_id == null && azurerm_linux_virtual_machine.node["0"].source_image_reference[0].offer == "ubuntu-hpc" && azurerm_linux_virtual_machine.node["0"].source_image_reference[0].version == "22.04.2026051801"
    error_message = "azurerm takes no such name as an id"
  }
}

run "machines_of_their_own" {
  variables {
    image    = "/subscriptions/s/images/mine"
    end_role = "/subscriptions/s/providers/Microsoft.Authorization/roleDefinitions/e"
    nodes = [
      { rank = 0, name = "a", zone = "1", instance_type = "Standard_NC40ads_H100_v5", market = "spot", image = "microsoft-dsvm:ubuntu-hpc:2204" },
      { rank = 1, name = "b", instance_type = "Standard_NC40ads_H100_v5", market = "on_demand", image = "microsoft-dsvm:ubuntu-hpc:2204" },
      { rank = 2, name = "c", zone = "2", instance_type = "Standard_NC40ads_H100_v5", market = "reserved", reservation = "/subscriptions/s/capacityReservationGroups/g", image = "microsoft-dsvm:ubuntu-hpc:2204" },
    ]
    user_data = { "0" = "#!/bin/sh\nzero", "1" = "#cloud-config\n" }
  }
  assert {
    condition     = length(azurerm_linux_virtual_machine.node) == 3 && length(azurerm_linux_virtual_machine_scale_set.gang) == 0 && length(azurerm_nat_gateway.out) == 0 && length(azurerm_user_assigned_identity.node) == 1 && length(azurerm_role_assignment.checkpoints) == 0
    error_message = "one machine a rank, nothing that was not asked for"
  }
  assert {
    condition     = azurerm_role_assignment.end[0].scope == azurerm_resource_group.gang.id && azurerm_role_assignment.end[0].role_definition_id == var.end_role
    error_message = "the right to deallocate, in the gang's own group"
  }
  assert {
    condition     = azurerm_linux_virtual_machine.node["0"].priority == "Spot" && azurerm_linux_virtual_machine.node["0"].eviction_policy == "Delete" && azurerm_linux_virtual_machine.node["0"].max_bid_price == -1
    error_message = "spot without a ceiling"
  }
  assert {
    condition     = azurerm_linux_virtual_machine.node["1"].priority == "Regular" && azurerm_linux_virtual_machine.node["1"].eviction_policy == null && azurerm_linux_virtual_machine.node["1"].max_bid_price == null && azurerm_linux_virtual_machine.node["1"].zone == null
    error_message = "on demand"
  }
  assert {
    condition     = azurerm_linux_virtual_machine.node["2"].capacity_reservation_group_id == "/subscriptions/s/capacityReservationGroups/g" && azurerm_linux_virtual_machine.node["2"].zone == "2" && azurerm_linux_virtual_machine.node["1"].capacity_reservation_group_id == null
    error_message = "the reservation group"
  }
  assert {
    condition     = alltrue([for vm in azurerm_linux_virtual_machine.node : vm.encryption_at_host_enabled && vm.disable_password_authentication && vm.source_image_id == "/subscriptions/s/images/mine" && length(vm.source_image_reference) == 0])
    error_message = "encrypted at the host, no password, the user's image"
  }
  assert {
    condition     = nonsensitive(azurerm_linux_virtual_machine.node["0"].custom_data) == base64gzip("#!/bin/sh\nzero") && nonsensitive(azurerm_linux_virtual_machine.node["2"].custom_data) == null
    error_message = "each rank its own user data"
  }
  assert {
    condition     = length(azurerm_network_interface_security_group_association.node) == 3 && length(azurerm_network_interface_application_security_group_association.node) == 3 && length(azurerm_public_ip.node) == 3
    error_message = "every interface in the gang's groups"
  }
  assert {
    condition = (
      azurerm_network_security_rule.gang.access == "Allow" && azurerm_network_security_rule.gang.source_application_security_group_ids == toset([azurerm_application_security_group.gang.id])
      && azurerm_network_security_rule.nobody_else.access == "Deny" && azurerm_network_security_rule.nobody_else.priority > azurerm_network_security_rule.gang.priority
      && azurerm_network_security_rule.nobody_else.source_address_prefix == "*" && azurerm_network_security_rule.nobody_else.direction == "Inbound"
    )
    error_message = "in from the gang only"
  }
  assert {
    condition     = output.nodes[*].rank == [0, 1, 2] && alltrue([for n in output.nodes : length(n.id) > 0 && length(n.address) > 0 && length(n.private_address) > 0])
    error_message = "outputs by rank"
  }
}

run "given_network" {
  variables {
    network = { network_id = "/vnet", subnet_ids = { "1" = "/vnet/a", "" = "/vnet/b" } }
    nodes = [
      { rank = 0, name = "a", zone = "1", instance_type = "Standard_NC40ads_H100_v5", market = "spot", image = "microsoft-dsvm:ubuntu-hpc:2204" },
      { rank = 1, name = "b", zone = "2", instance_type = "Standard_ND96isr_MI300X_v5", market = "spot", image = "microsoft-dsvm:ubuntu-hpc:2204-rocm" },
    ]
  }
  assert {
    condition     = length(azurerm_virtual_network.gang) == 0 && length(azurerm_subnet.gang) == 0 && length(azurerm_public_ip.node) == 0
    error_message = "no network is made"
  }
  assert {
    condition     = azurerm_network_interface.node["0"].ip_configuration[0].subnet_id == "/vnet/a" && azurerm_network_interface.node["1"].ip_configuration[0].subnet_id == "/vnet/b"
    error_message = "the zone's subnet, else the region's"
  }
  assert {
    condition     = [for rank in ["0", "1"] : azurerm_linux_virtual_machine.node[rank].source_image_reference[0].sku] == ["2204", "2204-rocm"]
    error_message = "each machine boots from the image of its own size"
  }
}

run "no_machines" {
  variables {
    nodes     = []
    user_data = {}
    fabric    = "infiniband"
  }
  assert {
    condition     = length(azurerm_linux_virtual_machine_scale_set.gang) == 0 && length(output.nodes) == 0
    error_message = "a gang of none"
  }
}

run "a_set_that_lost_a_machine_is_noticed" {
  variables {
    fabric = "infiniband"
    nodes  = [{ rank = 0, name = "a", zone = "1", instance_type = "Standard_ND96isr_H100_v5", market = "spot", image = "microsoft-dsvm:ubuntu-hpc:2204" }]
  }
  expect_failures = [data.azurerm_virtual_machine_scale_set.gang]
}

run "no_key_is_refused" {
  command = plan
  variables {
    ssh_public_key = null
  }
  expect_failures = [azurerm_linux_virtual_machine.node]
}

run "unlike_machines_in_one_set_are_refused" {
  command = plan
  variables {
    fabric = "infiniband"
    nodes = [
      { rank = 0, name = "a", zone = "1", instance_type = "Standard_ND96isr_H100_v5", market = "spot", image = "microsoft-dsvm:ubuntu-hpc:2204" },
      { rank = 1, name = "b", zone = "1", instance_type = "Standard_ND96isr_H100_v5", market = "on_demand", image = "microsoft-dsvm:ubuntu-hpc:2204" },
    ]
  }
  expect_failures = [azurerm_linux_virtual_machine_scale_set.gang]
}

run "a_reservation_on_infiniband_is_refused" {
  command = plan
  variables {
    fabric = "infiniband"
    nodes  = [{ rank = 0, name = "a", zone = "1", instance_type = "Standard_ND96isr_H100_v5", market = "reserved", reservation = "/g", image = "microsoft-dsvm:ubuntu-hpc:2204" }]
  }
  expect_failures = [azurerm_linux_virtual_machine_scale_set.gang]
}

run "unlike_user_data_in_one_set_is_refused" {
  command = plan
  variables {
    fabric    = "infiniband"
    user_data = { "0" = "#cloud-config\n", "1" = "#!/bin/sh\n" }
  }
  expect_failures = [azurerm_linux_virtual_machine_scale_set.gang]
}

run "a_bucket_that_is_no_container_is_refused" {
  command = plan
  variables {
    checkpoint_bucket = "ckpt"
  }
  expect_failures = [azurerm_user_assigned_identity.node]
}

run "what_is_readable_is_read_and_no_more" {
  command = plan
  variables {
    readable = {
      buckets    = ["/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a/blobServices/default/containers/corpus"]
      registries = ["/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerRegistry/registries/r"]
    }
  }
  assert {
    condition     = length(azurerm_user_assigned_identity.node) == 1 && length(azurerm_role_assignment.checkpoints) == 0
    error_message = "an identity without a checkpoint container"
  }
  assert {
    condition     = toset([for r in azurerm_role_assignment.readable : r.role_definition_name]) == toset(["Storage Blob Data Reader", "AcrPull"])
    error_message = "reading alone"
  }
}

run "a_network_that_gangs_share" {
  variables {
    shared_zones = [""]
    fabric       = "infiniband"
    nodes        = []
    user_data    = {}
  }
  assert {
    condition     = length(azurerm_virtual_network.gang) == 1 && length(azurerm_linux_virtual_machine_scale_set.gang) == 0 && length(azurerm_public_ip.node) == 0
    error_message = "a network alone"
  }
  assert {
    condition = (
      output.network.subnet_ids[""] == azurerm_subnet.gang[0].id && output.network.private_subnet_ids[""] == azurerm_subnet.private[0].id
      && azurerm_subnet_nat_gateway_association.out[0].subnet_id == azurerm_subnet.private[0].id
    )
    error_message = "a subnet for machines with addresses, and one behind the gateway"
  }
}

run "machines_in_a_shared_network_take_addresses" {
  variables {
    network = { network_id = "/n", subnet_ids = { "" = "/subscriptions/s/resourceGroups/r/providers/Microsoft.Network/virtualNetworks/n/subnets/gang" }, public = true }
  }
  assert {
    condition     = length(azurerm_public_ip.node) == 2 && length(azurerm_virtual_network.gang) == 0
    error_message = "an address each to call out from"
  }
}
