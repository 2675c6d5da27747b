"""Sessions over a prefill and a decode model of static shapes."""
