terraform {
  required_version = ">= 1.5"
  required_providers {
    google = {
      source = "hashicorp/google"
      # The line whose schema the tests know. 8.7 is where a machine can be given notice of a preemption.
      version = "~> 8.7"
    }
  }
}
