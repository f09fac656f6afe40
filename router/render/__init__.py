"""Plans, quotes, reports and bills as text, tables, pictures and HTML pages."""
