"""Build the showback report of a month as a value; files and pages are written from it."""
