# Under the schema of hashicorp/aws, with every answer of the cloud made up.
mock_provider "aws" {
  mock_data "aws_ssm_parameter" {
    defaults = { value = "ami-0aaaaaaaaaaaaaaaa" }
  }
  mock_resource "aws_vpc" {
    defaults = { cidr_block = "10.64.0.0/16" }
  }
}

variables {
  attempt   = "a1"
  region    = "us-east-1"
  tags      = { stepfare_job = "llama", stepfare_plan = "p1", team = "research", cost_center = "42" }
  user_data = { "0" = "#cloud-config\n# zero", "1" = "#cloud-config\n# one" }
  nodes = [
    { rank = 1, name = "llama-1", zone = "use1-az4", instance_type = "p5.48xlarge", market = "spot", max_usd_per_hour = "31.5", image = "/aws/service/deeplearning/ami/x86_64/base-with-single-cuda-ubuntu-22.04/latest/ami-id" },
    { rank = 0, name = "llama-0", zone = "use1-az4", instance_type = "p5.48xlarge", market = "spot", max_usd_per_hour = "31.5", image = "/aws/service/deeplearning/ami/x86_64/base-with-single-cuda-ubuntu-22.04/latest/ami-id" },
  ]
}

run "spot_gang_on_efa" {
  variables {
    fabric            = "efa"
    checkpoint_bucket = "ckpt"
    ssh_public_key    = "ssh-ed25519 AAAA test"

    permissions_boundary = "arn:aws:iam::123456789012:policy/stepfare-boundary"
  }
  assert {
    condition = (
      aws_iam_role.node[0].permissions_boundary == "arn:aws:iam::123456789012:policy/stepfare-boundary"
      && aws_iam_role.node[0].path == "/stepfare/" && aws_iam_instance_profile.node[0].path == "/stepfare/"
    )
    error_message = "the role lies within the boundary, where the provisioner may pass it on"
  }
  assert {
    condition     = length(aws_instance.node) == 2 && length(aws_launch_template.shape) == 1
    error_message = "one machine a rank, one template for like machines"
  }
  assert {
    condition = alltrue([for i in aws_instance.node :
      i.instance_market_options[0].market_type == "spot" && i.instance_market_options[0].spot_options[0].max_price == "31.5"
      && i.instance_market_options[0].spot_options[0].spot_instance_type == "one-time"
    && i.instance_market_options[0].spot_options[0].instance_interruption_behavior == "terminate"])
    error_message = "spot, at the ceiling, not asked for again"
  }
  assert {
    condition     = alltrue([for i in aws_instance.node : length(i.capacity_reservation_specification) == 0])
    error_message = "spot machines take no reservation"
  }
  assert {
    condition     = alltrue([for i in aws_instance.node : i.metadata_options[0].http_tokens == "required" && i.metadata_options[0].http_endpoint == "enabled"])
    error_message = "IMDSv2 only"
  }
  assert {
    condition     = alltrue([for i in aws_instance.node : i.root_block_device[0].encrypted && i.root_block_device[0].volume_type == "gp3" && i.root_block_device[0].volume_size == 200])
    error_message = "encrypted gp3 disk of 200 GiB"
  }
  assert {
    condition     = aws_placement_group.gang[0].strategy == "cluster" && alltrue([for i in aws_instance.node : i.placement_group == "stepfare-a1"])
    error_message = "cluster placement group"
  }
  assert {
    condition = (
      jsonencode(values(aws_launch_template.shape)[0].network_interfaces[*].interface_type) == jsonencode(concat(["efa"], [for i in range(31) : "efa-only"]))
      && jsonencode(values(aws_launch_template.shape)[0].network_interfaces[*].network_card_index) == jsonencode(range(32))
    )
    error_message = "an EFA interface on each of 32 cards"
  }
  assert {
    condition     = jsonencode(values(aws_launch_template.shape)[0].network_interfaces[*].device_index) == jsonencode(concat([0], [for i in range(31) : 1]))
    error_message = "one device 0"
  }
  assert {
    condition     = alltrue([for n in values(aws_launch_template.shape)[0].network_interfaces : n.associate_public_ip_address == null]) && length(aws_nat_gateway.out) == 1
    error_message = "many cards: no public address, out through the gateway"
  }
  assert {
    condition     = values(aws_launch_template.shape)[0].image_id == "ami-0aaaaaaaaaaaaaaaa" && keys(data.aws_ssm_parameter.image) == ["/aws/service/deeplearning/ami/x86_64/base-with-single-cuda-ubuntu-22.04/latest/ami-id"]
    error_message = "the image that the table has for the type"
  }
  assert {
    condition     = [for s in values(aws_launch_template.shape)[0].tag_specifications : s.resource_type] == ["network-interface", "spot-instances-request"]
    error_message = "interfaces and spot requests are tagged"
  }
  assert {
    condition     = aws_subnet.private["use1-az4"].availability_zone_id == "use1-az4" && length(aws_subnet.gang) == 0
    error_message = "zone by its id"
  }
  assert {
    condition = (
      jsondecode(aws_iam_role_policy.checkpoints[0].policy).Statement[*].Resource == ["arn:aws:s3:::ckpt", "arn:aws:s3:::ckpt/*"]
      && alltrue(flatten([for s in jsondecode(aws_iam_role_policy.checkpoints[0].policy).Statement : [for a in s.Action : startswith(a, "s3:")]]))
    )
    error_message = "the bucket and nothing else"
  }
  assert {
    condition     = alltrue([for i in aws_instance.node : i.iam_instance_profile == "stepfare-a1" && i.key_name == "stepfare-a1"])
    error_message = "profile and key"
  }
  assert {
    condition     = nonsensitive(aws_instance.node["1"].user_data_base64 == base64gzip("#cloud-config\n# one"))
    error_message = "each rank its own user data"
  }
  assert {
    condition = (
      aws_vpc_security_group_ingress_rule.gang.referenced_security_group_id == aws_security_group.gang.id
      && aws_vpc_security_group_egress_rule.gang.referenced_security_group_id == aws_security_group.gang.id
      && aws_vpc_security_group_ingress_rule.gang.cidr_ipv4 == null
    )
    error_message = "in from the gang only; EFA needs the way out to it named"
  }
  assert {
    condition     = output.nodes[*].rank == [0, 1] && output.nodes[*].id == [aws_instance.node["0"].id, aws_instance.node["1"].id]
    error_message = "outputs by rank"
  }
  assert {
    condition     = alltrue([for n in output.nodes : n.zone == "use1-az4" && n.market == "spot" && n.max_usd_per_hour == "31.5" && n.address != "" && n.private_address != ""])
    error_message = "outputs complete"
  }
}

run "on_demand_without_fabric" {
  variables {
    nodes = [
      { rank = 0, name = "a", instance_type = "g6.xlarge", market = "on_demand", image = "/aws/service/deeplearning/ami/x86_64/base-with-single-cuda-ubuntu-22.04/latest/ami-id" },
      { rank = 1, name = "b", instance_type = "g5g.xlarge", market = "on_demand", image = "/aws/service/deeplearning/ami/arm64/base-with-single-cuda-ubuntu-22.04/latest/ami-id" },
    ]
    image = null
  }
  assert {
    condition     = length(aws_placement_group.gang) == 0 && length(aws_nat_gateway.out) == 0 && length(aws_iam_role.node) == 0 && length(aws_key_pair.gang) == 0
    error_message = "nothing that was not asked for"
  }
  assert {
    condition     = alltrue([for t in aws_launch_template.shape : length(t.network_interfaces) == 1 && t.network_interfaces[0].interface_type == null && t.network_interfaces[0].associate_public_ip_address == "true"])
    error_message = "one plain interface with a public address"
  }
  assert {
    condition     = alltrue([for i in aws_instance.node : length(i.instance_market_options) == 0 && i.capacity_reservation_specification[0].capacity_reservation_preference == "none"])
    error_message = "on demand leaves reservations alone"
  }
  assert {
    condition     = length(data.aws_ssm_parameter.image) == 2
    error_message = "an image for each architecture"
  }
}

run "reserved" {
  variables {
    image  = "ami-1"
    fabric = "efa"
    nodes = [
      { rank = 0, name = "a", zone = "use1-az4", instance_type = "p4d.24xlarge", market = "reserved", reservation = "cr-1", placement_group = "theirs", image = "/aws/service/deeplearning/ami/x86_64/base-with-single-cuda-ubuntu-22.04/latest/ami-id" },
      { rank = 1, name = "b", zone = "use1-az4", instance_type = "p6-b300.48xlarge", market = "reserved", reservation = "capacity-block:cr-2", image = "/aws/service/deeplearning/ami/x86_64/base-with-single-cuda-ubuntu-22.04/latest/ami-id" },
      { rank = 2, name = "c", zone = "use1-az4", instance_type = "p4d.24xlarge", market = "reserved", reservation = "arn:aws:resource-groups:us-east-1:1:group/g", image = "/aws/service/deeplearning/ami/x86_64/base-with-single-cuda-ubuntu-22.04/latest/ami-id" },
      { rank = 3, name = "d", zone = "use1-az4", instance_type = "p4d.24xlarge", market = "reserved", image = "/aws/service/deeplearning/ami/x86_64/base-with-single-cuda-ubuntu-22.04/latest/ami-id" },
    ]
    user_data = { "0" = "a", "1" = "b", "2" = "c", "3" = "d" }
  }
  assert {
    condition = (
      aws_instance.node["0"].capacity_reservation_specification[0].capacity_reservation_target[0].capacity_reservation_id == "cr-1"
      && aws_instance.node["1"].capacity_reservation_specification[0].capacity_reservation_target[0].capacity_reservation_id == "cr-2"
      && aws_instance.node["2"].capacity_reservation_specification[0].capacity_reservation_target[0].capacity_reservation_resource_group_arn == "arn:aws:resource-groups:us-east-1:1:group/g"
      && aws_instance.node["3"].capacity_reservation_specification[0].capacity_reservation_preference == "open"
    )
    error_message = "each reservation in its own way"
  }
  assert {
    condition     = length(aws_placement_group.gang) == 0 && jsonencode([for i in aws_instance.node : i.placement_group]) == jsonencode(["theirs", null, null, null])
    error_message = "no group of ours: the reservation's own, or none"
  }
  assert {
    condition     = aws_instance.node["1"].instance_market_options[0].market_type == "capacity-block" && length(aws_instance.node["0"].instance_market_options) == 0
    error_message = "a capacity block is a market of its own"
  }
  assert {
    condition     = length(data.aws_ssm_parameter.image) == 0 && alltrue([for t in aws_launch_template.shape : t.image_id == "ami-1"])
    error_message = "the image that was given"
  }
  assert {
    condition     = [for n in aws_launch_template.shape["p6-b300.48xlarge/reserved/use1-az4"].network_interfaces : n.interface_type][0] == null
    error_message = "the first card of p6-b300 does no EFA"
  }
}

run "given_network" {
  variables {
    network = { network_id = "vpc-1", subnet_ids = { "use1-az4" = "subnet-a", "" = "subnet-b" } }
    nodes = [
      { rank = 0, name = "a", zone = "use1-az4", instance_type = "g6.xlarge", market = "on_demand", image = "/aws/service/deeplearning/ami/x86_64/base-with-single-cuda-ubuntu-22.04/latest/ami-id" },
      { rank = 1, name = "b", zone = "use1-az6", instance_type = "g6.xlarge", market = "on_demand", image = "/aws/service/deeplearning/ami/x86_64/base-with-single-cuda-ubuntu-22.04/latest/ami-id" },
    ]
  }
  assert {
    condition     = length(aws_vpc.gang) == 0 && length(aws_subnet.gang) == 0 && length(aws_vpc_endpoint.s3) == 0 && aws_security_group.gang.vpc_id == "vpc-1"
    error_message = "no network is made"
  }
  assert {
    condition = (
      aws_launch_template.shape["g6.xlarge/on_demand/use1-az4"].network_interfaces[0].subnet_id == "subnet-a"
      && aws_launch_template.shape["g6.xlarge/on_demand/use1-az6"].network_interfaces[0].subnet_id == "subnet-b"
    )
    error_message = "the zone's subnet, else the region's"
  }
}

run "a_given_profile_makes_no_role" {
  variables {
    checkpoint_bucket = "ckpt"
    instance_profile  = "stepfare-nodes"
  }
  assert {
    condition     = length(aws_iam_role.node) == 0 && length(aws_iam_role_policy.checkpoints) == 0 && length(aws_iam_instance_profile.node) == 0
    error_message = "nothing is written in IAM"
  }
  assert {
    condition     = alltrue([for i in aws_instance.node : i.iam_instance_profile == "stepfare-nodes"])
    error_message = "the machines have the given profile"
  }
}

run "no_machines" {
  variables {
    nodes     = []
    user_data = {}
    fabric    = "efa"
  }
  assert {
    condition     = length(aws_instance.node) == 0 && length(output.nodes) == 0
    error_message = "a gang of none"
  }
}

run "efa_in_two_zones_is_refused" {
  command = plan
  variables {
    fabric = "efa"
    nodes = [
      { rank = 0, name = "a", zone = "use1-az4", instance_type = "p5.48xlarge", market = "spot", image = "/aws/service/deeplearning/ami/x86_64/base-with-single-cuda-ubuntu-22.04/latest/ami-id" },
      { rank = 1, name = "b", zone = "use1-az6", instance_type = "p5.48xlarge", market = "spot", image = "/aws/service/deeplearning/ami/x86_64/base-with-single-cuda-ubuntu-22.04/latest/ami-id" },
    ]
  }
  expect_failures = [aws_security_group.gang]
}

run "efa_on_a_type_without_it_is_refused" {
  command = plan
  variables {
    fabric = "efa"
    nodes  = [{ rank = 0, name = "a", zone = "use1-az4", instance_type = "g5.xlarge", market = "spot", image = "/aws/service/deeplearning/ami/x86_64/base-with-single-cuda-ubuntu-22.04/latest/ami-id" }]
  }
  expect_failures = [aws_security_group.gang]
}

run "a_zone_without_a_subnet_is_refused" {
  command = plan
  variables {
    network = { network_id = "vpc-1", subnet_ids = { "use1-az6" = "subnet-a" } }
  }
  expect_failures = [aws_launch_template.shape]
}

run "ranks_with_a_gap_are_refused" {
  command = plan
  variables {
    nodes = [{ rank = 1, name = "a", zone = "use1-az4", instance_type = "p5.48xlarge", market = "spot", image = "/aws/service/deeplearning/ami/x86_64/base-with-single-cuda-ubuntu-22.04/latest/ami-id" }]
  }
  expect_failures = [var.nodes]
}

run "a_group_with_a_part_of_the_gang_reserved" {
  variables {
    fabric = "efa"
    nodes = [
      { rank = 0, name = "a", zone = "use1-az4", instance_type = "p5.48xlarge", market = "spot", image = "/aws/service/deeplearning/ami/x86_64/base-with-single-cuda-ubuntu-22.04/latest/ami-id" },
      { rank = 1, name = "b", zone = "use1-az4", instance_type = "p5.48xlarge", market = "reserved", reservation = "cr-1", image = "/aws/service/deeplearning/ami/x86_64/base-with-single-cuda-ubuntu-22.04/latest/ami-id" },
    ]
  }
  assert {
    condition     = aws_instance.node["0"].placement_group == "stepfare-a1" && aws_instance.node["1"].placement_group == null
    error_message = "ours for what is not reserved"
  }
}

run "a_group_without_a_reservation_is_refused" {
  command = plan
  variables {
    nodes     = [{ rank = 0, name = "a", zone = "use1-az4", instance_type = "p5.48xlarge", market = "spot", placement_group = "g", image = "/aws/service/deeplearning/ami/x86_64/base-with-single-cuda-ubuntu-22.04/latest/ami-id" }]
    user_data = {}
  }
  expect_failures = [var.nodes]
}

run "what_is_readable_is_read_and_no_more" {
  command = plan
  variables {
    readable = {
      buckets    = ["corpus"]
      registries = ["arn:aws:ecr:eu-west-1:123456789012:repository/train"]
    }
  }
  assert {
    condition     = length(aws_iam_role.node) == 1 && length(aws_iam_role_policy.checkpoints) == 0 && length(aws_iam_role_policy.readable) == 1
    error_message = "a role without a checkpoint bucket"
  }
  assert {
    condition     = toset(flatten(jsondecode(aws_iam_role_policy.readable[0].policy).Statement[*].Action)) == toset(["s3:ListBucket", "s3:GetBucketLocation", "s3:GetObject", "ecr:GetAuthorizationToken", "ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"])
    error_message = "reading alone"
  }
}

run "an_instance_profile_that_is_given_needs_no_role" {
  command = plan
  variables {
    instance_profile = "stepfare-nodes"
    readable         = { buckets = ["corpus"] }
  }
  assert {
    condition     = length(aws_iam_role.node) == 0 && length(aws_iam_role_policy.readable) == 0
    error_message = "nothing is written in IAM"
  }
}

run "a_network_that_gangs_share" {
  variables {
    shared_zones = ["use1-az6", "use1-az4", "", "usw2-lax1-az1"]
    fabric       = "efa"
    nodes        = []
    user_data    = {}
  }
  assert {
    condition     = length(aws_vpc.gang) == 1 && length(aws_instance.node) == 0 && length(aws_placement_group.gang) == 0
    error_message = "a network alone"
  }
  assert {
    condition = (
      aws_subnet.gang["use1-az4"].cidr_block == "10.64.32.0/21" && aws_subnet.gang["use1-az6"].cidr_block == "10.64.48.0/21"
      && aws_subnet.private["use1-az4"].cidr_block == "10.64.160.0/21" && aws_subnet.out[0].cidr_block == "10.64.255.0/24"
      && length(distinct(concat(values(aws_subnet.gang)[*].cidr_block, values(aws_subnet.private)[*].cidr_block))) == 8
    )
    error_message = "each zone has a place of its own, whichever others there are"
  }
  assert {
    condition     = alltrue([for s in aws_subnet.gang : s.map_public_ip_on_launch]) && alltrue([for s in aws_subnet.private : s.map_public_ip_on_launch == null]) && aws_subnet.out[0].availability_zone_id == "use1-az6"
    error_message = "public, private, and the gateway where it was first asked for"
  }
  assert {
    condition = (
      output.network.network_id == aws_vpc.gang[0].id && output.network.zones == tolist(["use1-az6", "use1-az4", "", "usw2-lax1-az1"])
      && output.network.subnet_ids["use1-az4"] == aws_subnet.gang["use1-az4"].id && output.network.private_subnet_ids[""] == aws_subnet.private[""].id
    )
    error_message = "what a gang has to know of it"
  }
}

run "a_shared_network_without_efa_has_no_gateway" {
  variables {
    shared_zones = [""]
    nodes        = []
    user_data    = {}
  }
  assert {
    condition     = length(aws_nat_gateway.out) == 0 && output.network.private_subnet_ids == {} && length(aws_subnet.gang) == 1
    error_message = "no gateway"
  }
}
