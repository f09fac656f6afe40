# A gang of local processes under Terraform's built-in resource: nothing is downloaded, nothing leaves this machine.
#
# Two resources a node, because Terraform skips the destroy-time provisioner of a tainted resource: a start that fails or is
# interrupted taints `process`, while `node`, made before it and destroyed after it, still stops what may be running.

locals {
  nodes = { for node in var.nodes : tostring(node.rank) => node }
  # Which ranks have a script is no secret; the scripts are, and are handed over by environment, never through state.
  working = nonsensitive({ for rank, script in var.user_data : rank => true if trimspace(script) != "" && can(local.nodes[rank]) })
}

resource "terraform_data" "gang" {
  input = {
    attempt = var.attempt
    region  = var.region
    tags    = var.tags
  }
}

resource "terraform_data" "node" {
  for_each = local.nodes

  # The command that ends it, and no more: the state is written anew for every node, so that its size counts squared.
  # The same whether there is a script or not, since whoever releases may have forgotten the scripts by then.
  # Paths are relative to the run directory, which may be moved.
  #
  # Whoever plays the cloud takes a machine back by writing to `taken` what no earlier taking wrote (say, its moment): the
  # command is another then, if only in its comment, and the next preview wants another node in its place.
  triggers_replace = join("", [
    "test ! -d 'nodes/${each.value.name}' || sh '${path.module}/stop.sh' 'nodes/${each.value.name}'",
    try(" # ${sha256(file("${path.root}/nodes/${each.value.name}/taken"))}", ""),
  ])

  # May refer to self only.
  provisioner "local-exec" {
    when    = destroy
    command = self.triggers_replace
  }
}

resource "terraform_data" "process" {
  for_each = local.working

  triggers_replace = terraform_data.node[each.key].id

  provisioner "local-exec" {
    command = "sh '${path.module}/start.sh' 'nodes/${local.nodes[each.key].name}'"
    environment = {
      STEPFARE_SCRIPT  = var.user_data[each.key]
      STEPFARE_ATTEMPT = var.attempt
      STEPFARE_RANK    = each.key
      STEPFARE_NODE    = local.nodes[each.key].name
      STEPFARE_NODE_ID = terraform_data.node[each.key].id
      STEPFARE_STATE   = lookup(var.tags, "stepfare_state", "")
      # What is taken out of the stock; the node does not see it.
      STEPFARE_MACHINE = join(" ", [var.region, coalesce(local.nodes[each.key].zone, "-"), local.nodes[each.key].instance_type, local.nodes[each.key].market])
    }
  }
}
