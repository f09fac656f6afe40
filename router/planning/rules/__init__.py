"""State each rule that the jobs of a plan share: its rows in the program, what holdings take, its words."""
