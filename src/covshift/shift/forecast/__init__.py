"""The error to expect on images without labels."""
