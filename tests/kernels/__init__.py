"""Tests of the kernel layer: contracts, selection, tables, builds."""
