terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source = "hashicorp/aws"
      # The line whose schema the tests know. 6.0 is where every resource takes a region of its own.
      version = "~> 6.69"
    }
  }
}
