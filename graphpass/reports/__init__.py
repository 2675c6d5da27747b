"""Reports for people: inventories, reasons, contracts and differences, as text, JSON and HTML."""
