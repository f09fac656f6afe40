# Without an image of the user's: Microsoft's current Ubuntu for HPC, with NVIDIA's driver and InfiniBand software.

locals {
  hpc_images = var.image == null ? [{ publisher = "microsoft-dsvm", offer = "ubuntu-hpc", sku = "2204", version = "latest" }] : []
}
