"""What a month of showback says, as a value; files and pages are written from it."""
