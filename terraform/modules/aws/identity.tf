# What the machines may do in the account: read and write the checkpoint bucket, read what is readable, nothing else.
# Without any of these they have no identity at all; with instance_profile they have that one, and nothing is written in
# IAM.

variable "permissions_boundary" {
  description = "ARN of the policy that bounds what the role of the machines may ever be allowed; null: none."
  type        = string
  default     = null
}

variable "instance_profile" {
  description = "Name of an instance profile for the machines that is there already; null: one is made for checkpoint_bucket."
  type        = string
  default     = null
}

locals {
  reads            = length(var.readable.buckets) + length(var.readable.registries)
  identities       = (var.checkpoint_bucket == null && local.reads == 0) || var.instance_profile != null ? 0 : 1
  instance_profile = local.identities == 0 ? var.instance_profile : aws_iam_instance_profile.node[0].name
}

resource "aws_iam_role" "node" {
  count = local.identities
  name  = local.name
  # The provisioner may pass on and change roles below this path only (providers/aws/provisioner-identity.json).
  path                 = "/stepfare/"
  permissions_boundary = var.permissions_boundary
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = "sts:AssumeRole", Principal = { Service = "ec2.amazonaws.com" } }]
  })
  tags = local.tags
}

resource "aws_iam_role_policy" "checkpoints" {
  count = var.checkpoint_bucket == null ? 0 : local.identities
  name  = "checkpoints"
  role  = aws_iam_role.node[0].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Effect   = "Allow"
        Action   = ["s3:ListBucket", "s3:GetBucketLocation", "s3:ListBucketMultipartUploads"]
        Resource = "arn:aws:s3:::${var.checkpoint_bucket}"
      },
      {
        # Old checkpoints are deleted by the job; parts of an upload that a notice cut short are aborted.
        Effect   = "Allow"
        Action   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
        Resource = "arn:aws:s3:::${var.checkpoint_bucket}/*"
      },
    ]
  })
}

resource "aws_iam_role_policy" "readable" {
  count = local.reads == 0 ? 0 : local.identities
  name  = "readable"
  role  = aws_iam_role.node[0].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      length(var.readable.buckets) == 0 ? [] : [
        {
          Effect   = "Allow"
          Action   = ["s3:ListBucket", "s3:GetBucketLocation"]
          Resource = [for bucket in var.readable.buckets : "arn:aws:s3:::${bucket}"]
        },
        {
          Effect   = "Allow"
          Action   = ["s3:GetObject"]
          Resource = [for bucket in var.readable.buckets : "arn:aws:s3:::${bucket}/*"]
        },
      ],
      length(var.readable.registries) == 0 ? [] : [
        {
          # A token is the account's; it opens only the repositories below.
          Effect   = "Allow"
          Action   = ["ecr:GetAuthorizationToken"]
          Resource = ["*"]
        },
        {
          Effect   = "Allow"
          Action   = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
          Resource = var.readable.registries
        },
      ],
    )
  })
}

resource "aws_iam_instance_profile" "node" {
  count = local.identities
  name  = local.name
  path  = "/stepfare/"
  role  = aws_iam_role.node[0].name
  tags  = local.tags
}
