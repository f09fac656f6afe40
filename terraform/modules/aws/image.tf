# Without an image of the user's: for each machine the current one that the parameter of its type holds. Images of
# Amazon's with NVIDIA's driver, Docker and the EFA software; which, and for which processor, says the table of images.

locals {
  images = var.image == null ? toset(compact(var.nodes[*].image)) : toset([])
}

data "aws_ssm_parameter" "image" {
  for_each = local.images
  region   = var.region
  name     = each.key
}
