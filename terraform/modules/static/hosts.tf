# What only this module has: the machines that are there already, and how to log in to them.

variable "hosts" {
  description = "Host of each rank (\"0\", \"1\", ...): where it answers SSH, as whom, its key (without one any key is believed), its address inside the gang."
  type = map(object({
    address         = string
    port            = optional(number, 22)
    user            = optional(string, "root")
    host_key        = optional(string)
    private_address = optional(string)
  }))
}

variable "private_key_path" {
  description = "File with the private key to log in with; null: the SSH agent."
  type        = string
  default     = null
}
