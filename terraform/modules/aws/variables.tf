# The same file in every module: what a gang is, whatever the cloud.

variable "attempt" {
  description = "Id of this attempt: every resource is named and tagged with it."
  type        = string
  validation {
    # Short enough that a name with a prefix and a suffix fits every cloud (63 characters on Google Cloud).
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$", var.attempt))
    error_message = "attempt takes 1 to 40 lower-case letters, digits and inner hyphens."
  }
}

variable "region" {
  description = "Region of every machine."
  type        = string
}

variable "tags" {
  description = "Put on everything that can carry tags, beside stepfare_attempt."
  type        = map(string)
  default     = {}
}

variable "nodes" {
  description = "The machines, one a rank. market: on_demand, spot or reserved."
  type = list(object({
    rank             = number
    name             = string
    zone             = optional(string)
    instance_type    = string
    market           = string
    max_usd_per_hour = optional(string)
    reservation      = optional(string)
    placement_group  = optional(string)
    # What pricing/tables/images.csv has for the machine type, in the cloud's own notation.
    image = optional(string)
  }))
  validation {
    condition     = length(setsubtract(range(length(var.nodes)), var.nodes[*].rank)) == 0
    error_message = "Ranks are 0, 1, 2, ... without a gap, each once."
  }
  validation {
    condition     = alltrue([for n in var.nodes : contains(["on_demand", "spot", "reserved"], n.market)])
    error_message = "market is on_demand, spot or reserved."
  }
  validation {
    condition     = alltrue([for n in var.nodes : n.reservation == null || n.market == "reserved"])
    error_message = "Only a reserved machine names a reservation."
  }
  validation {
    condition     = alltrue([for n in var.nodes : n.placement_group == null || n.reservation != null])
    error_message = "A placement group is the one that a reservation was made in."
  }
}

variable "user_data" {
  description = "Cloud-init text by rank (\"0\", \"1\", ...); without one a machine idles."
  type        = map(string)
  sensitive   = true
}

variable "image" {
  description = "Machine image in the cloud's own notation for all machines; null: that of each node."
  type        = string
  default     = null
}

variable "network" {
  description = "A network to use, with its subnet by zone (\"\" for the region); empty: one is made. public: machines take an address each to call out from."
  type = object({
    network_id = optional(string)
    subnet_ids = optional(map(string))
    public     = optional(bool, false)
  })
  default = {}
  validation {
    condition     = (var.network.network_id == null) == (var.network.subnet_ids == null)
    error_message = "A given network has both network_id and subnet_ids."
  }
}

variable "shared_zones" {
  description = "Make a network for the gangs of the region, in these zones (\"\" for any), and no machines; null: a gang."
  type        = list(string)
  default     = null
  validation {
    condition     = var.shared_zones == null || length(var.nodes) == 0
    error_message = "A network that gangs share has no machines of its own."
  }
}

variable "fabric" {
  description = "What joins the machines: none, ethernet, efa, infiniband, gpudirect-tcpx, gpudirect-tcpxo, gpudirect-rdma."
  type        = string
  default     = "none"
}

variable "disk_gib" {
  description = "Encrypted boot disk, in GiB."
  type        = number
  default     = 200
}

variable "checkpoint_bucket" {
  description = "Object storage that the machines may read and write; null: none."
  type        = string
  default     = null
}

variable "readable" {
  description = "Buckets and registries that the machines may read, in the cloud's own notation; nothing else."
  type = object({
    buckets    = optional(list(string), [])
    registries = optional(list(string), [])
  })
  default = {}
}

variable "ssh_public_key" {
  description = "Public key for logging in from inside the gang's network; null: none."
  type        = string
  default     = null
}
