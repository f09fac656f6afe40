# GPUDirect: compact placement, and beside the first interface one for each network card that serves GPUs.
#   tcpx, tcpxo   gVNIC, each card in a network of its own
#   rdma, roce    RDMA cards in the subnetworks of one network with Google's RoCE profile, after a second plain card

locals {
  compact = startswith(var.fabric, "gpudirect") || var.fabric == "roce"
  rdma    = contains(["gpudirect-rdma", "roce"], var.fabric)

  # Network cards for GPUs, of the whole-host machine types that have them.
  gpu_cards = {
    "gpudirect-tcpx/a3-highgpu-8g"  = 4
    "gpudirect-tcpxo/a3-megagpu-8g" = 8
    "rdma/a3-ultragpu-8g"           = 8
    "rdma/a4-highgpu-8g"            = 8
  }
  types = distinct(var.nodes[*].instance_type)
  cards = local.compact && length(local.types) == 1 ? lookup(local.gpu_cards, "${local.rdma ? "rdma" : var.fabric}/${local.types[0]}", 0) : 0

  # The interfaces after the first, in order: network, subnetwork and kind of card.
  planes = local.cards == 0 ? [] : concat(
    local.rdma ? [{ network = "host", subnet = "host", nic = "GVNIC" }] : [],
    [for i in range(local.cards) : { network = local.rdma ? "rdma" : "gpu${i}", subnet = "gpu${i}", nic = local.rdma ? "MRDMA" : "GVNIC" }],
  )
}

# Reserved machines have the policy that their reservation was made with, or none: others would not match it.
locals {
  grouped = local.compact && (length(var.nodes) == 0 && !local.network_only || anytrue([for n in var.nodes : n.market != "reserved"]))
  placement = {
    for rank, n in local.nodes : rank =>
    n.market == "reserved" ? n.placement_group : one(google_compute_resource_policy.compact[*].self_link)
  }
}

resource "google_compute_resource_policy" "compact" {
  count  = local.grouped ? 1 : 0
  name   = local.name
  region = var.region
  group_placement_policy {
    collocation = "COLLOCATED"
  }
}

resource "google_compute_network" "plane" {
  for_each                = toset(local.planes[*].network)
  name                    = "${local.name}-${each.key}"
  auto_create_subnetworks = false
  # 8244 is what GPUDirect-TCPX is specified for; the RoCE profile brings its own.
  mtu             = local.rdma ? (each.key == "rdma" ? null : 8896) : 8244
  network_profile = each.key == "rdma" ? "projects/${google_service_account.node.project}/global/networkProfiles/${local.zones[0]}-vpc-roce" : null
}

resource "google_compute_subnetwork" "plane" {
  for_each      = { for i, plane in local.planes : plane.subnet => merge(plane, { at = i }) }
  name          = "${local.name}-${each.key}"
  region        = var.region
  network       = google_compute_network.plane[each.value.network].id
  ip_cidr_range = cidrsubnet("10.65.0.0/16", 4, each.value.at)
}

# The RoCE profile takes no such rule: nothing but RDMA between its own cards exists in that network.
resource "google_compute_firewall" "plane" {
  for_each                = toset([for name in local.planes[*].network : name if name != "rdma"])
  name                    = "${local.name}-${each.key}"
  network                 = google_compute_network.plane[each.key].id
  direction               = "INGRESS"
  source_service_accounts = [google_service_account.node.email]
  target_service_accounts = [google_service_account.node.email]
  allow {
    protocol = "all"
  }
}
