terraform {
  required_version = ">= 1.5"
  required_providers {
    azurerm = {
      source = "hashicorp/azurerm"
      # The line whose schema the tests know.
      version = "~> 5.10"
    }
  }
}
