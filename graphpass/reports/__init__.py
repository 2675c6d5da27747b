"""Reports: inventories, explanations, contracts and differences, as text, JSON and HTML."""
