# A machine's image: the user's, an id or PUBLISHER:OFFER:SKU[:VERSION], else that of its type in its current version:
# Microsoft's Ubuntu for HPC, with driver, Docker and InfiniBand software; its sku by the accelerator says the table of
# images. Marketplace images with terms of their own (a plan) are not for machines of a gang: share them as an id.

locals {
  image_names = { for rank, n in local.nodes : rank => split(":", var.image != null ? var.image : coalesce(n.image, "-")) }
  # Publisher, offer, sku and version of the images that are no ids.
  hpc_images = {
    for rank, parts in local.image_names : rank => [for image in length(parts) == 1 ? [] : [parts] : concat(image, ["latest"])]
  }
  image_id = var.image == null || can(regex(":", var.image)) ? null : var.image
}
