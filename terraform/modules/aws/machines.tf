# One launch template for each shape of machine (image, network cards) and one instance for each rank.

resource "aws_launch_template" "shape" {
  for_each    = local.shapes
  region      = var.region
  name        = "${local.name}-${substr(sha256(each.key), 0, 8)}"
  description = each.key
  # AMI ids are no secret; the data source marks every parameter as one.
  image_id = var.image != null ? var.image : nonsensitive(data.aws_ssm_parameter.image[local.nodes[each.value[0]].image].value)

  dynamic "network_interfaces" {
    for_each = local.interfaces[local.nodes[each.value[0]].instance_type]
    content {
      # Only the first card is device 0: the machine's address. The API counts every other card's interface as device 1.
      device_index       = network_interfaces.key == 0 ? 0 : 1
      network_card_index = network_interfaces.key
      interface_type     = network_interfaces.value == "interface" ? null : network_interfaces.value
      subnet_id          = local.subnet[local.zone[each.value[0]]]
      security_groups    = [aws_security_group.gang.id]
      # A given subnet says itself whether it hands out public addresses.
      associate_public_ip_address = local.made && !local.behind_nat ? "true" : null
      delete_on_termination       = "true"
    }
  }

  # Instances and disks are tagged below, where a change of tags does not ask for a new template.
  dynamic "tag_specifications" {
    for_each = toset(local.nodes[each.value[0]].market == "spot" ? ["network-interface", "spot-instances-request"] : ["network-interface"])
    content {
      resource_type = tag_specifications.key
      tags          = local.tags
    }
  }
  tags = local.tags

  lifecycle {
    # A newer image is for the next attempt: replacing half a gang's machines would leave two driver versions in it.
    ignore_changes = [image_id]
    precondition {
      condition     = local.subnet[local.zone[each.value[0]]] != null
      error_message = "The given network has no subnet for this zone, and none for the region (\"\")."
    }
  }
}

resource "aws_instance" "node" {
  for_each      = local.nodes
  region        = var.region
  instance_type = each.value.instance_type
  launch_template {
    id      = aws_launch_template.shape[local.shape[each.key]].id
    version = aws_launch_template.shape[local.shape[each.key]].latest_version
  }
  # Compressed: cloud-init unpacks it, and EC2 takes 16 KiB at most.
  user_data_base64     = base64gzip(lookup(var.user_data, each.key, ""))
  placement_group      = local.placement_group[each.key]
  iam_instance_profile = local.instance_profile
  key_name             = var.ssh_public_key == null ? null : aws_key_pair.gang[0].key_name
  # A machine that switches itself off when its job is done is gone, and no longer billed.
  instance_initiated_shutdown_behavior = "terminate"

  dynamic "instance_market_options" {
    for_each = local.market_type[each.key] == null ? [] : [local.market_type[each.key]]
    content {
      market_type = instance_market_options.value
      dynamic "spot_options" {
        for_each = each.value.market == "spot" ? [each.value.max_usd_per_hour] : []
        content {
          max_price                      = spot_options.value
          spot_instance_type             = "one-time"
          instance_interruption_behavior = "terminate"
        }
      }
    }
  }

  dynamic "capacity_reservation_specification" {
    for_each = each.value.market == "spot" ? [] : [each.value.market]
    content {
      # On demand means on demand: an open reservation in the account may be what another job's plan counts on.
      capacity_reservation_preference = each.value.market == "on_demand" ? "none" : each.value.reservation == null ? "open" : null
      dynamic "capacity_reservation_target" {
        for_each = each.value.reservation == null ? [] : [local.reservation[each.key]]
        content {
          capacity_reservation_id                 = startswith(capacity_reservation_target.value, "arn:") ? null : capacity_reservation_target.value
          capacity_reservation_resource_group_arn = startswith(capacity_reservation_target.value, "arn:") ? capacity_reservation_target.value : null
        }
      }
    }
  }

  metadata_options {
    http_endpoint = "enabled"
    http_tokens   = "required"
    # One hop further than the machine itself: training in a container reads the interruption notice too.
    http_put_response_hop_limit = 2
  }

  # Local NVMe drives come with the machine and are encrypted by it; user data puts a file system on them.
  root_block_device {
    encrypted             = true
    volume_type           = "gp3"
    volume_size           = var.disk_gib
    delete_on_termination = true
    tags                  = local.tags
  }

  tags = merge(local.tags, { Name = each.value.name, stepfare_rank = each.key })

  # The first thing user data does is call out, and read the bucket.
  depends_on = [
    aws_route_table_association.gang,
    aws_route_table_association.private,
    aws_vpc_security_group_ingress_rule.gang,
    aws_vpc_security_group_egress_rule.gang,
    aws_vpc_security_group_egress_rule.out,
    aws_iam_role_policy.checkpoints,
  ]
}
