"""Reports on runs of a matrix: text, JSON, HTML and formats of CI systems."""
