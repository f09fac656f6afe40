"""The API of the console, a module a subject."""
