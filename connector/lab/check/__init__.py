"""Reads the evidence of a trial, and judges its history."""
