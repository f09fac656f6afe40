# What the machines may do in the account: read and write the checkpoint bucket, nothing else. Without a bucket they
# have no identity at all.

locals {
  identities = var.checkpoint_bucket == null ? 0 : 1
}

resource "aws_iam_role" "node" {
  count = local.identities
  name  = local.name
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = "sts:AssumeRole", Principal = { Service = "ec2.amazonaws.com" } }]
  })
  tags = local.tags
}

resource "aws_iam_role_policy" "checkpoints" {
  count = local.identities
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

resource "aws_iam_instance_profile" "node" {
  count = local.identities
  name  = local.name
  role  = aws_iam_role.node[0].name
  tags  = local.tags
}
