# What the other files derive from the variables.

locals {
  name = "stepfare-${var.attempt}"
  # Labels are tags in a smaller alphabet: lower-case letters, digits, "_" and "-", 63 characters.
  labels = {
    for key, value in merge(var.tags, { stepfare_attempt = var.attempt }) :
    substr(replace(lower(key), "/[^a-z0-9_-]/", "_"), 0, 63) => substr(replace(lower(value), "/[^a-z0-9_-]/", "_"), 0, 63)
  }
  nodes = { for n in var.nodes : tostring(n.rank) => n }
  zones = sort(distinct([for n in var.nodes : n.zone == null ? "" : n.zone]))
}
