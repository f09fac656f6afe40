# Without an image of the user's: that of the machine's type, PUBLISHER:OFFER:SKU, in its current version. Microsoft's
# Ubuntu for HPC, with driver, Docker and InfiniBand software; its sku by the accelerator says the table of images.

locals {
  hpc_images = {
    for rank, n in local.nodes : rank => [for image in var.image == null ? compact([n.image]) : [] : split(":", image)]
  }
}
