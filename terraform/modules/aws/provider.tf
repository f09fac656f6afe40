# Credentials and endpoints come from the environment, as the cloud's own tools take them.
provider "aws" {
  region = var.region
}
