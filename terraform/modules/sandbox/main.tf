# A gang of local processes under Terraform's built-in resource: nothing is downloaded, nothing leaves this machine.
#
# Two resources a node, because Terraform skips the destroy-time provisioner of a tainted resource: a start that fails or is
# interrupted taints `process`, while `node`, made before it and destroyed after it, still stops what may be running.

locals {
  nodes = { for node in var.nodes : tostring(node.rank) => node }
  # Which ranks have a script is no secret; the scripts are, and are handed over by environment, never through state.
  working = nonsensitive({ for rank, script in var.user_data : rank => true if trimspace(script) != "" && can(local.nodes[rank]) })
}

resource "terraform_data" "node" {
  for_each = local.nodes

  input = {
    attempt          = var.attempt
    region           = var.region
    tags             = var.tags
    rank             = each.value.rank
    name             = each.value.name
    zone             = each.value.zone
    instance_type    = each.value.instance_type
    market           = each.value.market
    max_usd_per_hour = each.value.max_usd_per_hour
    # Relative to the run directory, so that it can be moved while nothing runs.
    folder  = "nodes/${each.value.name}"
    scripts = path.module
    working = can(local.working[each.key])
  }

  # Whoever plays the cloud takes a machine back by writing here what no earlier taking wrote (say, its moment): the next
  # preview wants another node in its place.
  triggers_replace = try(file("${path.root}/nodes/${each.value.name}/taken"), "")

  lifecycle {
    precondition {
      condition     = can(regex("^[a-z0-9-]+$", each.value.name))
      error_message = "Names of nodes are lower-case letters, digits and hyphens."
    }
  }

  # May refer to self only; an idle node has nothing to stop.
  provisioner "local-exec" {
    when    = destroy
    command = self.input.working ? "sh '${self.input.scripts}/stop.sh' '${self.input.folder}'" : ":"
  }
}

resource "terraform_data" "process" {
  for_each = local.working

  input            = terraform_data.node[each.key].output.folder
  triggers_replace = terraform_data.node[each.key].id

  provisioner "local-exec" {
    command = "sh '${path.module}/start.sh' '${self.input}'"
    environment = {
      STEPFARE_SCRIPT  = var.user_data[each.key]
      STEPFARE_ATTEMPT = var.attempt
      STEPFARE_RANK    = each.key
      STEPFARE_NODE    = local.nodes[each.key].name
      STEPFARE_NODE_ID = terraform_data.node[each.key].id
    }
  }
}
