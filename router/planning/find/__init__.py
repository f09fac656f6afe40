"""Find offers that fit a job: what they cost, how fast they are, what they risk, what moving there takes."""
