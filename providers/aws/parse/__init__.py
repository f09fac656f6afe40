"""What EC2 and its price lists answer, read into our values: pure, one module a subject."""
