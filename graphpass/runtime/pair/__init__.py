"""Run a prefill and a decode model of static shapes as one."""
