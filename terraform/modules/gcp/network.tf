# A network, unless one is given: machines call out, nothing outside calls in. It is the attempt's own, or one for all
# gangs of the region (shared_zones; nothing else is made then but an account without machines). A subnetwork spans the
# region here. In a made network each machine has an external address to call out from; a given network has its own way
# out, so that nothing there gets an address it was not meant to have.

locals {
  made         = var.network.network_id == null
  network_only = var.shared_zones != null
  network_id   = local.made ? google_compute_network.gang[0].id : var.network.network_id
  given        = coalesce(var.network.subnet_ids, {})
  subnet = {
    for rank, n in local.nodes : rank =>
    local.made ? google_compute_subnetwork.gang[0].id : lookup(local.given, n.zone == null ? "" : n.zone, lookup(local.given, "", null))
  }
}

resource "google_compute_network" "gang" {
  count                   = local.made ? 1 : 0
  name                    = local.name
  auto_create_subnetworks = false
  # Room for a whole page of memory and its headers: collectives over TCP gain from it.
  mtu = 8896
}

resource "google_compute_subnetwork" "gang" {
  count         = local.made ? 1 : 0
  name          = local.name
  region        = var.region
  network       = google_compute_network.gang[0].id
  ip_cidr_range = "10.64.0.0/16"
  # The way to Cloud Storage without leaving Google's network.
  private_ip_google_access = true
}

# Who may talk to whom is said by service account, which nothing but this attempt's machines carries: it holds in a given
# network too. Everything else that comes in is refused by Google's implied rule (in a given network, by its own rules).
resource "google_compute_firewall" "gang" {
  name                    = local.name
  description             = "Machines of attempt ${var.attempt}, among themselves"
  network                 = local.network_id
  direction               = "INGRESS"
  source_service_accounts = [google_service_account.node.email]
  target_service_accounts = [google_service_account.node.email]
  allow {
    protocol = "all"
  }
}
