# One instance for each rank.

locals {
  # Newer machine series take Hyperdisk only.
  hyperdisk = "^(a3-ultragpu|a4x?|c4[ad]?|g4|n4)-"
}

variable "lifetime_seconds" {
  description = "Age at which Google ends the machines by itself, behind their agents' own lease; null: never."
  type        = number
  default     = null
}

resource "google_compute_instance" "node" {
  for_each     = local.nodes
  name         = "${local.name}-${each.key}"
  description  = each.value.name
  zone         = each.value.zone
  machine_type = each.value.instance_type
  labels       = merge(local.labels, { stepfare_rank = each.key })

  # Always encrypted; local SSDs come with the machine type, and user data puts a file system on them.
  boot_disk {
    auto_delete = true
    initialize_params {
      image  = coalesce(var.image, each.value.image)
      size   = var.disk_gib
      type   = can(regex(local.hyperdisk, each.value.instance_type)) ? "hyperdisk-balanced" : "pd-balanced"
      labels = local.labels
    }
  }

  network_interface {
    subnetwork = local.subnet[each.key]
    nic_type   = "GVNIC"
    dynamic "access_config" {
      for_each = local.made || var.network.public ? [1] : []
      content {}
    }
  }
  dynamic "network_interface" {
    for_each = local.planes
    content {
      subnetwork = google_compute_subnetwork.plane[network_interface.value.subnet].id
      nic_type   = network_interface.value.nic
    }
  }

  scheduling {
    provisioning_model = each.value.market == "spot" ? "SPOT" : "STANDARD"
    preemptible        = each.value.market == "spot"
    # Machines with GPUs cannot move to another host.
    on_host_maintenance = "TERMINATE"
    # A spot machine never comes back by itself; another, after a host's failure, does, and finds its disk.
    automatic_restart = each.value.market != "spot"
    # Deleted, not stopped: a stopped machine's disk goes on costing. (A ceiling on the price does not exist here.)
    instance_termination_action = each.value.market == "spot" || var.lifetime_seconds != null ? "DELETE" : null
    # The agent counts on it (router/agent/imds_gcp.py): unasked, the machine has 30 s. Compute Engine takes 0 or 120.
    dynamic "preemption_notice_duration" {
      for_each = each.value.market == "spot" ? [120] : []
      content {
        seconds = preemption_notice_duration.value
      }
    }
    dynamic "max_run_duration" {
      for_each = var.lifetime_seconds == null ? [] : [var.lifetime_seconds]
      content {
        seconds = max_run_duration.value
      }
    }
  }

  # Whoever did not buy a reservation leaves the project's reservations to those who did.
  reservation_affinity {
    type = each.value.market != "reserved" ? "NO_RESERVATION" : each.value.reservation == null ? "ANY_RESERVATION" : "SPECIFIC_RESERVATION"
    dynamic "specific_reservation" {
      for_each = each.value.reservation == null ? [] : [each.value.reservation]
      content {
        key    = "compute.googleapis.com/reservation-name"
        values = [specific_reservation.value]
      }
    }
  }
  resource_policies = local.placement[each.key] == null ? null : [local.placement[each.key]]

  service_account {
    email = google_service_account.node.email
    # The account's roles are the limit.
    scopes = ["cloud-platform"]
  }
  shielded_instance_config {
    enable_vtpm                 = true
    enable_integrity_monitoring = true
    # Only the image above is known to have its driver signed; with another, Secure Boot may leave the GPUs out. The
    # module that GPUDirect-TCPXO needs is built on the machine, and not signed.
    enable_secure_boot = var.image == null && var.fabric != "gpudirect-tcpxo"
  }

  metadata = merge(
    {
      user-data              = lookup(var.user_data, each.key, "")
      block-project-ssh-keys = "TRUE"
      enable-oslogin         = "FALSE"
      serial-port-enable     = "FALSE"
    },
    var.ssh_public_key == null ? {} : { ssh-keys = "stepfare:${var.ssh_public_key}" },
  )

  lifecycle {
    # The local SSDs that a machine type brings are not ours to add or remove.
    ignore_changes = [scratch_disk]
    precondition {
      condition     = each.value.zone != null
      error_message = "Google Cloud makes a machine in a zone: node ${each.value.name} names none."
    }
    precondition {
      condition     = local.subnet[each.key] != null
      error_message = "The given network has no subnetwork for this zone, and none for the region (\"\")."
    }
  }
  # The first thing user data does is call out, and read the bucket.
  depends_on = [google_compute_firewall.gang, google_compute_firewall.plane, google_storage_bucket_iam_member.checkpoints]
}
