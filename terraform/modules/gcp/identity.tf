# What the machines may do in the project: read and write the checkpoint bucket, nothing else. The account is made
# without a bucket too: the firewall knows the gang by it.

resource "google_service_account" "node" {
  # 6 to 30 characters, too few for the attempt's id; the description has it.
  account_id   = "sf-${substr(sha256(var.attempt), 0, 24)}"
  display_name = local.name
  description  = "Machines of stepfare attempt ${var.attempt}"
}

resource "google_storage_bucket_iam_member" "checkpoints" {
  count  = var.checkpoint_bucket == null ? 0 : 1
  bucket = var.checkpoint_bucket
  # Objects only: read, list, write, delete.
  role   = "roles/storage.objectUser"
  member = "serviceAccount:${google_service_account.node.email}"
}
