# Machines that are there already: nothing is made, on each host the script of its rank is started, and stopped again.
# Linux with sh, ps and setsid; no cloud-init: user data is run as it is when it begins with #!, otherwise by sh. Image,
# network, fabric and disk are what the host has; the bucket is up to the host's own credentials.
#
# Two resources a node, because Terraform skips the destroy-time provisioner of a tainted resource: a start that fails or
# is interrupted taints `process`, while `node`, made before it and destroyed after it, still stops what may be running.

locals {
  nodes = { for n in var.nodes : tostring(n.rank) => n }
  # Which ranks have a script is no secret; the scripts are.
  working = toset([for rank, text in nonsensitive({ for r, t in var.user_data : r => trimspace(t) != "" }) : rank if text && can(local.nodes[rank])])
  # Below the home folder of the user who logs in.
  folder = { for rank in keys(local.nodes) : rank => ".stepfare/${var.attempt}/${rank}" }
}

resource "terraform_data" "node" {
  for_each = local.nodes

  # Everything that stopping needs: a destroy-time provisioner knows nothing else.
  input = {
    attempt  = var.attempt
    tags     = merge(var.tags, { stepfare_attempt = var.attempt })
    name     = each.value.name
    address  = var.hosts[each.key].address
    port     = var.hosts[each.key].port
    user     = var.hosts[each.key].user
    host_key = var.hosts[each.key].host_key
    key_path = var.private_key_path
    folder   = local.folder[each.key]
  }
  # Another host is another node: the old one is stopped where it runs.
  triggers_replace = [var.hosts[each.key].address, var.hosts[each.key].port, var.hosts[each.key].user, local.folder[each.key]]

  connection {
    type        = "ssh"
    host        = self.input.address
    port        = self.input.port
    user        = self.input.user
    host_key    = self.input.host_key
    agent       = self.input.key_path == null
    private_key = self.input.key_path == null ? null : file(self.input.key_path)
    timeout     = "2m"
  }

  provisioner "remote-exec" {
    inline = ["umask 077 && mkdir -p '${self.input.folder}'"]
  }
  provisioner "file" {
    source      = "${path.module}/start.sh"
    destination = "${self.input.folder}/start.sh"
  }
  provisioner "file" {
    source      = "${path.module}/stop.sh"
    destination = "${self.input.folder}/stop.sh"
  }

  # A host that does not answer fails the destroy: what runs there would go on unseen.
  provisioner "remote-exec" {
    when   = destroy
    inline = ["test ! -e '${self.input.folder}/stop.sh' || sh '${self.input.folder}/stop.sh'"]
  }
}

resource "terraform_data" "process" {
  for_each = local.working

  input            = terraform_data.node[each.key].output.folder
  triggers_replace = [terraform_data.node[each.key].id, nonsensitive(sha256(var.user_data[each.key]))]

  connection {
    type        = "ssh"
    host        = terraform_data.node[each.key].output.address
    port        = terraform_data.node[each.key].output.port
    user        = terraform_data.node[each.key].output.user
    host_key    = terraform_data.node[each.key].output.host_key
    agent       = var.private_key_path == null
    private_key = var.private_key_path == null ? null : file(var.private_key_path)
    timeout     = "2m"
  }

  # Copied, not passed on the command line, where every user of the host could read it.
  provisioner "file" {
    content     = var.user_data[each.key]
    destination = "${self.input}/script"
  }
  provisioner "remote-exec" {
    inline = ["STEPFARE_ATTEMPT='${var.attempt}' STEPFARE_RANK='${each.key}' sh '${self.input}/start.sh'"]
  }
}
