# Credentials and the project come from the environment (GOOGLE_APPLICATION_CREDENTIALS, GOOGLE_PROJECT).
provider "google" {
  region = var.region
}
