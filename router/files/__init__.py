"""Access to files that several rooms share: DuckDB over Parquet."""
