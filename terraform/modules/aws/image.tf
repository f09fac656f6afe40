# Without an image of the user's: Amazon's current one with NVIDIA's driver, Docker and the EFA software.

locals {
  # Grace and Graviton machines; every other GPU machine is x86_64.
  architecture  = { for n in var.nodes : n.instance_type => can(regex("^(g5g|p6e-gb)", n.instance_type)) ? "arm64" : "x86_64"... }
  architectures = var.image == null ? toset([for found in values(local.architecture) : found[0]]) : toset([])
}

data "aws_ssm_parameter" "image" {
  for_each = local.architectures
  region   = var.region
  name     = "/aws/service/deeplearning/ami/${each.key}/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
}
