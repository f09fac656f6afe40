# The same variables in every module; what a sandbox has no use for is accepted and ignored.

variable "attempt" {
  description = "Id of this attempt; every node is named and tagged with it."
  type        = string
}

variable "region" {
  type = string
}

variable "tags" {
  type = map(string)
}

variable "nodes" {
  type = list(object({
    rank             = number
    name             = string
    zone             = optional(string)
    instance_type    = string
    market           = string
    max_usd_per_hour = optional(string)
    reservation      = optional(string)
    placement_group  = optional(string)
  }))
  # Here, since the state would keep the result of a precondition for every node.
  validation {
    condition     = alltrue([for node in var.nodes : can(regex("^[a-z0-9-]+$", node.name))])
    error_message = "Names of nodes are lower-case letters, digits and hyphens."
  }
}

variable "user_data" {
  description = "Script of each node by rank: run as it is when it begins with #!, otherwise by sh. None or empty: an idle node, no process."
  type        = map(string)
  sensitive   = true
}

variable "image" {
  type    = string
  default = null
}

variable "network" {
  type = object({
    network_id = optional(string)
    subnet_ids = optional(map(string))
    public     = optional(bool, false)
  })
  default = {}
}

variable "shared_zones" {
  type    = list(string)
  default = null
}

variable "fabric" {
  type    = string
  default = "none"
}

variable "disk_gib" {
  type    = number
  default = 200
}

variable "checkpoint_bucket" {
  type    = string
  default = null
}

variable "readable" {
  type    = any
  default = {}
}

variable "ssh_public_key" {
  type    = string
  default = null
}
