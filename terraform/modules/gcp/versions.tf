terraform {
  required_version = ">= 1.5"
  required_providers {
    google = {
      source = "hashicorp/google"
      # The line whose schema the tests know.
      version = "~> 6.50"
    }
  }
}
