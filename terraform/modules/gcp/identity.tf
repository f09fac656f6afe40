# What the machines may do in the project: read and write the checkpoint bucket, read what is readable, nothing
# else. The account is made without these too: the firewall knows the gang by it.

resource "google_service_account" "node" {
  # 6 to 30 characters, too few for the attempt's id; the description has it.
  account_id   = "sf-${substr(sha256(var.attempt), 0, 24)}"
  display_name = local.name
  description  = "Machines of stepfare attempt ${var.attempt}"

  # Here, because every gang has one.
  lifecycle {
    precondition {
      condition     = !local.compact || length(local.zones) <= 1
      error_message = "fabric ${var.fabric}: it reaches no further than one zone, and these nodes name several."
    }
    precondition {
      condition     = !local.compact || length(var.nodes) == 0 || local.cards > 0
      error_message = "fabric ${var.fabric}: the nodes are not all of one machine type known to have it (fabric.tf lists them)."
    }
  }
}

resource "google_storage_bucket_iam_member" "checkpoints" {
  count  = var.checkpoint_bucket == null ? 0 : 1
  bucket = var.checkpoint_bucket
  # Objects only: read, list, write, delete.
  role   = "roles/storage.objectUser"
  member = "serviceAccount:${google_service_account.node.email}"
}

resource "google_storage_bucket_iam_member" "readable" {
  for_each = toset(var.readable.buckets)
  bucket   = each.value
  role     = "roles/storage.objectViewer"
  member   = "serviceAccount:${google_service_account.node.email}"
}

# projects/PROJECT/locations/LOCATION/repositories/NAME
resource "google_artifact_registry_repository_iam_member" "readable" {
  for_each   = toset(var.readable.registries)
  project    = split("/", each.value)[1]
  location   = split("/", each.value)[3]
  repository = split("/", each.value)[5]
  role       = "roles/artifactregistry.reader"
  member     = "serviceAccount:${google_service_account.node.email}"
}
