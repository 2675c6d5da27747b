"""Report on runs of a matrix: to people, and in the formats of CI systems."""
