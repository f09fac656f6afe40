# Under the schema of hashicorp/google, with every answer of the cloud made up.
mock_provider "google" {
  mock_resource "google_service_account" {
    defaults = { email = "sf@p.iam.gserviceaccount.com", project = "p" }
  }
}

variables {
  attempt   = "a1"
  region    = "us-central1"
  tags      = { stepfare_job = "llama", stepfare_plan = "p1", Team = "Research & Co" }
  user_data = { "0" = "#cloud-config\n# zero", "1" = "#cloud-config\n# one" }
  nodes = [
    { rank = 1, name = "llama-1", zone = "us-central1-a", instance_type = "a3-megagpu-8g", market = "spot", max_usd_per_hour = "31.5", image = "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2404-amd64-with-nvidia-580" },
    { rank = 0, name = "llama-0", zone = "us-central1-a", instance_type = "a3-megagpu-8g", market = "spot", max_usd_per_hour = "31.5", image = "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2404-amd64-with-nvidia-580" },
  ]
}

run "spot_gang_on_tcpxo" {
  variables {
    fabric            = "gpudirect-tcpxo"
    checkpoint_bucket = "ckpt"
    ssh_public_key    = "ssh-ed25519 AAAA test"
  }
  assert {
    condition     = length(google_compute_instance.node) == 2
    error_message = "one machine a rank"
  }
  assert {
    condition = alltrue([for i in google_compute_instance.node :
      i.scheduling[0].provisioning_model == "SPOT" && i.scheduling[0].preemptible && !i.scheduling[0].automatic_restart
      && i.scheduling[0].instance_termination_action == "DELETE" && i.scheduling[0].on_host_maintenance == "TERMINATE"
    && i.reservation_affinity[0].type == "NO_RESERVATION"])
    error_message = "spot, deleted when it ends, no reservation"
  }
  assert {
    condition     = google_compute_resource_policy.compact[0].group_placement_policy[0].collocation == "COLLOCATED" && alltrue([for i in google_compute_instance.node : i.resource_policies == tolist([google_compute_resource_policy.compact[0].self_link])])
    error_message = "compact placement"
  }
  assert {
    condition     = length(google_compute_network.plane) == 8 && alltrue([for n in google_compute_network.plane : n.mtu == 8244 && n.network_profile == null]) && length(google_compute_firewall.plane) == 8
    error_message = "a network for each GPU's card"
  }
  assert {
    condition = alltrue([for i in google_compute_instance.node :
    jsonencode(i.network_interface[*].nic_type) == jsonencode([for n in range(9) : "GVNIC"]) && length(distinct(i.network_interface[*].subnetwork)) == 9])
    error_message = "nine gVNIC interfaces in nine subnetworks"
  }
  assert {
    condition     = alltrue([for i in google_compute_instance.node : length(i.network_interface[0].access_config) == 1 && alltrue([for n in slice(i.network_interface, 1, 9) : length(n.access_config) == 0])])
    error_message = "an external address on the first interface alone"
  }
  assert {
    condition     = alltrue([for i in google_compute_instance.node : i.labels["team"] == "research___co" && i.labels["stepfare_attempt"] == "a1" && i.boot_disk[0].initialize_params[0].labels["stepfare_job"] == "llama"])
    error_message = "labels in Google's alphabet"
  }
  assert {
    condition     = google_storage_bucket_iam_member.checkpoints[0].role == "roles/storage.objectUser" && google_storage_bucket_iam_member.checkpoints[0].bucket == "ckpt" && google_storage_bucket_iam_member.checkpoints[0].member == "serviceAccount:sf@p.iam.gserviceaccount.com"
    error_message = "the bucket and nothing else"
  }
  assert {
    condition     = length(google_service_account.node.account_id) <= 30
    error_message = "account ids are short"
  }
  assert {
    condition     = alltrue([for f in concat([google_compute_firewall.gang], values(google_compute_firewall.plane)) : f.source_service_accounts == toset(["sf@p.iam.gserviceaccount.com"]) && f.target_service_accounts == toset(["sf@p.iam.gserviceaccount.com"]) && f.source_ranges == null])
    error_message = "in from the gang only"
  }
  assert {
    condition     = alltrue([for i in google_compute_instance.node : i.shielded_instance_config[0].enable_vtpm && i.shielded_instance_config[0].enable_integrity_monitoring && !i.shielded_instance_config[0].enable_secure_boot])
    error_message = "shielded, but for the module of TCPXO, which nobody signed"
  }
  assert {
    condition     = nonsensitive(google_compute_instance.node["1"].metadata["user-data"]) == "#cloud-config\n# one" && nonsensitive(google_compute_instance.node["0"].metadata["ssh-keys"]) == "stepfare:ssh-ed25519 AAAA test" && nonsensitive(google_compute_instance.node["0"].metadata["block-project-ssh-keys"]) == "TRUE"
    error_message = "each rank its own user data, and no key but the gang's"
  }
  assert {
    condition     = alltrue([for i in google_compute_instance.node : i.boot_disk[0].initialize_params[0].type == "pd-balanced" && i.boot_disk[0].initialize_params[0].size == 200])
    error_message = "disk"
  }
  assert {
    condition     = output.nodes[*].rank == [0, 1] && output.nodes[*].id == [google_compute_instance.node["0"].id, google_compute_instance.node["1"].id]
    error_message = "outputs by rank"
  }
  assert {
    condition     = alltrue([for n in output.nodes : n.zone == "us-central1-a" && n.market == "spot" && n.max_usd_per_hour == "31.5" && length(n.address) > 0 && length(n.private_address) > 0 && n.address != n.private_address])
    error_message = "outputs complete"
  }
}

run "rdma" {
  variables {
    fabric = "gpudirect-rdma"
    image  = "projects/p/global/images/mine"
    nodes  = [{ rank = 0, name = "a", zone = "us-central1-b", instance_type = "a3-ultragpu-8g", market = "reserved", reservation = "block-1", image = "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2404-amd64-with-nvidia-580" }]
  }
  assert {
    condition     = google_compute_network.plane["rdma"].network_profile == "projects/p/global/networkProfiles/us-central1-b-vpc-roce" && google_compute_network.plane["host"].network_profile == null
    error_message = "the RoCE profile of the zone"
  }
  assert {
    condition     = jsonencode(google_compute_instance.node["0"].network_interface[*].nic_type) == jsonencode(concat(["GVNIC", "GVNIC"], [for n in range(8) : "MRDMA"])) && keys(google_compute_firewall.plane) == ["host"]
    error_message = "two plain cards, eight RDMA cards"
  }
  assert {
    condition     = google_compute_instance.node["0"].reservation_affinity[0].type == "SPECIFIC_RESERVATION" && google_compute_instance.node["0"].reservation_affinity[0].specific_reservation[0].values == tolist(["block-1"])
    error_message = "the reservation"
  }
  assert {
    condition     = length(google_compute_resource_policy.compact) == 0 && google_compute_instance.node["0"].resource_policies == null
    error_message = "placed by the reservation"
  }
  assert {
    condition     = google_compute_instance.node["0"].boot_disk[0].initialize_params[0].type == "hyperdisk-balanced" && google_compute_instance.node["0"].boot_disk[0].initialize_params[0].image == "projects/p/global/images/mine" && !google_compute_instance.node["0"].shielded_instance_config[0].enable_secure_boot
    error_message = "Hyperdisk, the user's image"
  }
}

run "on_demand_without_fabric_in_a_given_network" {
  variables {
    network = { network_id = "projects/p/global/networks/n", subnet_ids = { "us-central1-a" = "sub-a", "" = "sub" } }
    nodes = [
      { rank = 0, name = "a", zone = "us-central1-a", instance_type = "g2-standard-8", market = "on_demand", image = "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2404-amd64-with-nvidia-580" },
      { rank = 1, name = "b", zone = "us-central1-b", instance_type = "g2-standard-8", market = "reserved", image = "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2404-amd64-with-nvidia-580" },
    ]
  }
  assert {
    condition     = alltrue([for i in google_compute_instance.node : i.shielded_instance_config[0].enable_secure_boot])
    error_message = "only signed modules"
  }
  assert {
    condition     = length(google_compute_network.gang) == 0 && length(google_compute_network.plane) == 0 && length(google_compute_resource_policy.compact) == 0 && length(google_storage_bucket_iam_member.checkpoints) == 0
    error_message = "nothing that was not asked for"
  }
  assert {
    condition     = google_compute_instance.node["0"].network_interface[0].subnetwork == "sub-a" && google_compute_instance.node["1"].network_interface[0].subnetwork == "sub"
    error_message = "the zone's subnetwork, else the region's"
  }
  assert {
    condition     = alltrue([for i in google_compute_instance.node : length(i.network_interface) == 1 && length(i.network_interface[0].access_config) == 0 && i.resource_policies == null]) && google_compute_firewall.gang.network == "projects/p/global/networks/n"
    error_message = "no external address in a given network"
  }
  assert {
    condition = (
      google_compute_instance.node["0"].scheduling[0].provisioning_model == "STANDARD" && google_compute_instance.node["0"].scheduling[0].automatic_restart
      && google_compute_instance.node["0"].scheduling[0].instance_termination_action == null
      && google_compute_instance.node["0"].reservation_affinity[0].type == "NO_RESERVATION" && google_compute_instance.node["1"].reservation_affinity[0].type == "ANY_RESERVATION"
    )
    error_message = "on demand, and reserved without a name"
  }
  assert {
    condition     = alltrue([for n in output.nodes : n.address == n.private_address])
    error_message = "reached inside the network"
  }
}

run "no_machines" {
  variables {
    nodes     = []
    user_data = {}
    fabric    = "gpudirect-tcpx"
  }
  assert {
    condition     = length(google_compute_instance.node) == 0 && length(output.nodes) == 0
    error_message = "a gang of none"
  }
}

run "compact_in_two_zones_is_refused" {
  command = plan
  variables {
    fabric = "gpudirect-tcpxo"
    nodes = [
      { rank = 0, name = "a", zone = "us-central1-a", instance_type = "a3-megagpu-8g", market = "spot", image = "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2404-amd64-with-nvidia-580" },
      { rank = 1, name = "b", zone = "us-central1-b", instance_type = "a3-megagpu-8g", market = "spot", image = "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2404-amd64-with-nvidia-580" },
    ]
  }
  expect_failures = [google_service_account.node]
}

run "a_type_without_the_fabric_is_refused" {
  command = plan
  variables {
    fabric = "gpudirect-tcpx"
  }
  expect_failures = [google_service_account.node]
}

run "a_machine_without_a_zone_is_refused" {
  command = plan
  variables {
    nodes = [{ rank = 0, name = "a", instance_type = "g2-standard-8", market = "spot", image = "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2404-amd64-with-nvidia-580" }]
  }
  expect_failures = [google_compute_instance.node]
}

run "what_is_readable_is_read_and_no_more" {
  command = plan
  variables {
    readable = {
      buckets    = ["corpus"]
      registries = ["projects/p/locations/europe-west4/repositories/train"]
    }
  }
  assert {
    condition     = google_storage_bucket_iam_member.readable["corpus"].role == "roles/storage.objectViewer" && length(google_storage_bucket_iam_member.checkpoints) == 0
    error_message = "objects of the bucket, reading alone"
  }
  assert {
    condition = alltrue([for r in google_artifact_registry_repository_iam_member.readable :
    r.project == "p" && r.location == "europe-west4" && r.repository == "train" && r.role == "roles/artifactregistry.reader"])
    error_message = "the repository, reading alone"
  }
}

run "a_network_that_gangs_share" {
  variables {
    shared_zones = [""]
    nodes        = []
    user_data    = {}
  }
  assert {
    condition     = length(google_compute_network.gang) == 1 && length(google_compute_instance.node) == 0 && output.network.subnet_ids[""] == google_compute_subnetwork.gang[0].id
    error_message = "a network alone"
  }
}

run "machines_in_a_shared_network_take_addresses" {
  variables {
    network = { network_id = "n", subnet_ids = { "" = "s" }, public = true }
  }
  assert {
    condition     = length(google_compute_network.gang) == 0 && alltrue([for i in google_compute_instance.node : length(i.network_interface[0].access_config) == 1])
    error_message = "an address each to call out from"
  }
}
